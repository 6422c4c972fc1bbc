"""A real browser for the tests of the page, started once for each worker, and a place for its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parts.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

ARTEFACTS = Path(__file__).resolve().parents[2] / "artefacts" / "dashboard"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium, for all tests of this worker."""
    started = Browser(tmp_path_factory.mktemp("chromium"))
    started.start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def pictures() -> Path:
    """Where pictures of the page are kept after the tests."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    return ARTEFACTS

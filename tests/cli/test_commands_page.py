"""The commands of the page work as they are written, on everything that `podpool up` starts, with the real kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.pages import commands_of, run_commands

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces

pytestmark = pytest.mark.real


def test_the_commands_of_the_page_work_as_they_are_written(namespaces: Namespaces, tmp_path: Path) -> None:
    told = run_commands(commands_of("docs/commands.md"), namespaces=namespaces, home=tmp_path)
    assert 0 == told.returncode, told.stdout
    assert "No violations in 2 nodes" in told.stdout
    assert "Every Pod has its address." in told.stdout
    assert "complete -F" in (tmp_path / "podpool.bash").read_text()

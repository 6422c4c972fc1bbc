"""The commands of docs/commands.md work as written, on the demo cluster and with the real kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.pages import commands_of, run_commands

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces

pytestmark = pytest.mark.real


def test_the_commands_of_the_page_work_as_they_are_written(namespaces: Namespaces, tmp_path: Path) -> None:
    done = run_commands(commands_of("docs/commands.md"), namespaces=namespaces, home=tmp_path)
    assert 0 == done.returncode, done.stdout
    assert "No violations in 2 nodes" in done.stdout
    assert "Every Pod has an address." in done.stdout
    assert "complete -F" in (tmp_path / "podpool.bash").read_text()

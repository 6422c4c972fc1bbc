"""The page of the architecture is true where it has commands: a node gets its first batch with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parts.pages import commands_of, register, run_commands, within_reach

if TYPE_CHECKING:
    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces

BOOT = Path("/proc/sys/kernel/random/boot_id")


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
def test_the_commands_of_the_page_work(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    with within_reach(control_plane, namespaces, tmp_path):
        register(control_plane, "one", boot_id=BOOT.read_text().strip())
        commands = commands_of("docs/architecture.md")
        told = run_commands(commands, namespaces=namespaces, home=tmp_path, plane=control_plane, NODE="one")
    assert 0 == told.returncode, told.stdout
    assert re.search(r"^one +15 +15 +pods ", told.stdout, re.MULTILINE), told.stdout

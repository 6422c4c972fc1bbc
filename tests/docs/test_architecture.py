"""The commands in docs/architecture.md are run as they are written: an address moves from one node to another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parts.pages import commands_of, register, run_commands, within_reach
from parts.recipes import program

if TYPE_CHECKING:
    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces

BOOT = Path("/proc/sys/kernel/random/boot_id")


@pytest.mark.real
@pytest.mark.xdist_group("installation")
def test_the_commands_of_the_page_work(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    with within_reach(control_plane, namespaces, tmp_path):
        register(control_plane, "one", boot_id=BOOT.read_text().strip())
        register(control_plane, "two", boot_id="boot-of-other")
        commands = f"cp {program('ptp').parent}/* /opt/cni/bin\n" + commands_of("docs/architecture.md")
        result = run_commands(
            commands, namespaces=namespaces, home=tmp_path, plane=control_plane, NODE="one", OTHER="two"
        )
    assert 0 == result.returncode, result.stdout
    assert re.search(r"^one +3 +3 +pods ", result.stdout, re.MULTILINE), result.stdout
    assert 2 == result.stdout.count("1 packets transmitted, 1 received")
    first = re.findall(r"^eth0\S* +UP +(10\.50\.0\.\d+)/28", result.stdout, re.MULTILINE)
    others = re.findall(r"^(10\.50\.0\.\d+)$", result.stdout, re.MULTILINE)
    assert 11 == len(others)
    assert first[0] in others

"""The commands in docs/controller.md are run as they are written."""

import re
from pathlib import Path

import pytest

from parts.control_plane import ControlPlane
from parts.namespaces import Namespaces
from parts.pages import commands_of, run_commands, within_reach


@pytest.mark.real
@pytest.mark.xdist_group("installation")
def test_the_commands_of_the_page_work(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    """In their own network namespace, with default ports and paths."""
    with within_reach(control_plane, namespaces, tmp_path):
        control_plane.admin.post("/api/v1/nodes", {"metadata": {"name": "one"}})
        commands = commands_of("docs/controller.md")
        result = run_commands(commands, namespaces=namespaces, home=tmp_path, plane=control_plane)
    assert 0 == result.returncode, result.stdout
    assert re.search(r"^one +0 ", result.stdout, re.MULTILINE)
    assert re.search(r"^clustersubnet\S*/pods", result.stdout, re.MULTILINE)
    assert 'podpool_controller_subnet_batch{subnet="pods"} 16.0' in result.stdout
    assert re.search(r"10\.50\.0\.\d+ .* one .* now", result.stdout)
    assert "forbidden" not in result.stdout.lower()

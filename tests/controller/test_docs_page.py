"""The page for the controller's users is true: its commands are run as they are written."""

import re
from pathlib import Path

import pytest

from parts.control_plane import ControlPlane
from parts.namespaces import Namespaces
from parts.pages import commands_of, run_commands, within_reach


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
def test_the_commands_of_the_page_work(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    """In a network of their own, with usual ports and usual places, from where the API server can be reached."""
    with within_reach(control_plane, namespaces, tmp_path):
        control_plane.admin.post("/api/v1/nodes", {"metadata": {"name": "one"}})
        commands = commands_of("docs/controller.md")
        told = run_commands(commands, namespaces=namespaces, home=tmp_path, plane=control_plane)
    assert 0 == told.returncode, told.stdout
    assert re.search(r"^one +0 ", told.stdout, re.MULTILINE)
    assert re.search(r"^clustersubnet\S*/pods", told.stdout, re.MULTILINE)
    assert 'podpool_controller_subnet_batch{subnet="pods"} 16.0' in told.stdout
    assert re.search(r"10\.50\.0\.\d+ .* one .* now", told.stdout)
    assert "forbidden" not in told.stdout.lower()

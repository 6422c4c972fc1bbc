"""The page about the page is true: its commands are run as they are written."""

from pathlib import Path

import pytest

from parts.control_plane import ControlPlane
from parts.namespaces import Namespaces
from parts.pages import commands_of, run_commands, within_reach

BEFORE = """podpool ledger serve &
curl -s --retry 60 --retry-connrefused --retry-delay 1 http://127.0.0.1:7785/readyz
podpool ledger subnet create vnet.pods 10.50.0.0/24 --gateway 10.50.0.1
podpool ledger token create my-cluster > cluster-token
podpool controller install-crds
"""
"""What the page takes for granted."""


@pytest.mark.real
@pytest.mark.xdist_group("installation")
def test_the_commands_of_the_page_work(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    with within_reach(control_plane, namespaces, tmp_path):
        control_plane.admin.post("/api/v1/nodes", {"metadata": {"name": "one"}})
        commands = BEFORE + commands_of("docs/dashboard.md")
        message = run_commands(commands, namespaces=namespaces, home=tmp_path, plane=control_plane)
    assert 0 == message.returncode, message.stdout
    assert '"kind":"node","name":"one"' in message.stdout

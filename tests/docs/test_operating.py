"""The commands in docs/operating.md are run as they are written, and its sizes are computed by core."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from parts.pages import ROOT, commands_of, register, run_commands, within_reach
from podpool.core.batch_ladder import Load, batch_ladder
from podpool.core.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces

PAGE = "docs/operating.md"
SETUP = """
podpool controller install-crds
podpool ledger serve &
curl -s --retry 60 --retry-connrefused --retry-delay 1 http://127.0.0.1:7785/readyz
podpool ledger subnet create vnet.pods 10.50.0.0/24 --gateway 10.50.0.1
podpool ledger token create my-cluster > cluster-token
podpool ledger token create old-cluster > old-token
podpool controller run --subnet vnet.pods --ledger-token-file cluster-token &
podpool agent run --node one --boot-id boot-of-one &
curl -sf --retry 60 --retry-all-errors --retry-delay 1 http://127.0.0.1:7784/readyz
old="Authorization: Bearer $(cat old-token)"
term=$(curl -sf -H "$old" http://127.0.0.1:7780/v1/terms -d '{"cluster": "1b4e"}' | grep -o '[0-9]*' | head -1)
curl -sf -H "$old" http://127.0.0.1:7780/v1/reconcile -d '{"cluster": "1b4e", "term": '$term', "number": 1, "items": [
  {"subnet": {"network": "vnet", "name": "pods"}, "node": "old", "node_uid": "7a", "wanted": 15}]}'
"""
"""A cluster with a node, and a destroyed cluster that still holds 16 addresses."""


@pytest.mark.real
@pytest.mark.xdist_group("installation")
def test_the_commands_of_the_page_work(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    """In their own network namespace, with default ports and paths."""
    with within_reach(control_plane, namespaces, tmp_path):
        register(control_plane, "one", boot_id="boot-of-one")
        commands = SETUP + commands_of(PAGE)
        result = run_commands(commands, namespaces=namespaces, home=tmp_path, plane=control_plane)
    assert 0 == result.returncode, result.stdout
    assert "the database is consistent: 1 subnets, 2 network containers" in result.stdout
    assert "restored revision" in result.stdout
    assert "vnet.pods: inventory awaited of cluster 1b4e" in result.stdout
    assert "\nno recovery in progress\n" in result.stdout
    assert "vnet.pods: 10.50.0.0/24, 10.50.1.0/26 with" in result.stdout
    assert "podpool_agent_fenced 0.0" in result.stdout
    assert "1 network containers closed, 16 addresses cooling down, 1 tokens revoked" in result.stdout


def test_the_table_of_sizes_is_what_core_computes() -> None:
    rows = re.findall(r"^\| (\d+) \| ([\d |]+) \|$", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert rows
    for pods, held in rows:
        assert [Load(int(pods)).reservation(scaler) for scaler in batch_ladder(Settings().scaler)] == [
            int(each) for each in held.split(" | ")
        ]

"""The commands on a real API server: as a kubectl plugin, with a ledger, a controller and agents as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parts.installation import ADMIN_TOKEN
from parts.pages import clear
from parts.polling import until
from parts.recipes import program
from tests.end_to_end.test_one_pod import Spine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]


@pytest.fixture
def spine(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Spine]:
    """A ledger, a controller, and the agents of two nodes."""
    clear(control_plane)
    made = Spine(control_plane, tmp_path)
    try:
        made.install()
        for node in ("one", "two"):
            made.run_agent(node)
        yield made
    finally:
        made.stop()


def run(spine: Spine, *words: str) -> tuple[int, str]:
    """Run `kubectl podpool ...` as an administrator."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(spine.plane.kubeconfig),
        "PODPOOL_LEDGER": spine.url,
        "PODPOOL_LEDGER_TOKEN_FILE": str(spine.home / ADMIN_TOKEN),
    }
    done = subprocess.run(
        [program("kubectl"), "podpool", *words],
        check=False,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def show(spine: Spine, pod: str, address: str) -> None:
    """Have a kubelet show a Pod's address."""
    status: dict[str, Any] = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    spine.plane.admin.patch(f"/api/v1/namespaces/default/pods/{pod}/status", {"status": status})


def test_a_pods_address_from_its_first_to_a_wrong_one(spine: Spine) -> None:
    until(lambda: 15 == len(spine.grants("one")) == len(spine.grants("two")), "both nodes have their first batch")
    spine.bind("first", "one")
    code, output = run(spine, "why", "first")
    assert 1 == code, output
    assert "Node one has 15 addresses free" in output
    address = str(spine.plugin("ADD", "one", "first")["ips"][0]["address"]).partition("/")[0]
    show(spine, "first", address)

    code, output = run(spine, "status")
    assert 0 == code, output
    assert output.startswith("Every Pod has an address.")
    code, output = run(spine, "who", address)
    assert f"{address} belongs to Pod default/first on node one." == output.splitlines()[0]
    code, output = run(spine, "audit")
    assert (0, "No violations in 2 nodes, 30 grants, 1 Pod,") == (code, output[:43]), output

    wrong = spine.grants("two")[0]
    show(spine, "first", wrong)
    code, output = run(spine, "audit", "--settle", "1s", "-o", "json")
    found = json.loads(output)["findings"]
    assert (1, [("pod-outside-grants", "pod/default/first")]) == (
        code,
        [(each["code"], each["subject"]) for each in found],
    )

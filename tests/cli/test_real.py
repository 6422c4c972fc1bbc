"""The commands on a real API server: as a kubectl plugin, with a ledger, a controller and agents as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
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


def test_the_commands_around_an_installation(spine: Spine, tmp_path: Path) -> None:
    """Access reviews, the Date header, and logs that no kubelet serves: as a real API server answers."""
    until(lambda: 15 == len(spine.grants("one")) == len(spine.grants("two")), "both nodes have their first batch")
    code, output = run(spine, "status", "--wait=1m")
    assert 0 == code, output
    code, output = run(spine, "preflight", "-o", "json")
    found = json.loads(output)["findings"]
    assert [] == [each for each in found if each["severity"] in {"error", "unknown"}]
    assert {"clock", "permissions", "crds", "subnet", "overlaps"} <= {each["check"] for each in found}
    assert 0 == code

    labels = {"app.kubernetes.io/part-of": "podpool", "app.kubernetes.io/component": "agent"}
    container = {"name": "agent", "image": "none", "env": [{"name": "PASSWORD", "value": "hunter2hunter2"}]}
    spec = {"containers": [container], "automountServiceAccountToken": False, "nodeName": "one"}
    pod = {"metadata": {"name": "podpool-agent-x", "labels": labels}, "spec": spec}
    spine.plane.accounts.token("default", namespace="kube-system")
    spine.plane.admin.post("/api/v1/namespaces/kube-system/pods", pod)
    file = tmp_path / "bundle.tar.gz"
    code, output = run(spine, "support-bundle", "-f", str(file), "-o", "json")
    assert 0 == code, output
    with tarfile.open(file) as tar:
        files = {each.name.partition("/")[2]: tar.extractfile(each) for each in tar.getmembers()}
        contents = {name: content.read() for name, content in files.items() if content}
    assert {"one", "two"} == {
        each["metadata"]["name"] for each in json.loads(contents["objects/nodenetworkconfigs.json"])["items"]
    }
    assert b"podpool-agent-x" in contents["objects/pods.json"]
    assert "ledger/subnets/vnet.pods.json" in contents
    assert not [name for name, content in contents.items() if b"hunter2hunter2" in content]
    entries = {each["path"]: each.get("error", "") for each in json.loads(contents["manifest.json"])["entries"]}
    assert entries["logs/podpool-agent-x/agent.log"]

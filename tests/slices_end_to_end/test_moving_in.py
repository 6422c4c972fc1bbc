"""From Whereabouts to podpool and back, with node slices: the real plugin and controller before, ours, theirs again.

No Pod that runs loses its address, and nobody else gets it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from parts.api import ApiError
from parts.installation import PODPOOL, Installation, podpool
from parts.pages import clear
from parts.polling import until
from parts.recipes import program
from parts.whereabouts import NAMESPACE, spawned
from podpool.api.crds import multus_crd_manifest
from tests.slices_end_to_end.sharing import Sharing, outcomes, report_boot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

NODE, NETWORK, RANGE = "mover", "fast", "10.62.0.0/16"
ATTACHMENTS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
SLICE_POOLS = f"/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{NAMESPACE}/nodeslicepools"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PODS = "/api/v1/namespaces/default/pods"


class Move:
    """One node, first with Whereabouts, then with podpool, then with Whereabouts again."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self.admin = plane.admin
        self.sharing = Sharing(plane, home)
        self.config = self.sharing.theirs.config(RANGE, network_name=NETWORK, node_slice_size="/24")
        self.slice_controller = self.sharing.theirs.slice_controller(log=home / "nodeslicecontroller.log")
        self.installation = Installation(plane, home, subnet="none.none", cidr="", gateway="", settings="")
        self.plugins = home / "bin"
        self._plane = plane

    def begin(self) -> None:
        """A cluster with a definition, whose nodes Whereabouts' controller gave slices to."""
        clear(self._plane)
        self.plugins.mkdir()
        shutil.copy(program("whereabouts"), self.plugins)
        podpool("controller", "install-crds", "--kubeconfig", str(self._plane.kubeconfig))
        self._plane.kubectl("apply", "-f", "-", manifest=multus_crd_manifest())
        self._plane.kubectl("apply", "-f", "-", manifest=podpool("rbac", "--shared-ranges"))
        self._plane.accounts.token("podpool-agent", namespace=NAMESPACE, node=NODE)
        report_boot(self.admin, NODE)
        until(lambda: self.there(ATTACHMENTS), "definitions are known")
        kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
        self.admin.post(ATTACHMENTS, {**kind, "metadata": {"name": NETWORK}, "spec": {"config": self.config.decode()}})
        self.slice_controller.start()
        until(lambda: self.there(f"{SLICE_POOLS}/{NETWORK}") and self.slice(), "Whereabouts gave the node a slice")

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.slice_controller.settle()
        self.slice_controller.kill()
        self.installation.stop()
        self.sharing.end()
        for path in (ATTACHMENTS, SLICE_POOLS, LEASES, PODS):
            if self.there(path):
                self.admin.call("DELETE", f"{path}?gracePeriodSeconds=0")
        self.admin.delete(f"/api/v1/nodes/{NODE}")

    def there(self, path: str) -> bool:
        try:
            self.admin.get(path)
        except ApiError:
            return False
        return True

    def slice(self) -> str:
        """The node's slice, as the NodeSlicePool has it."""
        allocations = self.admin.get(f"{SLICE_POOLS}/{NETWORK}")["status"]["allocations"]
        return next((each["sliceRange"] for each in allocations if each["nodeName"] == NODE), "")

    def call(self, command: str, *pods: str) -> dict[str, str]:
        """Start the plugin that is installed, and for Pods that got an address make the Pod that runs."""
        plugin = self.plugins / "whereabouts"
        environment = {"NODENAME": NODE, "PODPOOL_SOCKET": str(self.sharing.door(NODE))}
        given = outcomes({pod: spawned(plugin, command, pod, self.config, environment) for pod in pods})
        for pod, address in given.items() if command == "ADD" else ():
            shown = [{"name": f"{NAMESPACE}/{NETWORK}", "interface": "net1", "ips": [address]}]
            notes = {"k8s.v1.cni.cncf.io/network-status": json.dumps(shown)}
            spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "none"}]}
            self.admin.post(PODS, {"metadata": {"name": pod, "annotations": notes}, "spec": spec})
            self.admin.patch(f"{PODS}/{pod}/status", {"status": {"phase": "Running"}})
        return given

    def entries(self) -> dict[str, str]:
        """Which Pod has which address of the slice, by its IPPool."""
        slice_ = self.slice()
        found = self.sharing.theirs.entries(f"{NETWORK}-{NODE}-{slice_.replace('/', '-')}")
        start = slice_.rpartition(".")[0]
        return {each["podref"].partition("/")[2]: f"{start}.{key}" for key, each in found.items()}

    def adopt(self, *words: str) -> dict[str, Any]:
        """What `podpool adopt whereabouts` says to programs."""
        typed = [
            str(PODPOOL),
            "adopt",
            "whereabouts",
            "-o",
            "json",
            "--kubeconfig",
            str(self._plane.kubeconfig),
            *words,
        ]
        done = subprocess.run(typed, check=True, stdout=subprocess.PIPE, text=True)
        return dict(json.loads(done.stdout))

    def podpool(self) -> None:
        """Start our controller and the node's agent."""
        port = self.installation.controller_port
        rights = self.installation.account("podpool-controller")
        words = ["controller", "run", "--kubeconfig", rights, "--ledger", "none", "--listen", f"127.0.0.1:{port}"]
        self.installation.start("controller", words, port=port)
        door = ("--socket", str(self.sharing.door(NODE)))
        self.installation.start_agent(NODE, "--boot-id", f"boot-of-{NODE}", *door)


@pytest.fixture
def move(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Move]:
    """A cluster that Whereabouts is in."""
    made = Move(control_plane, tmp_path)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def test_running_pods_keep_their_addresses_on_the_way_in_and_on_the_way_back(move: Move) -> None:
    running = move.call("ADD", "before-1", "before-2")
    slice_ = move.slice()
    found = move.adopt()
    assert ([], []) == (found["findings"], found["steps"])
    move.slice_controller.kill()
    move.podpool()
    podpool("cni", "install", "--bin-dir", str(move.plugins), "--name", "podpool,whereabouts")
    running |= move.call("ADD", "ours-1", "ours-2")
    assert 4 == len(set(running.values()))
    assert slice_ == move.slice()
    move.call("DEL", "before-1")
    del running["before-1"]
    until(lambda: running == move.entries(), "the IPPool shows who has what")
    move.admin.delete(f"{PODS}/before-1?gracePeriodSeconds=0")
    podpool("cni", "uninstall", "--bin-dir", str(move.plugins), "--name", "podpool,whereabouts", "--conf-dir", "")
    move.installation.stop()
    back = move.adopt("--revert", "--apply")
    assert ["kept for default/before-1, which has no entry"] == [
        each["told"] for each in back["findings"]
    ]  # swept later
    assert all(each["done"] for each in back["steps"])
    running |= move.call("ADD", "after-1", "after-2")
    assert 5 == len(set(running.values()))
    assert running == move.entries()
    move.call("DEL", *running)
    assert {} == move.entries()

"""Migration from Whereabouts to podpool and back with node slices, with the real plugin and controller of both.

No running Pod loses its address, and no other Pod gets it.
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
from tests.slices_end_to_end.shared_range_installation import SharedRangeInstallation, outcomes, report_boot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]

NODE, NETWORK, RANGE = "mover", "fast", "10.62.0.0/16"
NADS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
SLICE_POOLS = f"/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{NAMESPACE}/nodeslicepools"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PODS = "/api/v1/namespaces/default/pods"


class MigrationCluster:
    """One node, with Whereabouts, then with podpool, then with Whereabouts again."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self.admin = plane.admin
        self.shared_ranges = SharedRangeInstallation(plane, home)
        self.config = self.shared_ranges.whereabouts.config(RANGE, network_name=NETWORK, node_slice_size="/24")
        self.slice_controller = self.shared_ranges.whereabouts.slice_controller(log=home / "nodeslicecontroller.log")
        self.installation = Installation(plane, home, subnet="none.none", cidr="", gateway="", settings="")
        self.plugins = home / "bin"
        self._plane = plane

    def begin(self) -> None:
        """Create a cluster with a NAD, in which Whereabouts' controller has assigned slices."""
        clear(self._plane)
        self.plugins.mkdir()
        shutil.copy(program("whereabouts"), self.plugins)
        podpool("controller", "install-crds", "--kubeconfig", str(self._plane.kubeconfig))
        self._plane.kubectl("apply", "-f", "-", manifest=multus_crd_manifest())
        self._plane.kubectl("apply", "-f", "-", manifest=podpool("rbac", "--shared-ranges"))
        self._plane.accounts.token("podpool-agent", namespace=NAMESPACE, node=NODE)
        report_boot(self.admin, NODE)
        until(lambda: self.exists(NADS), "NADs are served")
        kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
        self.admin.post(NADS, {**kind, "metadata": {"name": NETWORK}, "spec": {"config": self.config.decode()}})
        self.slice_controller.start()
        until(
            lambda: self.exists(f"{SLICE_POOLS}/{NETWORK}") and self.slice(), "Whereabouts assigned a slice to the node"
        )

    def end(self) -> None:
        """Delete everything."""
        self.slice_controller.settle()
        self.slice_controller.kill()
        self.installation.stop()
        self.shared_ranges.end()
        for path in (NADS, SLICE_POOLS, LEASES, PODS):
            if self.exists(path):
                self.admin.call("DELETE", f"{path}?gracePeriodSeconds=0")
        clear(self._plane)

    def exists(self, path: str) -> bool:
        try:
            self.admin.get(path)
        except ApiError:
            return False
        return True

    def slice(self) -> str:
        """Return the node's slice in the NodeSlicePool."""
        allocations = self.admin.get(f"{SLICE_POOLS}/{NETWORK}")["status"]["allocations"]
        return next((each["sliceRange"] for each in allocations if each["nodeName"] == NODE), "")

    def call(self, command: str, *pods: str) -> dict[str, str]:
        """Run the installed plugin, and create a running Pod for each that got an address."""
        plugin = self.plugins / "whereabouts"
        environment = {"NODENAME": NODE, "PODPOOL_SOCKET": str(self.shared_ranges.socket_path(NODE))}
        addresses = outcomes({pod: spawned(plugin, command, pod, self.config, environment) for pod in pods})
        for pod, address in addresses.items() if command == "ADD" else ():
            statuses = [{"name": f"{NAMESPACE}/{NETWORK}", "interface": "net1", "ips": [address]}]
            notes = {"k8s.v1.cni.cncf.io/network-status": json.dumps(statuses)}
            spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "none"}]}
            self.admin.post(PODS, {"metadata": {"name": pod, "annotations": notes}, "spec": spec})
            self.admin.patch(f"{PODS}/{pod}/status", {"status": {"phase": "Running"}})
        return addresses

    def entries(self) -> dict[str, str]:
        """Return the addresses in the IPPool by Pod."""
        slice_ = self.slice()
        found = self.shared_ranges.whereabouts.entries(f"{NETWORK}-{NODE}-{slice_.replace('/', '-')}")
        start = slice_.rpartition(".")[0]
        return {each["podref"].partition("/")[2]: f"{start}.{key}" for key, each in found.items()}

    def adopt(self, *options: str) -> dict[str, Any]:
        """Return the JSON output of `podpool adopt whereabouts`."""
        command = [
            str(PODPOOL),
            "adopt",
            "whereabouts",
            "-o",
            "json",
            "--kubeconfig",
            str(self._plane.kubeconfig),
            *options,
        ]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return dict(json.loads(done.stdout))

    def podpool(self) -> None:
        """Start podpool's controller and the agent."""
        port = self.installation.controller_port
        kubeconfig = self.installation.account("podpool-controller")
        command = ["controller", "run", "--kubeconfig", kubeconfig, "--ledger", "none", "--listen", f"127.0.0.1:{port}"]
        self.installation.start("controller", command, port=port)
        socket = ("--socket", str(self.shared_ranges.socket_path(NODE)))
        self.installation.start_agent(NODE, "--boot-id", f"boot-of-{NODE}", *socket)


@pytest.fixture
def move(control_plane: ControlPlane, tmp_path: Path) -> Iterator[MigrationCluster]:
    """A cluster with Whereabouts."""
    made = MigrationCluster(control_plane, tmp_path)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def test_running_pods_keep_their_addresses_in_both_directions(move: MigrationCluster) -> None:
    running = move.call("ADD", "before-1", "before-2")
    slice_ = move.slice()
    found = move.adopt()
    assert ([], []) == (found["findings"], found["steps"])
    move.slice_controller.kill()
    move.podpool()
    podpool("cni", "install", "--bin-dir", str(move.plugins), "--name", "podpool,whereabouts")
    running |= move.call("ADD", "during-1", "during-2")
    assert 4 == len(set(running.values()))
    assert slice_ == move.slice()
    move.call("DEL", "before-1")
    del running["before-1"]
    until(lambda: running == move.entries(), "the IPPool has all assignments")
    move.admin.delete(f"{PODS}/before-1?gracePeriodSeconds=0")
    podpool("cni", "uninstall", "--bin-dir", str(move.plugins), "--name", "podpool,whereabouts", "--conf-dir", "")
    move.installation.stop()
    back = move.adopt("--revert", "--apply")
    assert ["reserved for default/before-1, which has no entry"] == [
        each["message"] for each in back["findings"]
    ]  # orphan GC deletes it later
    assert all(each["done"] for each in back["steps"])
    running |= move.call("ADD", "after-1", "after-2")
    assert 5 == len(set(running.values()))
    assert running == move.entries()
    move.call("DEL", *running)
    assert {} == move.entries()

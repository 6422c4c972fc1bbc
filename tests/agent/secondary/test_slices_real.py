"""Slices with a real kube-apiserver and podpool's admission policies, an agent process and plugin processes."""

from __future__ import annotations

import json
import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from parts.installation import Installation, podpool
from parts.polling import until
from podpool.cni.build import build
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.object_names import PoolIdentifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]

NODE, BOOT = "sliced-node", "boot-of-sliced-node"
NETWORKS = [f"net{number}" for number in range(10)]
PODS = [f"pod-{number}" for number in range(6)]
POOLS = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools"
NODE_SLICES = f"/apis/podpool.io/v1alpha1/nodeslices/{NODE}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
SETTINGS = "cooldown=1s,cooldown_exhausted=500ms"


class Sliced(Installation):
    """A cluster with slices only: no ledger, no NodeNetworkConfig; the test acts as the slice controller."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        super().__init__(plane, home, subnet="", cidr="", gateway="", settings=SETTINGS)
        self.shim = build(platform.machine())

    def install(self) -> None:
        podpool("controller", "install-crds", "--kubeconfig", str(self.plane.kubeconfig))
        self.plane.kubectl("apply", "-f", "-", manifest=podpool("rbac"))
        self.plane.admin.post("/api/v1/nodes", {"metadata": {"name": NODE}})
        fields = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"]
        info = dict.fromkeys([*fields, "machineID", "operatingSystem", "osImage", "systemUUID"], "none")
        self.plane.admin.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"nodeInfo": {"bootID": BOOT, **info}}})
        uid = self.plane.admin.get(f"/api/v1/nodes/{NODE}")["metadata"]["uid"]
        slice_ = {"range": "10.2.0.0/16", "slice": "10.2.4.0/28"}
        assignments = [{"id": f"id-of-{network}", "network": network, **slice_} for network in NETWORKS]
        self.plane.admin.post(
            NODE_SLICES.rpartition("/")[0],
            {
                "apiVersion": "podpool.io/v1alpha1",
                "kind": "NodeSlices",
                "metadata": {"name": NODE},
                "spec": {"nodeUID": uid, "assignments": assignments},
            },
        )

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the status by network."""
        return {each["network"]: each for each in self.slices().get("status", {}).get("slices", [])}

    def slices(self) -> dict[str, Any]:
        found: dict[str, Any] = self.plane.admin.get(NODE_SLICES)
        return found

    def confirm(self) -> None:
        """Confirm the agent's acknowledgements when they are there."""
        until(lambda: NETWORKS == sorted(self.status()), "all slices are acknowledged")
        status = self.status()
        self.change(lambda each: {"confirmed": status[each["network"]]["acknowledgement"]})

    def change(self, fields: Callable[[dict[str, Any]], dict[str, str]]) -> None:
        """Change every assignment."""
        assignments = [{**each, **fields(each)} for each in self.slices()["spec"]["assignments"]]
        self.plane.admin.patch(NODE_SLICES, {"spec": {"assignments": assignments}})

    def run(self) -> None:
        words = [
            "--boot-id",
            BOOT,
            "--socket",
            str(self.home / "agent.sock"),
            "--deferred-deletes",
            str(self.home / "deletes"),
        ]
        self.agents[NODE] = self.start_agent(NODE, *words)

    def plugin(self, command: str, pod: str, network: str) -> list[str]:
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"sandbox-{pod}",
            "CNI_NETNS": f"/run/netns/{pod}",
            "CNI_IFNAME": network,
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}",
            "PODPOOL_SOCKET": str(self.home / "agent.sock"),
            "PODPOOL_DEFERRED_DELETES": str(self.home / "deletes"),
            "PODPOOL_WAIT_MS": "60000",
        }
        kind = "whereabouts" if network < "net5" else "podpool"
        ipam = {"type": kind, "range": "10.2.0.0/16", "node_slice_size": "/28", "network_name": network}
        stdin = json.dumps({"cniVersion": "1.0.0", "name": network, "type": "macvlan", "ipam": ipam}).encode()
        done = subprocess.run([self.shim], check=False, env=environment, input=stdin, stdout=subprocess.PIPE)
        assert 0 == done.returncode, done.stdout
        return [each["address"] for each in json.loads(done.stdout or b"{}").get("ips", [])]

    def everywhere(self, command: str) -> dict[tuple[str, str], list[str]]:
        """Run the plugin for every Pod and network concurrently."""
        calls = [(pod, network) for pod in PODS for network in NETWORKS]
        with ThreadPoolExecutor(max_workers=16) as executor:
            return dict(zip(calls, executor.map(lambda each: self.plugin(command, *each), calls), strict=True))

    def pool_entries(self) -> dict[str, dict[str, str]]:
        """Return the Pods by network and address."""
        pools = {each["metadata"]["name"]: each["spec"] for each in self.plane.admin.get(POOLS)["items"]}
        return {
            network: {f"10.2.4.{key}/16": each["podref"] for key, each in pools[name]["allocations"].items()}
            for network in NETWORKS
            if (name := name_of(network)) in pools
        }

    def leases(self) -> list[str]:
        """Return the networks with a Lease."""
        held = {each["metadata"]["name"] for each in self.plane.admin.get(LEASES)["items"]}
        return [network for network in NETWORKS if name_of(network) in held]


def name_of(network: str) -> str:
    return PoolIdentifier(range=parse_prefix("10.2.4.0/28"), network=network, node=NODE).name


@pytest.fixture
def sliced(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Sliced]:
    """One node with slices of ten networks, and its agent."""
    made = Sliced(control_plane, tmp_path)
    try:
        made.install()
        made.run()
        made.confirm()
        yield made
    finally:
        made.stop()
        control_plane.admin.delete(f"/api/v1/nodes/{NODE}")
        control_plane.admin.delete(NODE_SLICES)


def test_slices_of_ten_networks_are_used_and_returned(sliced: Sliced) -> None:
    """Concurrent ADDs, a killed agent, DELs, returns: every address is correct, none is used twice, none is left."""
    mark = sliced.plane.audit.mark()
    addresses = sliced.everywhere("ADD")
    expected = {
        network: {addresses[pod, network][0]: f"default/{pod}" for pod in PODS}  # duplicates would reduce the count
        for network in NETWORKS
    }
    assert {len(PODS)} == {len(each) for each in expected.values()}
    until(lambda: expected == sliced.pool_entries(), "the IPPools have all assignments")
    until(lambda: NETWORKS == sliced.leases(), "the Leases exist")

    sliced.agents[NODE].kill()
    sliced.run()
    assert addresses == sliced.everywhere("ADD")

    sliced.everywhere("DEL")
    until(lambda: not any(sliced.pool_entries().values()), "the IPPools are empty")
    sliced.change(lambda _: {"returnReason": "the test is over"})
    until(lambda: all(each.get("returned") for each in sliced.status().values()), "the slices are returned")
    until(lambda: not (sliced.pool_entries() or sliced.leases()), "IPPools and Leases are deleted")
    calls = [each for each in sliced.plane.audit.calls(since=mark) if each.user.endswith(":podpool-agent")]
    assert calls
    assert [] == [each for each in calls if each.status in (401, 403, 422)]

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
from podpool.api.whereabouts import (
    ACKNOWLEDGED_ANNOTATION,
    CONFIRMED_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
)
from podpool.cni.build import build
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION
from podpool.whereabouts.object_names import PoolIdentifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]

NODE, BOOT = "sliced-node", "boot-of-sliced-node"
NETWORKS = [f"net{number}" for number in range(10)]
PODS = [f"pod-{number}" for number in range(6)]
POOLS = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools"
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
        for network in NETWORKS:
            self.assign_slice(network)

    def assign_slice(self, network: str) -> None:
        uid = self.plane.admin.get(f"/api/v1/nodes/{NODE}")["metadata"]["uid"]
        annotations = {NODE_ANNOTATION: NODE, NETWORK_ANNOTATION: network, RANGE_ANNOTATION: "10.2.0.0/16"}
        meta = {"name": name_of(network), "labels": {NODE_UID_LABEL: uid}, "annotations": annotations}
        pool = {"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool", "metadata": meta}
        self.plane.admin.post(POOLS, {**pool, "spec": {"range": "10.2.4.0/28", "allocations": {}}})
        self.plane.admin.post(LEASES, {"metadata": meta, "spec": {}})

    def confirm(self, network: str) -> None:
        """Confirm the agent's acknowledgement when it is there."""
        path = f"{LEASES}/{name_of(network)}"

        def acknowledgement() -> str:
            return str(self.plane.admin.get(path)["metadata"]["annotations"].get(ACKNOWLEDGED_ANNOTATION, ""))

        until(acknowledgement, f"the Lease of {network} is acknowledged")
        self.plane.admin.patch(path, {"metadata": {"annotations": {CONFIRMED_ANNOTATION: acknowledgement()}}})

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

    def pool_entries(self, network: str) -> dict[str, str]:
        """Return the Pods of an IPPool by address."""
        entries = self.plane.admin.get(f"{POOLS}/{name_of(network)}")["spec"]["allocations"]
        return {f"10.2.4.{key}/16": each["podref"] for key, each in entries.items()}

    def holder(self, network: str) -> str:
        lease: dict[str, Any] = self.plane.admin.get(f"{LEASES}/{name_of(network)}")
        return str(lease["spec"].get("holderIdentity", ""))


def name_of(network: str) -> str:
    return PoolIdentifier(range=parse_prefix("10.2.4.0/28"), network=network, node=NODE).name


@pytest.fixture
def sliced(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Sliced]:
    """One node with slices of ten networks, and its agent."""
    made = Sliced(control_plane, tmp_path)
    try:
        made.install()
        made.run()
        for network in NETWORKS:
            made.confirm(network)
        yield made
    finally:
        made.stop()
        control_plane.admin.delete(f"/api/v1/nodes/{NODE}")
        for network in NETWORKS:
            control_plane.admin.delete(f"{POOLS}/{name_of(network)}")
            control_plane.admin.delete(f"{LEASES}/{name_of(network)}")


def test_slices_of_ten_networks_are_used_and_returned(sliced: Sliced) -> None:
    """Concurrent ADDs, a killed agent, DELs, returns: every address is correct, none is used twice, none is left."""
    mark = sliced.plane.audit.mark()
    addresses = sliced.everywhere("ADD")
    expected = {
        network: {addresses[pod, network][0]: f"default/{pod}" for pod in PODS}  # duplicates would reduce the count
        for network in NETWORKS
    }
    assert {len(PODS)} == {len(each) for each in expected.values()}
    until(
        lambda: expected == {each: sliced.pool_entries(each) for each in NETWORKS}, "the IPPools have all assignments"
    )

    sliced.agents[NODE].kill()
    sliced.run()
    assert addresses == sliced.everywhere("ADD")

    sliced.everywhere("DEL")
    until(lambda: not any(map(sliced.pool_entries, NETWORKS)), "the IPPools are empty")
    assert all(sliced.holder(each).startswith(f"{NODE}/") for each in NETWORKS)
    for network in NETWORKS:
        patch = {"metadata": {"annotations": {RETURN_ANNOTATION: "the test is over"}}}
        sliced.plane.admin.patch(f"{POOLS}/{name_of(network)}", patch)
    until(lambda: not any(map(sliced.holder, NETWORKS)), "the slices are handed back")
    calls = [each for each in sliced.plane.audit.calls(since=mark) if each.user.endswith(":podpool-agent")]
    assert calls
    assert [] == [each for each in calls if each.status in (401, 403, 422)]

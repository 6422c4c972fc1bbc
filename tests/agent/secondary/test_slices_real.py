"""Slices with real parts: a kube-apiserver with our policies in force, the agent's process, and plugin processes."""

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
    CONFIRMED_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    ACKNOWLEDGED_ANNOTATION,
)
from podpool.cni.build import build
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION
from podpool.whereabouts.object_names import PoolIdentifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

NODE, BOOT = "sliced-node", "boot-of-sliced-node"
NETWORKS = [f"net{number}" for number in range(10)]
PODS = [f"pod-{number}" for number in range(6)]
POOLS = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
SETTINGS = "cooldown=1s,cooldown_exhausted=500ms"


class Sliced(Installation):
    """A cluster of slices alone: no ledger, no NodeNetworkConfig; the slice controller's part is done by hand."""

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
        notes = {NODE_ANNOTATION: NODE, NETWORK_ANNOTATION: network, RANGE_ANNOTATION: "10.2.0.0/16"}
        meta = {"name": name_of(network), "labels": {NODE_UID_LABEL: uid}, "annotations": notes}
        pool = {"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool", "metadata": meta}
        self.plane.admin.post(POOLS, {**pool, "spec": {"range": "10.2.4.0/28", "allocations": {}}})
        self.plane.admin.post(LEASES, {"metadata": meta, "spec": {}})

    def agree(self, network: str) -> None:
        """Agree to the agent's signature, once it is there."""
        place = f"{LEASES}/{name_of(network)}"

        def signature() -> str:
            return str(self.plane.admin.get(place)["metadata"]["annotations"].get(ACKNOWLEDGED_ANNOTATION, ""))

        until(signature, f"the Lease of {network} is signed")
        self.plane.admin.patch(place, {"metadata": {"annotations": {CONFIRMED_ANNOTATION: signature()}}})

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
        """Start the plugin for every Pod and network at once."""
        asked = [(pod, network) for pod in PODS for network in NETWORKS]
        with ThreadPoolExecutor(max_workers=16) as many:
            return dict(zip(asked, many.map(lambda each: self.plugin(command, *each), asked), strict=True))

    def pool_entries(self, network: str) -> dict[str, str]:
        """What an IPPool shows: Pods by address."""
        entries = self.plane.admin.get(f"{POOLS}/{name_of(network)}")["spec"]["allocations"]
        return {f"10.2.4.{key}/16": each["podref"] for key, each in entries.items()}

    def holder(self, network: str) -> str:
        lease: dict[str, Any] = self.plane.admin.get(f"{LEASES}/{name_of(network)}")
        return str(lease["spec"].get("holderIdentity", ""))


def name_of(network: str) -> str:
    return PoolIdentifier(range=parse_prefix("10.2.4.0/28"), network=network, node=NODE).name


@pytest.fixture
def sliced(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Sliced]:
    """Ten networks' slices for one node, and its agent."""
    made = Sliced(control_plane, tmp_path)
    try:
        made.install()
        made.run()
        for network in NETWORKS:
            made.agree(network)
        yield made
    finally:
        made.stop()
        control_plane.admin.delete(f"/api/v1/nodes/{NODE}")
        for network in NETWORKS:
            control_plane.admin.delete(f"{POOLS}/{name_of(network)}")
            control_plane.admin.delete(f"{LEASES}/{name_of(network)}")


def test_ten_networks_from_the_first_pod_to_the_last_slice_handed_back(sliced: Sliced) -> None:
    """All at once, killed in between, deleted, handed back: every address right, none twice, none left."""
    mark = sliced.plane.audit.mark()
    given = sliced.everywhere("ADD")
    right = {
        network: {given[pod, network][0]: f"default/{pod}" for pod in PODS}  # each its own, or there are too few
        for network in NETWORKS
    }
    assert {len(PODS)} == {len(each) for each in right.values()}
    until(lambda: right == {each: sliced.shown(each) for each in NETWORKS}, "the IPPools show all of it")

    sliced.agents[NODE].kill()
    sliced.run()
    assert given == sliced.everywhere("ADD")

    sliced.everywhere("DEL")
    until(lambda: not any(map(sliced.shown, NETWORKS)), "the IPPools are empty")
    assert all(sliced.holder(each).startswith(f"{NODE}/") for each in NETWORKS)
    for network in NETWORKS:
        leave = {"metadata": {"annotations": {RETURN_ANNOTATION: "the test is over"}}}
        sliced.plane.admin.patch(f"{POOLS}/{name_of(network)}", leave)
    until(lambda: not any(map(sliced.holder, NETWORKS)), "the slices are handed back")
    ours = [each for each in sliced.plane.audit.calls(since=mark) if each.user.endswith(":podpool-agent")]
    assert ours
    assert [] == [each for each in ours if each.status in (401, 403, 422)]

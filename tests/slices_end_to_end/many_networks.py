"""A cluster with 64 nodes and ten networks each on a real API server; eight agents share a process.

A node is a Node, an agent and a plugin process per call; its Pod is only a name.
"""

from __future__ import annotations

import json
import platform
import socket
import sys
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parts.daemon import Daemon
from parts.installation import Installation, podpool
from parts.pages import clear
from parts.polling import until
from parts.whereabouts import NAMESPACE, POOLS, answered, spawned
from podpool.agent.secondary.slices import Slices
from podpool.api.crds import multus_crd_manifest
from podpool.api.node_slices import NODE_SLICES
from podpool.api.whereabouts import NETWORK_ANNOTATION, NODE_UID_LABEL
from podpool.cni.build import build
from tests.cluster.consistency import replayed
from tests.slices_end_to_end.shared_range_installation import report_boot

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence

    from parts.control_plane import ControlPlane

NODES = [f"wide-{number:02}" for number in range(64)]
NETWORKS = [f"net{number}" for number in range(10)]
AGENTS_PER_PROCESS = 8
SETTINGS = "cooldown=1s,cooldown_exhausted=500ms"
NADS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
SLICE_POOLS = f"/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{NAMESPACE}/nodeslicepools"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OF_PODPOOL = f"?labelSelector={NODE_UID_LABEL}"
MULTI_AGENT = Path(__file__).with_name("multi_agent.py")
TIMEOUT, INTERVAL = 300.0, 0.5
ATTEMPTS, LATER = 5, 11

Place = tuple[str, str]
"""A node and a network."""
Owners = dict[tuple[str, str], str]
"""Pods and their interfaces, by network and address."""


class ManyNetworks(Installation):
    """The cluster."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        super().__init__(plane, home, subnet="none.none", cidr="", gateway="", settings=SETTINGS)
        self.agent_processes: list[Daemon] = []
        self._shim = build(platform.machine())

    def begin(self) -> None:
        """Register the nodes, create the NADs, and wait until each node holds its slices."""
        clear(self.plane)
        podpool("controller", "install-crds", "--kubeconfig", str(self.plane.kubeconfig))
        for manifest in (multus_crd_manifest(), podpool("rbac")):
            self.plane.kubectl("apply", "-f", "-", manifest=manifest)
        self.plane.kubectl("wait", "--for=condition=established", "--timeout=60s", "crd", "--all")
        for node in NODES:
            self.plane.admin.post("/api/v1/nodes", {"metadata": {"name": node}})
            report_boot(self.plane.admin, node)
        kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
        for network in NETWORKS:
            spec = {"config": config(network).decode()}
            self.plane.admin.post(NADS, {**kind, "metadata": {"name": network}, "spec": spec})
        words = ["controller", "run", "--kubeconfig", self.account("podpool-controller"), "--ledger", "none"]
        listen = ["--listen", f"127.0.0.1:{self.controller_port}", "--settings", SETTINGS]
        self.start("controller", [*words, *listen], port=self.controller_port)
        for first in range(0, len(NODES), AGENTS_PER_PROCESS):
            self.agent_processes.append(self._start_agents(NODES[first : first + AGENTS_PER_PROCESS]))
        slices = sum(len(ranges(network)) for network in NETWORKS) * len(NODES)
        until(lambda: slices == self._held_slices(), "every agent holds its slices", timeout=TIMEOUT, interval=INTERVAL)

    def end(self) -> None:
        """Delete everything."""
        self.stop()
        self.plane.admin.call("DELETE", LEASES + OF_PODPOOL)
        clear(self.plane)

    def call(self, command: str, *, killing: Sequence[Daemon] = ()) -> dict[Place, tuple[str, ...]]:
        """Run a plugin for every node and network concurrently; agents are killed when half of them are started.

        A plugin that returns code 11 is run again, as by runtimes. Returns the addresses of each.
        """
        places = [(node, network) for network in NETWORKS for node in NODES]
        half = len(places) // 2
        started = {each: self._start(command, *each) for each in places[:half]}
        for each in killing:
            each.kill()
        started |= {each: self._start(command, *each) for each in places[half:]}
        for each in killing:
            each.start()
        results = {each: answered(process) for each, process in started.items()}
        for _ in range(ATTEMPTS):
            again = {
                each: self._start(command, *each) for each, result in results.items() if result.get("code") == LATER
            }
            results |= {each: answered(process) for each, process in again.items()}
        failed = [f"{each}: {result}" for each, result in results.items() if result["exit"]]
        if failed:
            raise AssertionError(f"{len(failed)} {command}s failed, as {failed[0]}")
        return {each: tuple(ip["address"] for ip in result.get("ips", ())) for each, result in results.items()}

    def delete_nads(self) -> None:
        """Delete the NADs."""
        for network in NETWORKS:
            self.plane.admin.delete(f"{NADS}/{network}")

    # State

    def slices(self) -> dict[tuple[str, str, str], str]:
        """Return the slices by network, range and node."""
        return {
            (each["network"], each["range"], of["metadata"]["name"]): each["slice"]
            for of in self._items(NODE_SLICES.path())
            for each in of["spec"].get("assignments", ())
            if of["metadata"]["name"] in NODES
        }

    def listed(self) -> Owners:
        """Return the owners according to the IPPools."""
        return {
            (pool["metadata"]["annotations"][NETWORK_ANNOTATION], str(ip_network(pool["spec"]["range"])[int(key)])): (
                f"{entry['podref']} {entry['ifname']}"
            )
            for pool in self._pools()
            for key, entry in pool["spec"]["allocations"].items()
        }

    def journalled(self) -> Owners:
        """Return the owners according to the agents' journals."""
        return {
            (each.network, str(each.address(value))): f"{holder.podref} {holder.attachment.ifname}"
            for node in NODES
            for each in replayed(self.home / node, Slices())
            for value, holder in each.assigned.items()
        }

    def deferred_deletes(self) -> list[Path]:
        """Return the deferred DELs that no agent has processed yet."""
        return [each for node in NODES for each in (self.home / f"{node}.deletes").iterdir()]

    def left(self) -> list[str]:
        """Return the names of remaining objects of networks, and the remaining slices."""
        found = [*self._pools(), *self._items(LEASES + OF_PODPOOL), *self._items(SLICE_POOLS)]
        return [*(each["metadata"]["name"] for each in found), *self.slices().values()]

    def _pools(self) -> list[dict[str, Any]]:
        return self._items(POOLS + OF_PODPOOL)

    def _items(self, path: str) -> list[dict[str, Any]]:
        return list(self.plane.admin.get(path)["items"])

    def _held_slices(self) -> int:
        return sum(1 for node in NODES for _ in replayed(self.home / node, Slices()))

    def _start_agents(self, nodes: Sequence[str]) -> Daemon:
        pairs = [f"{node}={self.account('podpool-agent', node=node)}" for node in nodes]
        process = Daemon(
            [sys.executable, MULTI_AGENT, self.home, SETTINGS, *pairs],
            log=self.home / f"{nodes[0]}.log",
            ready=lambda: all(accepts_connections(self.home / f"{node}.sock") for node in nodes),
        )
        process.start()
        self.running.append(process)
        return process

    def _start(self, command: str, node: str, network: str) -> subprocess.Popen[bytes]:
        environment = {
            "CNI_IFNAME": network,
            "PODPOOL_SOCKET": str(self.home / f"{node}.sock"),
            "PODPOOL_DEFERRED_DELETES": str(self.home / f"{node}.deletes"),
            "PODPOOL_WAIT_MS": "60000" if command == "ADD" else "1",
        }
        return spawned(self._shim, command, pod_of(node), config(network), environment)


def ranges(network: str) -> dict[str, list[str]]:
    """Return the ranges of a network and the exclusions of each. The last two networks have IPv6, one only IPv6."""
    number = NETWORKS.index(network)
    v4, v6 = f"10.{64 + number}.0.0/20", f"fd00:{number}::/64"
    first = v4.removesuffix(".0/20")
    excluded = [f"{first}.0/26", f"{first}.64/29", f"{first}.104/29"]  # two slices, and parts of two others
    return {8: {v6: [f"fd00:{number}::/121"]}, 9: {v4: excluded, v6: []}}.get(number, {v4: excluded})


def config(network: str) -> bytes:
    """Return the CNI configuration of a network."""
    listed = [{"range": range_, "exclude": excluded} for range_, excluded in ranges(network).items()]
    size = "/27" if ":" not in listed[0]["range"] else "/123"
    kind = "whereabouts" if NETWORKS.index(network) % 2 else "podpool"
    ipam = {"type": kind, "ipRanges": listed, "node_slice_size": size, "network_name": network}
    return json.dumps({"cniVersion": "1.0.0", "name": network, "type": "macvlan", "ipam": ipam}).encode()


def owners_of(results: Mapping[Place, Sequence[str]]) -> Owners:
    """Return the owners according to the plugins; several owners of an address are joined."""
    found: Owners = {}
    for (node, network), interfaces in results.items():
        for each in interfaces:
            key, owner = (network, str(ip_interface(each).ip)), f"default/{pod_of(node)} {network}"
            found[key] = f"{found[key]}, {owner}" if key in found else owner
    return found


def address_errors(results: Mapping[Place, Sequence[str]], slices: Mapping[tuple[str, str, str], str]) -> Iterator[str]:
    """Return violations: one address per range, with its prefix length, of the node's slice, and not excluded."""
    for (node, network), interfaces in results.items():
        wanted = ranges(network)
        if len(wanted) != len(interfaces):
            yield f"{node} has {interfaces} of {network}"
        for interface, (range_, excluded) in zip(map(ip_interface, interfaces), wanted.items(), strict=False):
            slice_ = ip_network(slices[network, range_, node])
            if str(interface.network) != range_:
                yield f"{node} has {interface}, whose prefix length is not that of {range_}"
            if interface.ip not in slice_ or interface.ip in (slice_[0], slice_[-1]):
                yield f"{node} has {interface}, and its slice is {slice_}"
            if any(interface.ip in ip_network(each) for each in excluded):
                yield f"{node} has {interface}, which is excluded"


def pod_of(node: str) -> str:
    """Return the name of the Pod on a node."""
    return f"pod-of-{node}"


def accepts_connections(path: Path) -> bool:
    """Return whether an agent accepts connections on its socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0

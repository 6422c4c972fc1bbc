"""A wide cluster on a real API server: 64 nodes with ten networks each, our controller, and agents eight to a process.

A node is a Node, an agent and a plugin that is started for each call; its Pod is a name.
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
from podpool.api.whereabouts import NODE_ANNOTATION, NODE_UID_LABEL
from podpool.cni.build import build
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION
from tests.cluster.agreement import replayed
from tests.slices_end_to_end.sharing import report_boot

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence

    from parts.control_plane import ControlPlane

NODES = [f"wide-{number:02}" for number in range(64)]
NETWORKS = [f"net{number}" for number in range(10)]
TOGETHER = 8
SETTINGS = "cooldown=1s,cooldown_exhausted=500ms"
ATTACHMENTS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
SLICE_POOLS = f"/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{NAMESPACE}/nodeslicepools"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OURS = f"?labelSelector={NODE_UID_LABEL}"
CREW = Path(__file__).with_name("crew.py")
PATIENCE, LOOK = 300.0, 0.5
ATTEMPTS, LATER = 5, 11

Place = tuple[str, str]
"""A node and a network."""
Owners = dict[tuple[str, str], str]
"""Pods and their interfaces, by network and address."""


class Wide(Installation):
    """The cluster."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        super().__init__(plane, home, subnet="none.none", cidr="", gateway="", settings=SETTINGS)
        self.crews: list[Daemon] = []
        self._shim = build(platform.machine())

    def begin(self) -> None:
        """Register the nodes, define the networks, and wait until each node has its slices."""
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
            self.plane.admin.post(ATTACHMENTS, {**kind, "metadata": {"name": network}, "spec": spec})
        words = ["controller", "run", "--kubeconfig", self.account("podpool-controller"), "--ledger", "none"]
        listen = ["--listen", f"127.0.0.1:{self.controller_port}", "--settings", SETTINGS]
        self.start("controller", [*words, *listen], port=self.controller_port)
        for first in range(0, len(NODES), TOGETHER):
            self.crews.append(self._crew(NODES[first : first + TOGETHER]))
        slices = sum(len(ranges(network)) for network in NETWORKS) * len(NODES)
        until(lambda: slices == self._taken(), "every agent has its slices", patience=PATIENCE, between=LOOK)

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.stop()
        for path in (ATTACHMENTS, SLICE_POOLS, POOLS + OURS, LEASES + OURS):
            self.plane.admin.call("DELETE", path)
        for node in NODES:
            self.plane.admin.delete(f"/api/v1/nodes/{node}")

    def call(self, command: str, *, killing: Sequence[Daemon] = ()) -> dict[Place, tuple[str, ...]]:
        """Start a plugin for every node and network at once; agents are killed when half of them are started.

        Who is told to come back later does so, as with runtimes. Gives the addresses that each was told.
        """
        places = [(node, network) for network in NETWORKS for node in NODES]
        half = len(places) // 2
        started = {each: self._start(command, *each) for each in places[:half]}
        for each in killing:
            each.kill()
        started |= {each: self._start(command, *each) for each in places[half:]}
        for each in killing:
            each.start()
        said = {each: answered(process) for each, process in started.items()}
        for _ in range(ATTEMPTS):
            again = {each: self._start(command, *each) for each, told in said.items() if told.get("code") == LATER}
            said |= {each: answered(process) for each, process in again.items()}
        failed = [f"{each}: {told}" for each, told in said.items() if told["exit"]]
        if failed:
            raise AssertionError(f"{len(failed)} {command}s failed, as {failed[0]}")
        return {each: tuple(ip["address"] for ip in told.get("ips", ())) for each, told in said.items()}

    def undefine(self) -> None:
        """Delete the networks."""
        for network in NETWORKS:
            self.plane.admin.delete(f"{ATTACHMENTS}/{network}")

    # What is

    def slices(self) -> dict[tuple[str, str, str], str]:
        """The slice of each node, by network, range and node."""
        found = [(each["metadata"]["annotations"], each["spec"]["range"]) for each in self._pools()]
        return {
            (notes[NETWORK_ANNOTATION], notes[RANGE_ANNOTATION], notes[NODE_ANNOTATION]): range_
            for notes, range_ in found
            if notes[NODE_ANNOTATION] in NODES
        }

    def shown(self) -> Owners:
        """Who has what, by the IPPools."""
        return {
            (pool["metadata"]["annotations"][NETWORK_ANNOTATION], str(ip_network(pool["spec"]["range"])[int(key)])): (
                f"{entry['podref']} {entry['ifname']}"
            )
            for pool in self._pools()
            for key, entry in pool["spec"]["allocations"].items()
        }

    def journalled(self) -> Owners:
        """Who has what, by the agents' journals."""
        return {
            (each.network, str(each.address(value))): f"{tenant.podref} {tenant.owner.ifname}"
            for node in NODES
            for each in replayed(self.home / node, Slices())
            for value, tenant in each.held.items()
        }

    def left_for_later(self) -> list[Path]:
        """DELs that no agent has worked through yet."""
        return [each for node in NODES for each in (self.home / f"{node}.deletes").iterdir()]

    def left(self) -> list[str]:
        """What the controller made, and is still there."""
        found = [*self._pools(), *self._items(LEASES + OURS), *self._items(SLICE_POOLS)]
        return [each["metadata"]["name"] for each in found]

    def _pools(self) -> list[dict[str, Any]]:
        return self._items(POOLS + OURS)

    def _items(self, path: str) -> list[dict[str, Any]]:
        return list(self.plane.admin.get(path)["items"])

    def _taken(self) -> int:
        return sum(1 for node in NODES for _ in replayed(self.home / node, Slices()))

    def _crew(self, nodes: Sequence[str]) -> Daemon:
        pairs = [f"{node}={self.account('podpool-agent', node=node)}" for node in nodes]
        crew = Daemon(
            [sys.executable, CREW, self.home, SETTINGS, *pairs],
            log=self.home / f"{nodes[0]}.log",
            ready=lambda: all(opens(self.home / f"{node}.sock") for node in nodes),
        )
        crew.start()
        self.running.append(crew)
        return crew

    def _start(self, command: str, node: str, network: str) -> subprocess.Popen[bytes]:
        environment = {
            "CNI_IFNAME": network,
            "PODPOOL_SOCKET": str(self.home / f"{node}.sock"),
            "PODPOOL_DEFERRED_DELETES": str(self.home / f"{node}.deletes"),
            "PODPOOL_WAIT_MS": "60000" if command == "ADD" else "1",
        }
        return spawned(self._shim, command, pod_of(node), config(network), environment)


def ranges(network: str) -> dict[str, list[str]]:
    """The ranges of a network, and what is excluded of each; the last two networks have IPv6, one of them alone."""
    number = NETWORKS.index(network)
    v4, v6 = f"10.{64 + number}.0.0/20", f"fd00:{number}::/64"
    first = v4.removesuffix(".0/20")
    excluded = [f"{first}.0/26", f"{first}.64/29", f"{first}.104/29"]  # two slices, and parts of two others
    return {8: {v6: [f"fd00:{number}::/121"]}, 9: {v4: excluded, v6: []}}.get(number, {v4: excluded})


def config(network: str) -> bytes:
    """What Pods of a network are configured with."""
    listed = [{"range": range_, "exclude": excluded} for range_, excluded in ranges(network).items()]
    size = "/27" if ":" not in listed[0]["range"] else "/123"
    kind = "whereabouts" if NETWORKS.index(network) % 2 else "podpool"
    ipam = {"type": kind, "ipRanges": listed, "node_slice_size": size, "network_name": network}
    return json.dumps({"cniVersion": "1.0.0", "name": network, "type": "macvlan", "ipam": ipam}).encode()


def owners(given: Mapping[Place, Sequence[str]]) -> Owners:
    """Who has what, by what the plugins said; who shares an address with another is among several."""
    found: Owners = {}
    for (node, network), interfaces in given.items():
        for each in interfaces:
            where, who = (network, str(ip_interface(each).ip)), f"default/{pod_of(node)} {network}"
            found[where] = f"{found[where]}, {who}" if where in found else who
    return found


def faults(given: Mapping[Place, Sequence[str]], slices: Mapping[tuple[str, str, str], str]) -> Iterator[str]:
    """What is wrong with addresses: not one of each range, with its mask, of the node's own slice, and not excluded."""
    for (node, network), interfaces in given.items():
        wanted = ranges(network)
        if len(wanted) != len(interfaces):
            yield f"{node} has {interfaces} of {network}"
        for interface, (range_, excluded) in zip(map(ip_interface, interfaces), wanted.items(), strict=False):
            slice_ = ip_network(slices[network, range_, node])
            if str(interface.network) != range_:
                yield f"{node} has {interface}, whose mask is not that of {range_}"
            if interface.ip not in slice_ or interface.ip in (slice_[0], slice_[-1]):
                yield f"{node} has {interface}, and its slice is {slice_}"
            if any(interface.ip in ip_network(each) for each in excluded):
                yield f"{node} has {interface}, which is excluded"


def pod_of(node: str) -> str:
    """The Pod on a node."""
    return f"pod-of-{node}"


def opens(door: Path) -> bool:
    """Whether an agent answers at its door."""
    with socket.socket(socket.AF_UNIX) as knocking:
        return knocking.connect_ex(str(door)) == 0

"""What the API server shows of slices, and what the journals of machines hold: the checks compare both.

Nothing here asks an agent or a controller. A journal is read as an agent that starts now would read it.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

from podpool.agent.secondary.slices import Slices
from podpool.agent.state import read_agent_journal
from podpool.api.builtin import LEASES
from podpool.api.node_slices import NODE_SLICES, Assignment, NodeSlices, SliceStatus
from podpool.api.whereabouts import IP_POOLS
from podpool.lab.apiserver.registry import Object
from podpool.lab.sim.cluster import SimCluster, SimHost
from podpool.lab.sim.nads import AttachedNetwork

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class OwnedAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment with its owner: a Node, or a former one of the name."""

    node: str
    node_uid: str
    boot_id: str
    former: bool
    assignment: Assignment
    status: SliceStatus | None
    """What the agent's status shows of it; None for former Nodes."""

    @property
    def slice(self) -> IPNetwork:
        """The addresses."""
        return parse_network(self.assignment.slice)

    @property
    def is_confirmed(self) -> bool:
        """Whether the controller has confirmed the acknowledgement that the status shows."""
        shown = self.status.acknowledgement if self.status and not self.status.returned else ""
        return bool(shown) and shown == self.assignment.confirmed

    @property
    def is_kept(self) -> bool:
        """Whether the node need not return it."""
        return not self.assignment.return_reason

    def overlaps(self, other: "OwnedAssignment") -> bool:
        """Return whether both have addresses of one network in common."""
        return self.assignment.network == other.assignment.network and self.slice.overlaps(other.slice)


class JournalledSlice(msgspec.Struct, frozen=True):
    """A slice that a journal holds."""

    assignment: str
    network: str
    slice: IPNetwork


@lru_cache(maxsize=4096)
def parse_network(text: str) -> IPNetwork:
    """Return the network that a text names; checks ask for the same few again and again."""
    return ipaddress.ip_network(text)


def decode(obj: Object | None) -> NodeSlices:
    """Return a NodeSlices object as a struct; an empty one if there is none."""
    return msgspec.convert(obj, NodeSlices) if obj else NodeSlices()


def node_slices(cluster: SimCluster) -> dict[str, NodeSlices]:
    """Return the NodeSlices by node name."""
    found = cluster.store.objects(NODE_SLICES.group, NODE_SLICES.plural)
    return {name: decode(each) for name, each in found.items()}


def owned(name: str, of: NodeSlices) -> Iterator[OwnedAssignment]:
    """Return the assignments of a node and of former Nodes of its name."""
    spec, status = of.spec, of.status
    shown = {each.id: each for each in status.slices}
    boot = status.boot_id if status.node_uid in ("", spec.node_uid) else ""
    for each in spec.assignments:
        yield OwnedAssignment(
            node=name,
            node_uid=spec.node_uid,
            boot_id=boot,
            former=False,
            assignment=each,
            status=shown.get(each.id),
        )
    for former in spec.former:
        for each in former.assignments:
            yield OwnedAssignment(
                node=name,
                node_uid=former.node_uid,
                boot_id=former.boot_id,
                former=True,
                assignment=each,
                status=None,
            )


def all_owned(cluster: SimCluster) -> list[OwnedAssignment]:
    """Return the assignments of all nodes."""
    return [each for name, of in node_slices(cluster).items() for each in owned(name, of)]


def held_slices(host: SimHost) -> list[JournalledSlice]:
    """Return the slices in the journal of a machine that its agent may assign addresses of, or whose Pods have some."""
    slices = Slices()
    for record in read_agent_journal(host.machine.disk).records:
        slices.apply(record)
    return [
        JournalledSlice(each.assignment, each.network, parse_network(str(each.prefix)))
        for each in slices
        if not each.closed or each.assigned
    ]


def shared_entries(cluster: SimCluster, network: AttachedNetwork) -> dict[str, str]:
    """Return the Pods by address in the shared IPPool of a network."""
    pool = ippools(cluster).get(f"kube-system/{network.shared_pool}")
    base = parse_network(network.range)[0]
    return {str(base + int(key)): each["podref"] for key, each in pool["spec"]["allocations"].items()} if pool else {}


def ippools(cluster: SimCluster) -> Mapping[str, Object]:
    """Return the IPPools by key."""
    return cluster.store.objects(IP_POOLS.group, IP_POOLS.plural)


def leases(cluster: SimCluster) -> Mapping[str, Object]:
    """Return the Leases by key."""
    return cluster.store.objects(LEASES.group, LEASES.plural)


def annotations(obj: Object) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return obj["metadata"].get("annotations") or {}

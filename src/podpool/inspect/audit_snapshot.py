"""Inputs of an audit, read once from the cluster and its ledger.

The order matters: IPPool entries are read before the Pods that they name, Pods before the grants that they use, and
those before the ledger. What a later list lacks may have been deleted meanwhile: a second snapshot decides.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS, ClusterSubnet, NetworkContainer, NodeNetworkConfig
from podpool.api.builtin import ADDRESSED_PODS, FINISHED, NAMESPACES, NODES, AddressedPod, Node
from podpool.api.multus import NETWORK_ATTACHMENTS, NetworkAttachmentDefinition
from podpool.api.node_slices import NODE_SLICES, NodeSlices
from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS, NODE_SLICE_POOLS, IPPool, NodeSlicePool
from podpool.api.whereabouts import OverlappingRangeIPReservation as Reservation
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.inspect.status import error_text, list_objects
from podpool.inspect.view_models import subnet_key
from podpool.kube.client import KubeClient
from podpool.ledger.admin_messages import Occupancy
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import NetworkContainerRecord, SubnetState
from podpool.whereabouts.nad import ParsedNad, parse_nad
from podpool.whereabouts.orphan_gc import GcSnapshot, ObservedPod


class LedgerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger holds."""

    ncs: tuple[NetworkContainerRecord, ...] = ()
    """Of this cluster."""
    subnets: Mapping[str, SubnetState] = {}
    """By network and name."""
    occupancies: Mapping[str, Occupancy] = {}
    """Addresses that are not free in each subnet, of all clusters."""


class AuditSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All inputs at one time."""

    at: float = 0.0
    """Monotonic seconds."""
    pools: tuple[IPPool, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    node_slice_pools: tuple[NodeSlicePool, ...] = ()
    node_slices: tuple[NodeSlices, ...] = ()
    nads: tuple[ParsedNad, ...] = ()
    pods: tuple[AddressedPod, ...] = ()
    nodes: tuple[Node, ...] = ()
    nncs: tuple[NodeNetworkConfig, ...] = ()
    cluster_subnets: tuple[ClusterSubnet, ...] = ()
    ledger_state: LedgerSnapshot | None = None
    """None without a ledger, or when it could not be read."""
    problem: str = ""
    """Why the ledger could not be read."""

    @property
    def gc_snapshot(self) -> GcSnapshot:
        """IPPools, reservations and Pods for `whereabouts.orphan_gc`."""
        return GcSnapshot(
            at=self.at,
            pools={each.metadata.name: each for each in self.pools},
            reservations={each.metadata.name: each for each in self.reservations},
            pods={each.key: ObservedPod(finished=each.status.phase in FINISHED) for each in self.pods},
        )


class PublishedNC(msgspec.Struct, frozen=True, kw_only=True):
    """A network container as its node's NodeNetworkConfig publishes it."""

    nnc: NodeNetworkConfig
    nc: NetworkContainer

    @property
    def node(self) -> str:
        """Name of the node."""
        return self.nnc.metadata.name

    @property
    def grants(self) -> dict[str, str]:
        """Addresses by grant ID."""
        return {each.name: each.ip for each in self.nc.ip_assignments}

    @property
    def kept(self) -> dict[str, str]:
        """Grants that are not pending release."""
        released = set(self.nnc.spec.pending_release)
        return {name: address for name, address in self.grants.items() if name not in released}


def published_ncs(nncs: Iterable[NodeNetworkConfig]) -> list[PublishedNC]:
    """Return every published network container."""
    return [PublishedNC(nnc=nnc, nc=each) for nnc in nncs for each in nnc.status.network_containers]


async def read_audit_snapshot(kube: KubeClient, ledger: LedgerClient | None, *, at: float) -> AuditSnapshot:
    """Read everything; raises errors of the API server, and continues without a ledger."""
    snapshot = AuditSnapshot(
        at=at,
        pools=await list_objects(kube, IP_POOLS),
        reservations=await list_objects(kube, IP_RESERVATIONS),
        node_slice_pools=await list_objects(kube, NODE_SLICE_POOLS),
        node_slices=await list_objects(kube, NODE_SLICES),
        nads=tuple(_readable(await list_objects(kube, NETWORK_ATTACHMENTS))),
        pods=await list_objects(kube, ADDRESSED_PODS),
        nodes=await list_objects(kube, NODES),
        nncs=await list_objects(kube, NODE_NETWORK_CONFIGS),
        cluster_subnets=await list_objects(kube, CLUSTER_SUBNETS),
    )
    cluster = (await kube.get(NAMESPACES, "kube-system")).metadata.uid
    ledger_state, problem = await _read_ledger(ledger, cluster) if ledger else (None, "")
    return msgspec.structs.replace(snapshot, ledger_state=ledger_state, problem=problem)


async def _read_ledger(ledger: LedgerClient, cluster: str) -> tuple[LedgerSnapshot | None, str]:
    try:
        ncs = (await ledger.network_containers(cluster)).network_containers
        states = {subnet_key(each.subnet.network, each.subnet.name): each for each in (await ledger.subnets()).subnets}
        occupancies = {name: await ledger.occupancy(each.subnet) for name, each in states.items()}
    except PodpoolError as error:
        return None, error_text("the ledger", error)
    return LedgerSnapshot(ncs=ncs, subnets=states, occupancies=occupancies), ""


def _readable(definitions: Iterable[NetworkAttachmentDefinition]) -> Iterator[ParsedNad]:
    """Return the NADs that can be parsed; the controller reports the others."""
    for each in definitions:
        with suppress(InvalidInput):
            if nad := parse_nad(each):
                yield nad

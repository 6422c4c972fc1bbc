"""Everything that an audit looks at, read once from the cluster and its ledger.

The order matters: entries are read before the Pods that they name, Pods before the grants that they stand on, and those
before the ledger's books. What a later list no longer shows may have gone meanwhile: a second look tells.
"""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS, ClusterSubnet, NodeNetworkConfig
from podpool.api.builtin import ADDRESSED_PODS, FINISHED, LEASES, NAMESPACES, NODES, AddressedPod, Lease, Node
from podpool.api.multus import NETWORK_ATTACHMENTS, NetworkAttachmentDefinition
from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS, NODE_SLICE_POOLS, NODE_UID_LABEL, IPPool, NodeSlicePool
from podpool.api.whereabouts import OverlappingRangeIPReservation as Reservation
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.inspect.snapshot import listed, told_of
from podpool.inspect.view_models import subnet_key
from podpool.kube.client import KubeClient
from podpool.ledger.admin_messages import Occupancy
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import NetworkContainerRecord, SubnetState
from podpool.whereabouts.nads import ParsedNad, parse_nad
from podpool.whereabouts.orphan_gc import GcSnapshot, SeenPod


class LedgerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger has."""

    containers: tuple[NetworkContainerRecord, ...] = ()
    """Of this cluster."""
    subnets: Mapping[str, SubnetState] = {}
    """By network and name,"""
    occupancies: Mapping[str, Occupancy] = {}
    """and what is not free in each, whoever has it."""


class AuditSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One look at everything."""

    at: float = 0.0
    """Seconds, on a clock that does not jump."""
    pools: tuple[IPPool, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    leases: tuple[Lease, ...] = ()
    """Of nodes' slices."""
    slice_pools: tuple[NodeSlicePool, ...] = ()
    attachments: tuple[ParsedNad, ...] = ()
    pods: tuple[AddressedPod, ...] = ()
    nodes: tuple[Node, ...] = ()
    configs: tuple[NodeNetworkConfig, ...] = ()
    decided: tuple[ClusterSubnet, ...] = ()
    books: LedgerSnapshot | None = None
    """None when there is no ledger, or it could not be asked:"""
    trouble: str = ""
    """why not."""

    @property
    def look(self) -> GcSnapshot:
        """Show pools and Pods to whoever decides what may be cleaned up."""
        return GcSnapshot(
            at=self.at,
            pools={each.metadata.name: each for each in self.pools},
            reservations={each.metadata.name: each for each in self.reservations},
            pods={each.key: SeenPod(finished=each.status.phase in FINISHED) for each in self.pods},
        )


async def gather(kube: KubeClient, ledger: LedgerClient | None, *, at: float) -> AuditSnapshot:
    """GcSnapshot at everything; raises what the API server refuses, and goes on without a ledger."""
    pools = await listed(kube, IP_POOLS)
    reservations = await listed(kube, IP_RESERVATIONS)
    leases = await listed(kube, LEASES, labels=NODE_UID_LABEL)
    slice_pools = await listed(kube, NODE_SLICE_POOLS)
    attachments = await listed(kube, NETWORK_ATTACHMENTS)
    pods = await listed(kube, ADDRESSED_PODS)
    nodes = await listed(kube, NODES)
    configs = await listed(kube, NODE_NETWORK_CONFIGS)
    decided = await listed(kube, CLUSTER_SUBNETS)
    cluster = (await kube.get(NAMESPACES, "kube-system")).metadata.uid
    books, trouble = await _books(ledger, cluster) if ledger else (None, "")
    return AuditSnapshot(
        at=at,
        pools=tuple(pools),
        reservations=tuple(reservations),
        leases=tuple(leases),
        slice_pools=tuple(slice_pools),
        attachments=tuple(_readable(attachments)),
        pods=tuple(pods),
        nodes=tuple(nodes),
        configs=tuple(configs),
        decided=tuple(decided),
        books=books,
        trouble=trouble,
    )


async def _books(ledger: LedgerClient, cluster: str) -> tuple[LedgerSnapshot | None, str]:
    try:
        containers = (await ledger.containers(cluster)).containers
        states = {subnet_key(each.subnet.network, each.subnet.name): each for each in (await ledger.subnets()).subnets}
        occupancies = {name: await ledger.occupancy(each.subnet) for name, each in states.items()}
    except PodpoolError as error:
        return None, told_of("the ledger", error)
    return LedgerSnapshot(containers=containers, subnets=states, occupancies=occupancies), ""


def _readable(definitions: list[NetworkAttachmentDefinition]) -> list[ParsedNad]:
    """Read what can be read: of the others, the controller tells why not."""
    found = []
    for each in definitions:
        with suppress(InvalidInput):
            attachment = parse_nad(each)
            if attachment:
                found.append(attachment)
    return found

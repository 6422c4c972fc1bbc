"""Status of a cluster, read once, for commands.

Unreachable components are reported in `ClusterModel.problems`, and the rest is shown: without a ledger, subnets as
far as the cluster's objects describe them; without an API server, what the ledger reports.
"""

from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import CONFIG_MAPS, EVENTS, LEASES, NODES
from podpool.api.meta import KeyedObject, Kind
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import INVENTORY_CONFIG_MAP, NODE_SLICES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.core.errors import PodpoolError
from podpool.inspect.activity import headline
from podpool.inspect.cluster_model import ClusterCaches, ClusterModel
from podpool.inspect.observer import CLUSTER, LEDGER
from podpool.inspect.slice_inventory import InventoryStatus, view_inventory
from podpool.inspect.view_models import INSPECTED_PODS, SubnetView, ViewModel, subnet_views_without_ledger
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiForbidden, ApiNotFound
from podpool.ledger.client import LedgerClient
from podpool.runtime.transport import Unreachable

DEFAULT_NAMESPACE = "kube-system"
LEADER = "podpool-controller"
"""Name of the controllers' Lease."""

O = TypeVar("O", bound=KeyedObject)  # noqa: E741  an object


class Leader(ViewModel, frozen=True, kw_only=True):
    """The leading controller according to its Lease."""

    name: str = ""
    renewed: str = ""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The model, subnets and leader at one time."""

    model: ClusterModel
    subnets: tuple[SubnetView, ...] = ()
    """From the ledger, else from the cluster's objects."""
    leader: Leader = Leader()
    inventory: InventoryStatus = InventoryStatus()

    @property
    def headline(self) -> str:
        """One sentence on the state of the cluster."""
        if CLUSTER in self.model.problems:
            return "The API server is not reachable."
        if not self.model.nodes:
            return "The cluster has no nodes."
        return headline(self.subnets, tuple(self.model.nodes.values()), self.model.networks)


async def read_status(kube: KubeClient, ledger: LedgerClient | None, *, at: float) -> ClusterStatus:
    """Read everything once; without a ledger only the cluster's objects."""
    caches = ClusterCaches()
    model = ClusterModel(caches, has_ledger=ledger is not None)
    leader = await _read_cluster(model, kube)
    if ledger:
        await _read_ledger(model, ledger)
    model.refresh(at=at)
    subnets = tuple(model.subnets.values())
    if ledger is None or LEDGER in model.problems:
        subnets = tuple(
            subnet_views_without_ledger(model.nodes.values(), caches.nncs.values(), caches.cluster_subnets.values())
        )
    return ClusterStatus(model=model, subnets=subnets, leader=leader, inventory=await _inventory(kube, caches))


async def _inventory(kube: KubeClient, caches: ClusterCaches) -> InventoryStatus:
    """Return what the controller waits for; nothing if that cannot be read. It is beside the NodeSlicePools."""
    namespaces = sorted({each.metadata.namespace for each in caches.node_slice_pools.values()})
    for namespace in namespaces or [DEFAULT_NAMESPACE] * bool(len(caches.node_slices)):
        with suppress(PodpoolError):
            config = await kube.get(CONFIG_MAPS, INVENTORY_CONFIG_MAP, namespace=namespace)
            return view_inventory(config, caches.node_slices.values(), caches.nodes.values())
    return InventoryStatus()


async def serves_slices_only(kube: KubeClient) -> bool:
    """Return whether podpool serves only secondary networks in a cluster; False if that cannot be read."""
    try:
        if await list_objects(kube, NODE_NETWORK_CONFIGS):
            return False
        if await list_objects(kube, CLUSTER_SUBNETS):
            return False
        kinds: tuple[Kind[Any], ...] = (NODE_SLICE_POOLS, NETWORK_ATTACHMENTS, NODE_SLICES, IP_POOLS)
        for kind in kinds:
            if await list_objects(kube, kind):
                return True
    except PodpoolError:
        return False
    return False


async def _read_cluster(model: ClusterModel, kube: KubeClient) -> Leader:
    caches = model.caches
    try:
        await _fill_cache(caches.nodes, kube, NODES)
        await _fill_cache(caches.nncs, kube, NODE_NETWORK_CONFIGS)
        await _fill_cache(caches.pods, kube, INSPECTED_PODS)
        await _fill_cache(caches.pools, kube, IP_POOLS)
        await _fill_cache(caches.node_slice_pools, kube, NODE_SLICE_POOLS)
        await _fill_cache(caches.events, kube, EVENTS)
        await _fill_cache(caches.cluster_subnets, kube, CLUSTER_SUBNETS)
        with suppress(ApiForbidden):  # the state of slices is then unknown
            await _fill_cache(caches.node_slices, kube, NODE_SLICES)
        with suppress(ApiForbidden):  # they only make the explanation of a Pod more precise
            await _fill_cache(caches.nads, kube, NETWORK_ATTACHMENTS)
        return await _leader(kube)
    except PodpoolError as error:
        model.problems[CLUSTER] = error_text("the API server", error)
        return Leader()


async def _fill_cache(store: ObjectCache[O], kube: KubeClient, kind: Kind[O]) -> None:
    store.replace(await list_objects(kube, kind))


async def list_objects(kube: KubeClient, kind: Kind[O]) -> tuple[O, ...]:
    """List all objects of a kind; empty when the kind is not defined."""
    try:
        return tuple((await kube.list(kind)).items)
    except ApiNotFound:
        return ()


async def _leader(kube: KubeClient) -> Leader:
    lease = await kube.find(LEASES, LEADER, namespace=DEFAULT_NAMESPACE)
    if lease is None:
        return Leader()
    return Leader(name=lease.spec.holder_identity or "", renewed=lease.spec.renew_time or "")


async def _read_ledger(model: ClusterModel, ledger: LedgerClient) -> None:
    try:
        for state in (await ledger.subnets()).subnets:
            model.set_subnet(state, (await ledger.details(state.subnet)).spec)
    except PodpoolError as error:
        model.problems[LEDGER] = error_text(LEDGER, error)


def error_text(peer: str, error: PodpoolError) -> str:
    """Return the text of an error with the name of the peer, where the error only has its address."""
    at_address = isinstance(error, Unreachable) and error.peer != peer
    return f"{peer} at {error}" if at_address else str(error)

"""Status of a cluster, read once, for commands.

Unreachable components are reported in `ClusterModel.problems`, and the rest is shown: without a ledger, subnets as
far as the cluster's objects describe them; without an API server, what the ledger reports.
"""

from contextlib import suppress
from typing import TypeVar

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, LEASES, NODES, Lease
from podpool.api.meta import KeyedObject, Kind
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.core.errors import PodpoolError
from podpool.inspect.activity import headline
from podpool.inspect.cluster_model import ClusterCaches, ClusterModel
from podpool.inspect.observer import CLUSTER, LEDGER
from podpool.inspect.view_models import INSPECTED_PODS, SubnetView, ViewModel, subnet_views_without_ledger
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiForbidden, ApiNotFound
from podpool.ledger.client import LedgerClient
from podpool.runtime.transport import Unreachable

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
    return ClusterStatus(model=model, subnets=subnets, leader=leader)


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
        with suppress(ApiForbidden):  # they only make the explanation of a Pod more precise
            await _fill_cache(caches.nads, kube, NETWORK_ATTACHMENTS)
        return await _leader(kube)
    except PodpoolError as error:
        model.problems[CLUSTER] = error_text("the API server", error)
        return Leader()


async def _fill_cache(store: ObjectCache[O], kube: KubeClient, kind: Kind[O]) -> None:
    store.replace(await list_objects(kube, kind))


async def list_objects(kube: KubeClient, kind: Kind[O], *, labels: str | None = None) -> tuple[O, ...]:
    """List all objects of a kind; empty when the kind is not defined."""
    try:
        return tuple((await kube.list(kind, labels=labels)).items)
    except ApiNotFound:
        return ()


async def _leader(kube: KubeClient) -> Leader:
    try:
        lease: Lease = await kube.get(LEASES, LEADER, namespace="kube-system")
    except ApiNotFound:
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

"""A cluster at one read_status: everything is read once, for commands that answer and end.

Whoever is away is said (`ClusterModel.problems`), and the rest is shown: without a ledger what the cluster's own objects tell
of its subnets, without an API server what the ledger tells.
"""

from typing import TypeVar

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, LEASES, NODES, Lease
from podpool.api.meta import KeyedObject, Kind
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.core.errors import PodpoolError
from podpool.inspect.activity import headline
from podpool.inspect.cluster_model import ClusterCaches, ClusterModel
from podpool.inspect.observer import CLUSTER, LEDGER
from podpool.inspect.pods import INSPECTED_PODS
from podpool.inspect.view_models import SubnetView, ViewModel, subnet_views_without_ledger
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.ledger.client import LedgerClient
from podpool.runtime.transport import Unreachable

LEADER = "podpool-controller"
"""The Lease of the controllers."""

O = TypeVar("O", bound=KeyedObject)  # noqa: E741  an object


class Leader(ViewModel, frozen=True, kw_only=True):
    """The controller that leads, as its Lease tells."""

    name: str = ""
    renewed: str = ""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen."""

    model: ClusterModel
    subnets: tuple[SubnetView, ...] = ()
    """From the ledger; else as far as the cluster's objects tell."""
    leader: Leader = Leader()

    @property
    def headline(self) -> str:
        """Say in a sentence how it is."""
        if CLUSTER in self.model.problems:
            return "The cluster cannot be seen."
        if not self.model.nodes:
            return "There are no nodes."
        return headline(self.subnets, tuple(self.model.nodes.values()))


async def read_status(kube: KubeClient, ledger: LedgerClient | None, *, at: float) -> ClusterStatus:
    """Look once; without a ledger at what the cluster's objects tell."""
    caches = ClusterCaches()
    model = ClusterModel(caches)
    leader = await _see_cluster(model, kube)
    if ledger:
        await _see_ledger(model, ledger)
    model.look(at=at)
    subnets = tuple(model.subnets.values())
    if ledger is None or LEDGER in model.problems:
        subnets = tuple(
            subnet_views_without_ledger(model.nodes.values(), caches.configs.values(), caches.decided.values())
        )
    return ClusterStatus(model=model, subnets=subnets, leader=leader)


async def _see_cluster(model: ClusterModel, kube: KubeClient) -> Leader:
    caches = model.caches
    try:
        await _fill(caches.nodes, kube, NODES)
        await _fill(caches.configs, kube, NODE_NETWORK_CONFIGS)
        await _fill(caches.pods, kube, INSPECTED_PODS)
        await _fill(caches.pools, kube, IP_POOLS)
        await _fill(caches.slice_pools, kube, NODE_SLICE_POOLS)
        await _fill(caches.events, kube, EVENTS)
        await _fill(caches.decided, kube, CLUSTER_SUBNETS)
        return await _leader(kube)
    except PodpoolError as error:
        model.problems[CLUSTER] = error_text("the API server", error)
        return Leader()


async def _fill(store: ObjectCache[O], kube: KubeClient, kind: Kind[O]) -> None:
    store.replace(await list_objects(kube, kind))


async def list_objects(kube: KubeClient, kind: Kind[O], *, labels: str | None = None) -> list[O]:
    """List everything of a kind; of one that is not defined there is nothing."""
    try:
        return list((await kube.list(kind, labels=labels)).items)
    except ApiNotFound:
        return []


async def _leader(kube: KubeClient) -> Leader:
    try:
        lease: Lease = await kube.get(LEASES, LEADER, namespace="kube-system")
    except ApiNotFound:
        return Leader()
    return Leader(name=lease.spec.holder_identity or "", renewed=lease.spec.renew_time or "")


async def _see_ledger(model: ClusterModel, ledger: LedgerClient) -> None:
    try:
        for state in (await ledger.subnets()).subnets:
            model.set_subnet(state, (await ledger.details(state.subnet)).made)
    except PodpoolError as error:
        model.problems[LEDGER] = error_text(LEDGER, error)


def error_text(peer: str, error: PodpoolError) -> str:
    """Say who is away, where the error knows only its address."""
    at_address = isinstance(error, Unreachable) and error.peer != peer
    return f"{peer} at {error}" if at_address else str(error)

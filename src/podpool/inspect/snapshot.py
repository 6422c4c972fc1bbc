"""A cluster at one glance: everything is read once, for commands that answer and end.

Whoever is away is said (`ClusterModel.troubles`), and the rest is shown: without a ledger what the cluster's own objects tell
of its subnets, without an API server what the ledger tells.
"""

from typing import TypeVar

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, LEASES, NODES, Lease
from podpool.api.meta import KeyedObject, Kind
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.core.errors import PodpoolError
from podpool.inspect.changes import headline
from podpool.inspect.cluster_model import ClusterCaches, ClusterModel
from podpool.inspect.objects import OBSERVED_PODS
from podpool.inspect.observer import CLUSTER, LEDGER
from podpool.inspect.view_models import SubnetView, ViewModel, unbooked_views
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

    scene: ClusterModel
    subnets: tuple[SubnetView, ...] = ()
    """From the ledger; else as far as the cluster's objects tell."""
    leader: Leader = Leader()

    @property
    def headline(self) -> str:
        """Say in a sentence how it is."""
        if CLUSTER in self.scene.troubles:
            return "The cluster cannot be seen."
        if not self.scene.nodes:
            return "There are no nodes."
        return headline(self.subnets, tuple(self.scene.nodes.values()))


async def glance(kube: KubeClient, ledger: LedgerClient | None, *, at: float) -> ClusterStatus:
    """Look once; without a ledger at what the cluster's objects tell."""
    mirrors = ClusterCaches()
    scene = ClusterModel(mirrors)
    leader = await _see_cluster(scene, kube)
    if ledger:
        await _see_ledger(scene, ledger)
    scene.look(at=at)
    subnets = tuple(scene.subnets.values())
    if ledger is None or LEDGER in scene.troubles:
        subnets = tuple(unbooked_views(scene.nodes.values(), mirrors.configs.values(), mirrors.decided.values()))
    return ClusterStatus(scene=scene, subnets=subnets, leader=leader)


async def _see_cluster(scene: ClusterModel, kube: KubeClient) -> Leader:
    mirrors = scene.mirrors
    try:
        await _fill(mirrors.nodes, kube, NODES)
        await _fill(mirrors.configs, kube, NODE_NETWORK_CONFIGS)
        await _fill(mirrors.pods, kube, OBSERVED_PODS)
        await _fill(mirrors.pools, kube, IP_POOLS)
        await _fill(mirrors.slice_pools, kube, NODE_SLICE_POOLS)
        await _fill(mirrors.events, kube, EVENTS)
        await _fill(mirrors.decided, kube, CLUSTER_SUBNETS)
        return await _leader(kube)
    except PodpoolError as error:
        scene.troubles[CLUSTER] = told_of("the API server", error)
        return Leader()


async def _fill(store: ObjectCache[O], kube: KubeClient, kind: Kind[O]) -> None:
    store.replace(await listed(kube, kind))


async def listed(kube: KubeClient, kind: Kind[O], *, labels: str | None = None) -> list[O]:
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


async def _see_ledger(scene: ClusterModel, ledger: LedgerClient) -> None:
    try:
        for state in (await ledger.subnets()).subnets:
            scene.set_subnet(state, (await ledger.details(state.subnet)).made)
    except PodpoolError as error:
        scene.troubles[LEDGER] = told_of(LEDGER, error)


def told_of(peer: str, error: PodpoolError) -> str:
    """Say who is away, where the error knows only its address."""
    at_address = isinstance(error, Unreachable) and error.peer != peer
    return f"{peer} at {error}" if at_address else str(error)

"""Orphan GC of NNCs: those without a Node whose network container no longer exists.

Invariant: an NNC is deleted after two observations, and a quorum read confirms the second. While a Node's NC exists its
NNC stays: node GC decides about the NC.
"""

import asyncio

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import NODES
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps
from podpool.controller.node_reconciler import NodeReconciler
from podpool.core.errors import PodpoolError
from podpool.core.two_observations import OBSERVATION_INTERVAL, TwoObservations
from podpool.kube.errors import ApiNotFound
from podpool.kube.informer import quorum_get
from podpool.runtime.logging import get_logger

log = get_logger(__name__)


class OrphanNNCGC:
    """Deletes orphaned NNCs."""

    def __init__(self, deps: ControllerDeps, allocations: AllocationCache, *, reconciler: NodeReconciler) -> None:
        self._deps = deps
        self._allocations = allocations
        self._reconciler = reconciler
        self._interval = min(OBSERVATION_INTERVAL, deps.settings.common.node_gc_delay)
        self._orphans = TwoObservations[str](self._interval)
        """By UID."""

    async def run(self) -> None:
        """Scan until cancelled."""
        while True:
            with self._deps.metrics.measure("nnc_gc"):
                await self.scan()
            await asyncio.sleep(self._interval)

    async def scan(self) -> None:
        """Record orphaned NNCs, and delete those that were orphaned at the last scan too."""
        orphans = {nnc.metadata.uid: nnc for nnc in self._deps.informers.nncs.values() if self._is_orphan(nnc)}
        for uid in self._orphans.observe(orphans, now=asyncio.get_running_loop().time()):
            try:
                await self._delete(orphans[uid])
            except PodpoolError as error:
                self._deps.metrics.errors.labels("nnc_gc").inc()
                log.info("cannot delete orphaned NNC, retrying", node=orphans[uid].metadata.name, error=error)

    def _is_orphan(self, nnc: NodeNetworkConfig) -> bool:
        name = nnc.metadata.name
        return self._deps.informers.nodes.get(name) is None and not self._allocations.has_node(name)

    async def _delete(self, nnc: NodeNetworkConfig) -> None:
        kube, informers, name = self._deps.kube, self._deps.informers, nnc.metadata.name
        namespace = self._deps.settings.namespace
        try:
            await quorum_get(kube, NODES, name, cache=informers.nodes)
        except ApiNotFound:
            current = await quorum_get(kube, NODE_NETWORK_CONFIGS, name, cache=informers.nncs, namespace=namespace)
        else:
            return
        if current.metadata.uid != nnc.metadata.uid or not self._is_orphan(current):
            return
        await self._reconciler.remove_finalizer(current)
        if current.metadata.deletion_timestamp is None:
            await kube.delete(NODE_NETWORK_CONFIGS, name, namespace=namespace, uid=current.metadata.uid)
        log.info("orphaned NNC deleted", node=name)
        self._deps.events.repaired(current, "deleted: its Node is gone and the ledger has no network container for it")
        self._deps.metrics.orphans.labels("nnc").inc()

"""Node GC of slices: releases the slices of Nodes that are gone, and deletes their IPPools and Leases.

Invariant: that a Node is gone is decided on quorum reads after `node_gc_delay`, never on a cache: the Node's UID does
not exist, no Node of that name reports the boot in which its agent wrote the status, and while no Node of that name
exists, no unfinished Pod is bound to it. An IPPool of Whereabouts' own slices is deleted only when it is empty.

While the mass-loss breaker is open, nothing is released (`mass_loss_breaker`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial

from podpool.api.builtin import LEASES, NODES, Node
from podpool.api.whereabouts import NODE_ANNOTATION, NODE_UID_LABEL, IPPool
from podpool.controller.bound_pods import BoundPods
from podpool.controller.deps import SliceDeps
from podpool.controller.node_gc import CONCURRENCY, run_node_gc
from podpool.controller.slices.inventory_configmap import InventoryConfigMap
from podpool.controller.slices.mass_loss_breaker import SliceMassLoss
from podpool.controller.slices.nad_planner import NADPlanner
from podpool.controller.slices.node_slices_reconciler import NodeSlicesReconciler
from podpool.controller.slices.slice_index import SliceIndex, is_derived
from podpool.controller.slices.slice_ownership import OwnedSlice, is_same_node
from podpool.core.errors import PodpoolError
from podpool.core.two_observations import TwoObservations
from podpool.kube.errors import ApiNotFound
from podpool.kube.informer import quorum_find
from podpool.runtime.logging import get_logger
from podpool.whereabouts.ippool_identity import identify_pool
from podpool.whereabouts.object_names import PoolIdentifier

log = get_logger(__name__)


class SliceNodeGC:
    """Releases slices whose Node has been missing for the delay."""

    def __init__(
        self,
        deps: SliceDeps,
        index: SliceIndex,
        reconciler: NodeSlicesReconciler,
        planner: NADPlanner,
        config_map: InventoryConfigMap,
    ) -> None:
        self._deps = deps
        self._index = index
        self._reconciler = reconciler
        self._planner = planner
        self._mass_loss = SliceMassLoss(deps, index, config_map)
        self._bound_pods = BoundPods(deps.kube)
        self._missing = TwoObservations[tuple[str, str]](deps.settings.common.node_gc_delay)
        """Missing Nodes, and IPPools of slices without an owner, by name and UID."""

    @property
    def paused(self) -> bool:
        """Whether the mass-loss breaker is open."""
        return self._mass_loss.paused

    async def run(self) -> None:
        """Scan until cancelled."""

        async def scan() -> None:
            with self._deps.metrics.measure("slice_node_gc"):
                await self.scan()

        delay = self._deps.settings.common.node_gc_delay
        await run_node_gc(self._deps.nodes, scan, on_node=self._on_node, delay=delay)

    def _on_node(self, node: Node) -> None:
        name = node.metadata.name
        if any(missing == name for missing, _ in self._missing):
            for owned in self._index.of_node(name):
                if owned.belongs_to(node):
                    self._missing.forget(owned.owner)

    def reset(self) -> None:
        """Start the delay anew: after a restore, deleted Nodes may exist again."""
        self._missing.clear()

    async def scan(self) -> None:
        """Record which Nodes are missing, and release the slices of those that have been missing for the delay."""
        owners = {
            owned.owner: owned
            for name in self._index.nodes()
            for owned in self._index.of_node(name)
            if not owned.belongs_to(self._deps.nodes.get(name))
        }
        pools = [(pool.metadata.name, pool.metadata.uid) for pool in self._leftover_pools()]
        due = set(self._missing.observe((*owners, *pools), now=asyncio.get_running_loop().time()))
        gone = [each for owner, each in owners.items() if owner in due]
        if (gone or self._mass_loss.recorded) and not await self._may_release():
            return
        tasks = [partial(self._try, each.node, partial(self._release, each)) for each in gone]
        tasks += [
            partial(self._try, name, partial(self._delete_pool, name)) for name, uid in pools if (name, uid) in due
        ]
        for begin in range(0, len(tasks), CONCURRENCY):
            await asyncio.gather(*(each() for each in tasks[begin : begin + CONCURRENCY]))

    async def _may_release(self) -> bool:
        try:
            return await self._mass_loss.check()
        except PodpoolError as error:
            log.warning("cannot check whether too many nodes are missing, no slice is released; retrying", error=error)
            return False

    async def _try(self, name: str, release: Callable[[], Awaitable[None]]) -> None:
        try:
            await release()
        except PodpoolError as error:
            self._deps.metrics.errors.labels("slice_node_gc").inc()
            log.info("cannot release the slices of a missing node, retrying", slices=name, error=error)

    async def _release(self, owned: OwnedSlice) -> None:
        node, uid = owned.owner
        if not await self._is_gone(owned):
            return
        slices = [each for each in self._index.of_node(node) if each.owner == owned.owner]
        count = await self._reconciler.release(node, uid)
        self._mass_loss.on_release(owned.owner)
        log.info("node is gone, slices released", node=node, node_uid=uid, count=count)
        self._deps.metrics.orphans.labels("slice").inc(count)
        self._deps.events.slices_released(node=node, uid=uid, count=count)
        for each in slices:
            pool = self._index.pools.get(PoolIdentifier(range=each.slice, network=each.network, node=node).name)
            if pool is not None and pool.metadata.labels.get(NODE_UID_LABEL) == uid:
                await self._delete_objects(pool)

    async def _is_gone(self, owned: OwnedSlice) -> bool:
        node = await quorum_find(self._deps.kube, NODES, owned.node, cache=self._deps.nodes)
        if node is None:
            return await self._bound_pods.none_on(owned.node)
        unidentified = owned.boot_id != "" and not node.boot_id
        return not unidentified and not is_same_node(owned.node_uid, owned.boot_id, node)

    # IPPools and Leases

    def _leftover_pools(self) -> Iterator[IPPool]:
        """Yield pools of slices without an owner; of those that Whereabouts wrote, empty ones of missing Nodes."""
        known = self._planner.known_names()
        for pool in self._deps.informers.pools.cache.values():
            if is_derived(pool):
                if not self._is_owned(pool):
                    yield pool
                continue
            identifier = None if pool.spec.allocations else identify_pool(pool, known)
            if identifier and self._is_missing(identifier.node) and self._planner.is_slice(identifier):
                yield pool

    def _is_missing(self, node: str) -> bool:
        return node != "" and self._deps.nodes.get(node) is None

    def _is_owned(self, pool: IPPool) -> bool:
        slices = self._index.of_node(pool.metadata.annotations[NODE_ANNOTATION])
        return any(str(each.slice) == pool.spec.range for each in slices)

    async def _delete_pool(self, name: str) -> None:
        """Delete a pool at the version at which it was found, and before it the Lease of its name."""
        pool = self._index.pools.get(name)
        if pool is None:
            return
        identifier = identify_pool(pool, self._planner.known_names())
        node = identifier.node if identifier else ""
        unused = not self._is_owned(pool) if is_derived(pool) else not pool.spec.allocations
        if node and unused and (is_derived(pool) or await self._is_absent(node)):
            await self._delete_objects(pool)
            log.info("IPPool deleted, no node holds its slice any more", node=node, pool=name)
            self._deps.metrics.orphans.labels("slice").inc()

    async def _is_absent(self, node: str) -> bool:
        """Return whether no Node of a name exists, and no Pod is bound to it."""
        found = await quorum_find(self._deps.kube, NODES, node, cache=self._deps.nodes)
        return found is None and await self._bound_pods.none_on(node)

    async def _delete_objects(self, pool: IPPool) -> None:
        with suppress(ApiNotFound):
            await self._deps.kube.delete(LEASES, pool.metadata.name, namespace=self._deps.namespace)
        await self._index.pools.delete(self._deps.kube, pool)

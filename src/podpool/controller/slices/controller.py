"""Runs the slice reconcilers and GCs while this controller is the leader."""

import asyncio
from collections.abc import Iterable

from podpool.api.builtin import Node
from podpool.api.meta import KubeObject
from podpool.api.whereabouts import IPPool
from podpool.controller.deps import SliceDeps
from podpool.controller.metrics import SliceMetrics
from podpool.controller.slices.informers import WriteThroughCache
from podpool.controller.slices.inventory import SliceInventory
from podpool.controller.slices.nad_planner import NADPlanner, table_key
from podpool.controller.slices.node_gc import SliceNodeGC
from podpool.controller.slices.nodeslicepool_reconciler import NodeSlicePoolReconciler
from podpool.controller.slices.orphan_gc import IPPoolOrphanGC
from podpool.controller.slices.ownership import OwnedSlice, SliceOwnership
from podpool.controller.slices.shared_pool_seal import SharedPoolSeal, sealed_network
from podpool.controller.slices.slice_reconciler import SliceLeaseReconciler
from podpool.kube.workqueue import Requeue, WorkQueue, run_workers
from podpool.whereabouts.network_plan import SliceTableKey

BATCH_DELAY = 0.2
"""Seconds for which a change of a network waits for others: many nodes, one write."""
BATCH_DELAY_PER_NODE = 0.0005
"""The same for each node, where they are many: an assignment of 5,000 takes 0.1 s, in which nothing else runs."""
RESYNC_INTERVAL = 300.0
"""Seconds after which everything is reconciled again."""
SLICE_WORKERS = 64
ALL_NADS = "all"
"""The one key of the queue of NADs: they are planned together."""


class SliceController:
    """Workqueues of NADs, networks by name, and slices by the name of their IPPool."""

    def __init__(self, deps: SliceDeps) -> None:
        self.queues = {name: WorkQueue(rng=deps.rng) for name in ("nads", "networks", "slices")}
        self._deps = deps
        self._ownership = SliceOwnership(
            deps.informers, on_change=self._on_slice_change, on_unowned_change=self._on_unowned_change
        )
        self._slice_pools = WriteThroughCache(deps.informers.slice_pools, on_change=self._on_slice_pool_change)
        self._planner = NADPlanner(deps)
        self._inventory = SliceInventory(
            deps,
            self._ownership,
            lacks_slice=self._lacks_slice,
            on_restart=self._reset_node_gc,
            on_complete=self._enqueue_slices,
        )
        self._slices = SliceLeaseReconciler(
            deps, self._ownership, enqueue=self.queues["slices"].add, may_assign=lambda: self._inventory.complete
        )
        self._seal = SharedPoolSeal(deps, self._ownership, self._planner, may_unseal=lambda: self._inventory.complete)
        self._networks = NodeSlicePoolReconciler(
            deps, self._planner, self._ownership, self._slices, seal=self._seal, slice_pools=self._slice_pools
        )
        self._node_gc = SliceNodeGC(deps, self._ownership, self._slices, self._planner)
        self._orphan_gc = IPPoolOrphanGC(deps, self._ownership)

    def metrics(self) -> dict[tuple[str, str], SliceMetrics]:
        """Return the metrics of each slice table by network and range."""
        return self._networks.metrics()

    async def run(self) -> None:
        """Reconcile until cancelled, once the informers are synced."""
        deps = self._deps
        await deps.informers.synced()
        for cache in (self._ownership.pools, self._ownership.leases, self._slice_pools):
            await cache.read_all(deps.kube)  # a quorum read: the informers may lag behind the former leader's writes
        unsubscribe = [
            deps.nodes.subscribe(self._on_node_change),
            deps.informers.nads.subscribe(self._on_nad_change),
            self._slice_pools.follow(),
        ]
        try:
            with self._ownership.following():
                async with asyncio.TaskGroup() as group:
                    for name, reconcile, workers in (
                        ("nads", self._reconcile_nads, 1),
                        ("networks", self._reconcile_network, 4),
                        ("slices", self._slices.reconcile, SLICE_WORKERS),
                    ):
                        measured = deps.metrics.measured(name, reconcile)
                        group.create_task(run_workers(self.queues[name], measured, workers=workers))
                    group.create_task(self._inventory.run())
                    group.create_task(self._node_gc.run())
                    group.create_task(self._orphan_gc.run())
                    group.create_task(self._resync())
        finally:
            for each in unsubscribe:
                each()

    async def _resync(self) -> None:
        while True:
            self.queues["nads"].add(ALL_NADS)
            await asyncio.sleep(RESYNC_INTERVAL)

    async def _reconcile_nads(self, _: str) -> None:
        """Plan all NADs, and enqueue every network and slice of the former and the new plan."""
        before = self._planner.plan
        after = self._planner.replan()
        slice_pools = self._deps.informers.slice_pools.cache.values()
        published = (key.network for pool in slice_pools if (key := table_key(pool)))
        planned = (table.key.network for plan in (before, after) for table in plan.tables)
        sealed = _sealed_networks(self._ownership.unowned_pools.values())
        self._enqueue_networks((*planned, *published, *self._ownership.networks(), *sealed), now=True)
        self._enqueue_slices()
        self._inventory.wake()

    async def _reconcile_network(self, network: str) -> Requeue | None:
        planned = self._planner.ready and self.queues["nads"].idle  # else the plan is about to change
        return None if planned and await self._networks.reconcile(network) else Requeue(after=self._batch_delay())

    def _batch_delay(self) -> float:
        return max(BATCH_DELAY, BATCH_DELAY_PER_NODE * len(self._deps.nodes))

    def _enqueue_networks(self, networks: Iterable[str], *, now: bool = False) -> None:
        delay = 0.0 if now else self._batch_delay()
        for network in dict.fromkeys(networks):
            self.queues["networks"].add_after(network, delay)

    def _enqueue_slices(self) -> None:
        for name in (*self._slices.names(), *(owned.name for owned in self._ownership.values())):
            self.queues["slices"].add(name)

    def _reset_node_gc(self) -> None:
        self._node_gc.reset()

    def _lacks_slice(self, node: Node) -> bool:
        """Return whether a Node uses no slice of some slice table."""
        owned = self._ownership.by_node(node.metadata.name)
        used = {SliceTableKey(each.network, each.range) for each in owned if each.in_use}
        return any(table.key not in used for table in self._planner.plan.tables)

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        """Enqueue every network when a Node joins, is deleted or reports its boot ID; not for its heartbeats."""
        if new is not None:
            self._inventory.on_node(new)
        if old is not None and new is not None and old.boot_id == new.boot_id:
            return
        node = new or old
        self._enqueue_networks(table.key.network for table in self._planner.plan.tables)
        for owned in self._ownership.by_node(node.metadata.name) if node else ():
            self.queues["slices"].add(owned.name)
            self._enqueue_networks([owned.network])

    def _on_nad_change(self, _: KubeObject | None, __: KubeObject | None) -> None:
        self.queues["nads"].add_after(ALL_NADS, BATCH_DELAY)

    def _on_slice_pool_change(self, name: str) -> None:
        planned = self._planner.plan.slice_pools.get(name)
        pool = self._slice_pools.get(name)
        published = table_key(pool) if pool else None
        self._enqueue_networks(each.network for each in (planned, published) if each)

    def _on_unowned_change(self, old: IPPool | None, new: IPPool | None) -> None:
        """Enqueue the network in which a pool is sealed; if one was created or deleted, all networks."""
        networks = _sealed_networks(filter(None, (old, new)))
        if not networks and (old is None or new is None):
            networks = [table.key.network for table in self._planner.plan.tables]
        self._enqueue_networks(networks)

    def _on_slice_change(self, old: OwnedSlice | None, new: OwnedSlice | None) -> None:
        if old is not None and old.lease_state.has_holder and old.in_use:
            disappeared = old.lease_uid != (new.lease_uid if new else "")
            if disappeared and old.lease_uid not in self._slices.deleted:
                self._inventory.restart()
        for owned in (old, new):
            if owned is not None:
                self.queues["slices"].add(owned.name)
                if not (new and self._networks.expected(owned)):
                    self._slices.invalidate(owned.network)
                    self._enqueue_networks([owned.network])


def _sealed_networks(pools: Iterable[IPPool]) -> list[str]:
    """Return the networks in which pools are sealed."""
    return [network for pool in pools if (network := sealed_network(pool)) is not None]

"""Runs the slice reconcilers and GCs while this controller is the leader."""

import asyncio
from collections.abc import Iterable, Sequence

from podpool.api.builtin import Node
from podpool.api.node_slices import Assignment, NodeSlices
from podpool.api.whereabouts import IPPool
from podpool.controller.deps import SliceDeps
from podpool.controller.metrics import SliceMetrics
from podpool.controller.slices.desired_slice_store import DesiredSlices
from podpool.controller.slices.inventory_barrier import SliceInventory
from podpool.controller.slices.inventory_configmap import InventoryConfigMap
from podpool.controller.slices.nad_planner import NADPlanner, table_key
from podpool.controller.slices.node_gc import SliceNodeGC
from podpool.controller.slices.node_slices_reconciler import NodeSlicesReconciler
from podpool.controller.slices.nodeslicepool_reconciler import NodeSlicePoolReconciler
from podpool.controller.slices.read_your_writes_cache import ReadYourWritesCache
from podpool.controller.slices.shared_pool_orphan_gc import SharedPoolOrphanGC
from podpool.controller.slices.shared_to_sliced_cutover import SharedPoolSeal, sealed_network
from podpool.controller.slices.slice_index import SliceIndex
from podpool.controller.slices.slice_ownership import OwnedSlice
from podpool.core.errors import PodpoolError
from podpool.kube.workqueue import Requeue, WorkQueue
from podpool.runtime.logging import get_logger

BATCH_DELAY = 0.2
"""Seconds for which a change of a network waits for others: many nodes, one assignment."""
BATCH_DELAY_PER_NODE = 0.0005
"""The same for each node, where they are many: an assignment of 5,000 takes 0.1 s, in which nothing else runs."""
RESYNC_INTERVAL = 300.0
"""Seconds after which everything is reconciled again."""
NODE_WORKERS = 64
ALL_NADS = "all"
"""The one key of the queue of NADs: they are planned together."""

log = get_logger(__name__)


class SliceController:
    """Workqueues of NADs, of networks by name to assign and to publish, and of nodes by name."""

    def __init__(self, deps: SliceDeps) -> None:
        names = ("nads", "networks", "node_slices", "node_slice_pools")
        self.queues = {name: WorkQueue(rng=deps.rng) for name in names}
        self._deps = deps
        self._planner = NADPlanner(deps)
        self._failing: set[str] = set()
        """Networks whose last assignment failed: new nodes do not wait for them."""
        self._index = SliceIndex(deps.informers, self._planner, self)
        self._slice_pools = ReadYourWritesCache(deps.informers.slice_pools, on_change=self._on_slice_pool_change)
        config_map = InventoryConfigMap(deps)
        self._inventory = SliceInventory(
            deps,
            self._index,
            config_map,
            on_ask=self._enqueue_nodes,
            on_restart=self._reset_node_gc,
            on_complete=self._enqueue_nodes,
        )
        self._desired = DesiredSlices()
        self._nodes = NodeSlicesReconciler(
            deps, self._index, self._desired, self._inventory, networks=self._awaited_networks
        )
        self._seal = SharedPoolSeal(deps, self._index, self._planner, may_unseal=lambda: self._inventory.complete)
        self._networks = NodeSlicePoolReconciler(
            deps, self._planner, self._index, self._desired, seal=self._seal, slice_pools=self._slice_pools
        )
        self._node_gc = SliceNodeGC(deps, self._index, self._nodes, self._planner, config_map)
        self._orphan_gc = SharedPoolOrphanGC(deps, self._index)

    def metrics(self) -> dict[tuple[str, str], SliceMetrics]:
        """Return the metrics of each slice table by network and range."""
        return self._networks.metrics()

    @property
    def inventory_pending(self) -> int:
        """How many nodes the inventory awaits."""
        return self._inventory.pending

    @property
    def node_gc_paused(self) -> bool:
        """Whether the mass-loss breaker is open."""
        return self._node_gc.paused

    async def run(self) -> None:
        """Reconcile until cancelled, once the informers are synced."""
        deps, informers = self._deps, self._deps.informers
        await informers.synced()
        for cache in (self._index.pools, self._index.objects, self._slice_pools):
            await cache.read_all(deps.kube)  # a quorum read: the informers may lag behind the former leader's writes
        deps.subnet_ranges.on_change = self._enqueue_nads
        unsubscribe = [
            deps.nodes.subscribe(self._on_node_change),
            informers.nads.subscribe(lambda _old, _new: self._enqueue_nads()),
            informers.node_slices.cache.subscribe(self._on_node_slices_change),
            informers.inventory.cache.subscribe(lambda _old, _new: self._inventory.wake()),
            self._slice_pools.follow(),
            self._index.pools.follow(),
            self._index.objects.follow(),
        ]
        try:
            await self._inventory.start()
            for obj in informers.node_slices.cache.values():
                self._on_node_slices_change(None, obj)
            await self._run_tasks()
        finally:
            for each in unsubscribe:
                each()

    async def _run_tasks(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, reconcile, workers in (
                ("nads", self._reconcile_nads, 1),
                ("networks", self._reconcile_network, 4),
                ("node_slices", self._reconcile_node, NODE_WORKERS),
                ("node_slice_pools", self._publish, 4),
            ):
                run = self._deps.metrics.run_workers
                group.create_task(run(name, self.queues[name], reconcile, workers=workers))
            for task in (self._inventory, self._node_gc, self._orphan_gc):
                group.create_task(task.run())
            group.create_task(self._resync())

    async def _resync(self) -> None:
        while True:
            self.queues["nads"].add(ALL_NADS)
            await asyncio.sleep(RESYNC_INTERVAL)

    # Reconcilers

    async def _reconcile_nads(self, _: str) -> None:
        """Plan all NADs, and enqueue every network of the former and the new plan, and every node."""
        before = self._planner.plan
        after = self._planner.replan()
        self._index.recheck_claims()
        slice_pools = self._deps.informers.slice_pools.cache.values()
        published = (key.network for pool in slice_pools if (key := table_key(pool)))
        planned = (table.key.network for plan in (before, after) for table in plan.tables)
        refused = [""] if before.refused_ranges or after.refused_ranges else []
        sealed = _sealed_networks(self._index.unowned_pools.values())
        self._enqueue_networks((*planned, *published, *self._index.networks(), *sealed, *refused), now=True)
        self._enqueue_nodes()

    async def _reconcile_network(self, network: str) -> Requeue | None:
        if not self._is_planned():
            return Requeue(after=self._batch_delay())
        try:
            changed = await self._networks.reconcile(network)
        except PodpoolError:
            self._failing.add(network)
            raise
        self._failing.discard(network)
        for node in changed:
            self.queues["node_slices"].add(node)
        self.queues["node_slice_pools"].add_after(network, self._batch_delay())
        return None

    async def _reconcile_node(self, name: str) -> Requeue | None:
        return await self._nodes.reconcile(name) if self._planner.ready else Requeue(after=BATCH_DELAY)

    async def _publish(self, network: str) -> Requeue | None:
        if not self._is_planned():
            return Requeue(after=self._batch_delay())
        await self._networks.publish(network)
        return None

    def _is_planned(self) -> bool:
        """Return whether there is a plan that is not about to change."""
        return self._planner.ready and self.queues["nads"].idle

    def _awaited_networks(self) -> set[str]:
        """Return the networks that a new node waits for, so that all its slices are assigned in one write."""
        return {table.key.network for table in self._planner.plan.tables} - self._failing

    # Changes

    def _batch_delay(self) -> float:
        return max(BATCH_DELAY, BATCH_DELAY_PER_NODE * len(self._deps.nodes))

    def _enqueue_networks(self, networks: Iterable[str], *, now: bool = False) -> None:
        delay = 0.0 if now else self._batch_delay()
        for network in dict.fromkeys(networks):
            self.queues["networks"].add_after(network, delay)

    def _enqueue_nodes(self) -> None:
        for name in (*self._deps.nodes, *self._index.nodes(), *self._deps.informers.node_slices.cache):
            self.queues["node_slices"].add(name)

    def _enqueue_nads(self) -> None:
        self.queues["nads"].add_after(ALL_NADS, BATCH_DELAY)

    def _reset_node_gc(self) -> None:
        self._node_gc.reset()

    def on_vanished(self, node: str) -> None:
        """Ask all agents: the API server was restored, or a third party deleted an object."""
        self._inventory.on_restore_sign("an assignment in use disappeared", node)

    def on_unlisted(self, node: str) -> None:
        """Ask all agents: the API server was restored."""
        self._inventory.on_restore_sign("an agent holds what is not assigned to it", node, reported=True)

    def on_claims_ignored(self, node: str, claims: Sequence[Assignment]) -> None:
        """Report slices that an agent lists and cannot have been assigned."""
        slices = ", ".join(f"{each.slice} of network {each.network!r}" for each in claims[:4])
        log.warning(
            "agent reports slices that are in no range of their network, ignored; check recent changes",
            node=node,
            slices=slices,
        )
        obj = self._deps.nodes.get(node)
        if obj is not None:
            self._deps.events.slice_claims_ignored(obj, slices)

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        """Enqueue every network when a Node joins, is deleted or reports its boot ID; not for its heartbeats."""
        if old is not None and new is not None and old.boot_id == new.boot_id:
            return
        for node in filter(None, (old, new)):
            name = node.metadata.name
            owned = (each.network for each in self._index.of_node(name))
            self._enqueue_networks((*(table.key.network for table in self._planner.plan.tables), *owned))
            self.queues["node_slices"].add(name)

    def _on_node_slices_change(self, old: NodeSlices | None, new: NodeSlices | None) -> None:
        name = (new or old or NodeSlices()).metadata.name
        self.queues["node_slices"].add(name)
        if self._inventory.collecting:
            self._inventory.wake()
        rolled_back = new.status.rolled_back if new else ""
        if rolled_back and (old is None or old.status.rolled_back != rolled_back):
            self._inventory.on_rollback(name)

    def _on_slice_pool_change(self, name: str) -> None:
        planned = self._planner.plan.slice_pools.get(name)
        pool = self._slice_pools.get(name)
        published = table_key(pool) if pool else None
        for each in filter(None, (planned, published)):
            self.queues["node_slice_pools"].add_after(each.network, self._batch_delay())

    def on_unowned_change(self, old: IPPool | None, new: IPPool | None) -> None:
        """Enqueue the network in which a pool is sealed; if one was created or deleted, all networks."""
        networks = _sealed_networks(filter(None, (old, new)))
        if not networks and (old is None or new is None):
            networks = [table.key.network for table in self._planner.plan.tables]
        self._enqueue_networks(networks)

    def on_slices_change(self, node: str, old: tuple[OwnedSlice, ...], new: tuple[OwnedSlice, ...]) -> None:
        """Assign networks anew in which a node's slices differ from what was expected."""
        self.queues["node_slices"].add(node)
        gone = (each for each in old if each.key not in {now.key for now in new})
        unexpected = (each for each in new if each not in old and not self._networks.expected(each))
        for network in dict.fromkeys(each.network for each in (*gone, *unexpected)):
            self._desired.invalidate(network)
            self._enqueue_networks([network])


def _sealed_networks(pools: Iterable[IPPool]) -> list[str]:
    """Return the networks in which pools are sealed."""
    return [network for pool in pools if (network := sealed_network(pool)) is not None]

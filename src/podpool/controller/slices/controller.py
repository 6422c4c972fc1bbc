"""All that writes for slices, for as long as this controller leads."""

import asyncio
from collections.abc import Iterable

from podpool.api.builtin import Node
from podpool.api.meta import KubeObject
from podpool.api.whereabouts import IPPool
from podpool.controller.metrics import SliceMetrics
from podpool.controller.slices.deps import SliceDeps
from podpool.controller.slices.informers import WriteThroughCache
from podpool.controller.slices.inventory import SliceInventory
from podpool.controller.slices.nad_planner import NADPlanner, key_of
from podpool.controller.slices.node_gc import SliceNodeGC
from podpool.controller.slices.nodeslicepool_reconciler import NodeSlicePoolReconciler
from podpool.controller.slices.orphan_gc import IPPoolOrphanGC
from podpool.controller.slices.ownership import OwnedSlice, SliceOwnership
from podpool.controller.slices.shared_pool_seal import SharedPoolSeal, network_of
from podpool.controller.slices.slice_reconciler import SliceReconciler
from podpool.kube.workqueue import Requeue, WorkQueue, run_workers
from podpool.whereabouts.network_plan import SliceTableKey

GATHER = 0.2
"""Seconds for which news of a network wait for company: many nodes, one write."""
GATHER_EACH = 0.0005
"""The same for each node, where they are many: a table of 5,000 takes 0.1 s to make, and others want to work too."""
RESYNC = 300.0
"""Seconds after which everything is looked at again, whatever happened."""
AT_ONCE = 64
"""Slices that are worked on at the same time."""
ALL = "all"


class SliceController:
    """Reconcilers on keys: the definitions, networks by name, slices by the name of their IPPool."""

    def __init__(self, ground: SliceDeps) -> None:
        self.queues = {name: WorkQueue(rng=ground.rng) for name in ("plans", "networks", "slices")}
        self._ground = ground
        mirrors = ground.mirrors
        self._claims = SliceOwnership(mirrors, changed=self._claim_changed, strange=self._stranger_changed)
        self._shown = WriteThroughCache(mirrors.tables, changed=self._table_changed)
        self._plans = NADPlanner(mirrors, ground.nodes, ground.telling, flat_file=ground.settings.flat_file)
        self._hearing = SliceInventory(
            ground, self._claims, lacks=self._lacks, doubted=self._doubted, settled=self._look_at_all
        )
        self._offers = SliceReconciler(
            ground, self._claims, look=self.queues["slices"].add, may_give=lambda: self._hearing.is_over
        )
        self._shared = SharedPoolSeal(
            ground, self._claims, known=self._plans.known, may_open=lambda: self._hearing.is_over
        )
        self._tables = NodeSlicePoolReconciler(
            ground, self._plans, self._claims, self._offers, shared=self._shared, shown=self._shown
        )
        self._lost = SliceNodeGC(ground, self._claims, self._offers, self._plans)
        self._sweep = IPPoolOrphanGC(ground, self._claims)

    def meters(self) -> dict[tuple[str, str], SliceMetrics]:
        """Tell how each table is, by its network and range."""
        return self._tables.meters()

    async def run(self) -> None:
        """Work until cancelled, from the moment that the objects have been seen."""
        ground = self._ground
        await ground.mirrors.synced()
        for latest in (self._claims.pools, self._claims.leases, self._shown):
            await latest.read(ground.kube)  # as they are now, not as they have been shown
        endings = [
            ground.nodes.subscribe(self._node_changed),
            ground.mirrors.attachments.subscribe(self._definition_changed),
            self._shown.follow(),
        ]
        try:
            with self._claims.following():
                async with asyncio.TaskGroup() as group:
                    for name, reconcile, workers in (
                        ("plans", self._plan, 1),
                        ("networks", self._divide, 4),
                        ("slices", self._offers.reconcile, AT_ONCE),
                    ):
                        timed = ground.metrics.timed(name, reconcile)
                        group.create_task(run_workers(self.queues[name], timed, workers=workers))
                    group.create_task(self._hearing.run())
                    group.create_task(self._lost.run())
                    group.create_task(self._sweep.run())
                    group.create_task(self._resync())
        finally:
            for end in endings:
                end()

    async def _resync(self) -> None:
        while True:
            self.queues["plans"].add(ALL)
            await asyncio.sleep(RESYNC)

    async def _plan(self, _: str) -> None:
        """Read all definitions anew, and look at every network and slice that there is, was, or will be."""
        before = self._plans.networks
        after = self._plans.look()
        shown = (key.network for pool in self._ground.mirrors.tables.cache.values() if (key := key_of(pool)))
        planned = (plan.key.network for networks in (before, after) for plan in networks.tables)
        self._look_at((*planned, *shown, *self._claims.networks(), *_shut(self._claims.strangers.values())), now=True)
        self._look_at_all()
        self._hearing.stir()

    async def _divide(self, network: str) -> Requeue | None:
        planned = self._plans.looked and self.queues["plans"].idle  # and is not about to be planned anew
        return None if planned and await self._tables.reconcile(network) else Requeue(after=self._gather())

    def _gather(self) -> float:
        return max(GATHER, GATHER_EACH * len(self._ground.nodes))

    def _look_at(self, networks: Iterable[str], *, now: bool = False) -> None:
        wait = 0.0 if now else self._gather()
        for network in dict.fromkeys(networks):
            self.queues["networks"].add_after(network, wait)

    def _look_at_all(self) -> None:
        for name in (*self._offers.names(), *(claim.name for claim in self._claims.values())):
            self.queues["slices"].add(name)

    def _doubted(self) -> None:
        self._lost.forget()

    def _lacks(self, node: Node) -> bool:
        """Tell whether a Node has no slice where there are some to have."""
        sure = {
            SliceTableKey(each.network, each.range) for each in self._claims.of_node(node.metadata.name) if each.sure
        }
        return any(plan.key not in sure for plan in self._plans.networks.tables)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """Look at every network when a Node comes, goes or tells who it is; its heartbeat is no news."""
        if new is not None:
            self._hearing.hear(new)
        if old is not None and new is not None and old.boot_id == new.boot_id:
            return
        node = new or old
        self._look_at(plan.key.network for plan in self._plans.networks.tables)
        for claim in self._claims.of_node(node.metadata.name) if node else ():
            self.queues["slices"].add(claim.name)
            self._look_at([claim.network])

    def _definition_changed(self, _: KubeObject | None, __: KubeObject | None) -> None:
        self.queues["plans"].add_after(ALL, GATHER)

    def _table_changed(self, name: str) -> None:
        key = self._plans.networks.slice_pools.get(name)
        pool = self._shown.get(name)
        shown = key_of(pool) if pool else None
        self._look_at(each.network for each in (key, shown) if each)

    def _stranger_changed(self, old: IPPool | None, new: IPPool | None) -> None:
        """Look at the network in which a pool is shut; where one comes or goes, at all: it may have anything."""
        shut = _shut(filter(None, (old, new)))
        if not shut and (old is None or new is None):
            shut = [plan.key.network for plan in self._plans.networks.tables]
        self._look_at(shut)

    def _claim_changed(self, old: OwnedSlice | None, new: OwnedSlice | None) -> None:
        vanished = old is not None and old.taken and old.sure and old.lease != (new.lease if new else "")
        if old is not None and vanished and old.lease not in self._offers.ended:
            self._hearing.doubt()
        for claim in (old, new):
            if claim is not None:
                self.queues["slices"].add(claim.name)
                if not (new and self._tables.foresaw(claim)):
                    self._look_at([claim.network])


def _shut(pools: Iterable[IPPool]) -> list[str]:
    """List the networks in which pools are shut."""
    return [network for pool in pools if (network := network_of(pool)) is not None]

"""Node GC of slices: deletes the slices of deleted Nodes, including those that Whereabouts' own plugins created.

Invariant: that a Node is deleted is decided on quorum reads after `node_gc_delay`, never on a cache: the Node's UID
does not exist, no Node of that name reports the boot in which the agent took the slice, and while no Node of that name
exists, no unfinished Pod is bound to it. It is confirmed once more after the Lease is deleted: a node that is back by
then keeps its slice, one that comes later finds no Lease and assigns nothing. A pool without labels must also be empty.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import msgspec

from podpool.api.builtin import LEASES, NODES, Lease, Node
from podpool.api.whereabouts import IPPool
from podpool.controller.deps import SliceDeps
from podpool.controller.node_gc import CONCURRENCY, no_pods_bound, run_node_gc
from podpool.controller.slices.nad_planner import NADPlanner
from podpool.controller.slices.ownership import OwnedSlice, SliceOwnership
from podpool.controller.slices.slice_reconciler import SliceLeaseReconciler
from podpool.core.errors import PodpoolError
from podpool.core.two_observations import TwoObservations
from podpool.kube.errors import ApiNotFound
from podpool.kube.informer import quorum_get
from podpool.runtime.logging import get_logger
from podpool.whereabouts.ippool_owner import identify_pool

log = get_logger(__name__)


class SliceNodeGC:
    """Deletes slices whose Node has been missing for the delay."""

    def __init__(
        self, deps: SliceDeps, ownership: SliceOwnership, reconciler: SliceLeaseReconciler, planner: NADPlanner
    ) -> None:
        self._deps = deps
        self._ownership = ownership
        self._reconciler = reconciler
        self._planner = planner
        self._missing = TwoObservations[tuple[str, str]](deps.settings.common.node_gc_delay)
        """Missing Nodes, by name and UID; without a UID for pools without labels."""

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
            for owned in self._ownership.by_node(name):
                if owned.belongs_to(node):
                    self._missing.forget((name, owned.node_uid))

    def reset(self) -> None:
        """Start the delay anew: after a restore, deleted Nodes may exist again."""
        self._missing.clear()

    async def scan(self) -> None:
        """Record which Nodes are missing, and delete the slices of those that have been missing for the delay."""
        orphaned: dict[tuple[str, str], list[OwnedSlice]] = {}
        for owned in self._ownership.values():
            if owned.is_held and not owned.belongs_to(self._deps.nodes.get(owned.node)):
                orphaned.setdefault((owned.node, owned.node_uid), []).append(owned)
        unlabelled = {pool.metadata.name: node for pool, node in self._unlabelled()}
        missing = (*orphaned, *((node, "") for node in unlabelled.values()))
        due = set(self._missing.observe(missing, now=asyncio.get_running_loop().time()))
        tasks = [partial(self._try_release, orphaned[each]) for each in orphaned if each in due]
        gone = [(name, node) for name, node in unlabelled.items() if (node, "") in due]
        tasks += [partial(self._try_delete_unlabelled, name, node) for name, node in gone]
        for begin in range(0, len(tasks), CONCURRENCY):
            await asyncio.gather(*(each() for each in tasks[begin : begin + CONCURRENCY]))

    def _unlabelled(self) -> Iterator[tuple[IPPool, str]]:
        """Yield empty pools of slices without labels whose Node is missing."""
        known = self._planner.known_names()
        for pool in self._ownership.unowned_pools.values():
            identifier = None if pool.spec.allocations else identify_pool(pool, known)
            if identifier is None or not identifier.node or identifier.node in known.nodes:
                continue
            if self._planner.is_slice(identifier):
                yield pool, identifier.node

    async def _try_release(self, slices: list[OwnedSlice]) -> None:
        released = 0
        for owned in slices:
            try:
                released += await self._release(owned)
            except PodpoolError as error:
                self._deps.metrics.errors.labels("slice_node_gc").inc()
                log.info("cannot release slice, retrying", node=owned.node, pool=owned.name, error=error)
        if released:
            node, uid = slices[0].node, slices[0].node_uid
            log.info("node is gone, slices released", node=node, node_uid=uid, count=released)
            self._deps.metrics.orphans.labels("slice").inc(released)
            self._deps.events.slices_released(node=node, uid=uid, count=released)

    async def _try_delete_unlabelled(self, name: str, node: str) -> None:
        try:
            if await self._delete_unlabelled(name, node):
                log.info("node is gone, its empty IPPool deleted", node=node, pool=name)
                self._deps.metrics.orphans.labels("slice").inc()
        except PodpoolError as error:
            self._deps.metrics.errors.labels("slice_node_gc").inc()
            log.info("cannot delete IPPool, retrying", node=node, pool=name, error=error)

    async def _delete_unlabelled(self, name: str, node: str) -> bool:
        """Delete a pool at the version at which it was empty, and before it the Lease of its name."""
        pool = self._ownership.pools.get(name)
        if pool is None or pool.spec.allocations or not await self._is_absent(node):
            return False
        with suppress(ApiNotFound):
            lease = await self._deps.kube.get(LEASES, name, namespace=self._deps.namespace)
            await self._ownership.leases.delete(self._deps.kube, lease)
        await self._ownership.pools.delete(self._deps.kube, pool)
        return True

    async def _is_absent(self, node: str) -> bool:
        """Return whether no Node of a name exists, and no Pod is bound to it."""
        try:
            await quorum_get(self._deps.kube, NODES, node, cache=self._deps.nodes)
        except ApiNotFound:
            return await no_pods_bound(self._deps.kube, node)
        return False

    async def _release(self, owned: OwnedSlice) -> bool:
        current = self._ownership.refresh(owned.name)
        if current is None or current.node_uid != owned.node_uid or not await self._is_deleted(current):
            return False
        lease = self._ownership.leases.get(owned.name)
        if await self._reconciler.delete(current, still_due=partial(self._is_deleted, current)):
            self._ownership.drop_reported(owned.name)
            return True
        if lease is not None:
            await self._recreate(lease)
        return False

    async def _is_deleted(self, owned: OwnedSlice) -> bool:
        try:
            node = await quorum_get(self._deps.kube, NODES, owned.node, cache=self._deps.nodes)
        except ApiNotFound:
            return await no_pods_bound(self._deps.kube, owned.node)
        unidentified = owned.boot_id != "" and not node.boot_id
        return not unidentified and not owned.belongs_to(node)

    async def _recreate(self, lease: Lease) -> None:
        """Create a Lease again as it was: its node was registered again while it was being deleted."""
        meta = msgspec.structs.replace(lease.metadata, uid="", resource_version="", creation_timestamp=None)
        self._ownership.leases.put(await self._deps.kube.create(LEASES, msgspec.structs.replace(lease, metadata=meta)))

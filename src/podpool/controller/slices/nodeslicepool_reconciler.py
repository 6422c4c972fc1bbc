"""Reconciles the slice tables of one network: assigns slices to nodes and publishes them as NodeSlicePools.

Invariants:
- An assignment is made from the current ownership. Nothing is begun for a slice once it is assigned to another node.
- What a node may be using is read from the ownership, never from an assignment: that only says who gets what is free
  and who waits, the longest waiting first. A new leader reads the latter from the NodeSlicePool.
- A NodeSlicePool is written before its Leases are created, so that the next leader continues with the same ones. Before
  that, shared pools are sealed: slices with addresses in use from those are not assigned.

A slice that an assignment expected does not cause a new assignment. Otherwise each of thousands of nodes that join
would cause several.
"""

from collections.abc import Collection, Iterable

from podpool.api.builtin import Node
from podpool.api.multus import NetworkAttachmentDefinition
from podpool.api.whereabouts import NODE_SLICE_POOLS, NodeSlicePool, waiting_nodes
from podpool.controller.deps import SliceDeps
from podpool.controller.metrics import SliceMetrics
from podpool.controller.slices.informers import WriteThroughCache
from podpool.controller.slices.nad_planner import NADPlanner, table_key
from podpool.controller.slices.objects import (
    DesiredSlice,
    build_slice_pool,
    shortage_message,
    slice_pool_is_current,
    withheld_message,
)
from podpool.controller.slices.ownership import OwnedSlice, SliceOwnership, without_conflicts
from podpool.controller.slices.shared_pool_seal import SharedPoolSeal
from podpool.controller.slices.slice_reconciler import SliceLeaseReconciler
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix
from podpool.runtime.logging import get_logger
from podpool.whereabouts.ippool_owner import allocated_in_shared_pools, slices_in_use
from podpool.whereabouts.network_plan import SliceTableKey, SliceTablePlan
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_assignment import HeldSlice, LiveNode, SliceAssignment, assign_slices, read_assignment

log = get_logger(__name__)


class NodeSlicePoolReconciler:
    """Reconciles the slice tables of one network, by its name."""

    def __init__(
        self,
        deps: SliceDeps,
        planner: NADPlanner,
        ownership: SliceOwnership,
        slices: SliceLeaseReconciler,
        *,
        seal: SharedPoolSeal,
        slice_pools: WriteThroughCache[NodeSlicePool],
    ) -> None:
        self._deps = deps
        self._kube = deps.kube
        self._planner = planner
        self._ownership = ownership
        self._slices = slices
        self._seal = seal
        self._slice_pools = slice_pools
        self._assignments: dict[SliceTableKey, SliceAssignment] = {}
        self._conflicting: set[str] = set()
        """Networks with overlapping slices, in which the rank of each matters."""

    def metrics(self) -> dict[tuple[str, str], SliceMetrics]:
        """Return the metrics of each slice table by network and range."""
        return {
            (key.network, str(key.range)): SliceMetrics(
                assigned=len(assignment.assigned),
                nodes_waiting=len(assignment.waiting),
                resizing=len(assignment.outdated),
                conflicts=len(assignment.conflicts),
            )
            for key, assignment in self._assignments.items()
        }

    def expected(self, owned: OwnedSlice) -> bool:
        """Return whether a slice is as the assignments have it, so that it does not change them."""
        return owned.network not in self._conflicting and self._is_assigned(owned.network, owned.held_slice(None))

    async def reconcile(self, network: str) -> bool:
        """Assign the slices of a network and publish them. Returns False if ownership changed meanwhile."""
        plan, tables = self._planner.plan, self._tables(network)
        names = {table.key: [name for name, key in plan.slice_pools.items() if key == table.key] for table in tables}
        await self._seal.seal(network, self._sliced_ranges(network))
        owned = self._ownership.by_network(network)
        kept = without_conflicts(owned)
        nodes, in_use = self._identified_nodes(network), self._in_use(network, kept)
        assignments = {table.key: self._assign(table, names[table.key], nodes, in_use) for table in tables}
        wanted = (each for key, assignment in assignments.items() for each in _desired(key, assignment, nodes))
        desired = {each.name: each for each in wanted}
        self._slices.begin_assignment(network, desired)
        for table in tables:
            self._report(table, assignments[table.key], self._assignments.get(table.key), nodes)
        self._assignments |= assignments
        self._conflicting.discard(network)
        if len(kept) < len(owned) or any(assignment.conflicts for assignment in assignments.values()):
            self._conflicting.add(network)
        for key, assignment in assignments.items():
            for name in names[key]:
                await self._publish(name, key, assignment)
        if not self._is_unchanged(network, in_use):
            return False
        self._slices.set_desired(network, desired)
        await self._seal.unseal(network, keep=self._sliced_ranges(network))
        await self._delete_unused(network, assignments)
        return True

    def _assign(
        self, table: SliceTablePlan, names: Collection[str], nodes: dict[str, Node], in_use: Collection[HeldSlice]
    ) -> SliceAssignment:
        live = [LiveNode(node.metadata.name, node.metadata.uid) for node in nodes.values()]
        return assign_slices(table, nodes=live, in_use=in_use, previous=self._previous(table, names))

    def _tables(self, network: str) -> list[SliceTablePlan]:
        return [table for table in self._planner.plan.tables if table.key.network == network]

    def _sliced_ranges(self, network: str) -> list[Prefix]:
        """Return the ranges of which nodes have slices, or will have."""
        planned = (table.key.range for table in self._tables(network))
        owned = (range_ for each in self._ownership.by_network(network) for range_ in (each.range, each.slice))
        return _widest((*planned, *owned))

    def _is_unchanged(self, network: str, in_use: Collection[HeldSlice]) -> bool:
        """Return whether the same slices are in use as before, except for what the assignments expect."""
        now = set(self._in_use(network, without_conflicts(self._ownership.by_network(network))))
        before = set(in_use)
        return before <= now and all(self._is_assigned(network, each) for each in now - before)

    def _is_assigned(self, network: str, held: HeldSlice) -> bool:
        node = self._deps.nodes.get(held.node)
        if node is None or node.metadata.uid != held.uid:
            return False
        assignments = (each for key, each in self._assignments.items() if key.network == network)
        return any(each.assigned.get(held.node) == held.slice for each in assignments)

    def _identified_nodes(self, network: str) -> dict[str, Node]:
        """Return the Nodes in the order in which they joined, without those whose identity is not known yet."""
        nodes = list(self._deps.nodes.values())
        nodes.sort(key=lambda node: (node.metadata.creation_timestamp or "", node.metadata.name))
        return {node.metadata.name: node for node in nodes if node.boot_id or not self._may_be_same(node, network)}

    def _may_be_same(self, node: Node, network: str) -> bool:
        """Return whether a former Node of this name has a slice that the machine may be using."""
        slices = (each for each in self._ownership.by_node(node.metadata.name) if each.network == network)
        return any(each.boot_id and each.node_uid != node.metadata.uid for each in slices)

    def _in_use(self, network: str, owned: Iterable[OwnedSlice]) -> list[HeldSlice]:
        """Return what may be in use: owned slices, and what third parties allocated."""
        nodes = self._deps.nodes
        ours = [each.held_slice(nodes.get(each.node)) for each in owned]
        pools = self._ownership.unowned_pools.values()
        if not pools:
            return ours
        third_party = slices_in_use(pools, leased=(), known=self._planner.known_names(network))
        shared = self._seal.overlapping(network, [table.key.range for table in self._tables(network)])
        return [*ours, *third_party.get(network, ()), *allocated_in_shared_pools(shared)]

    def _previous(self, table: SliceTablePlan, names: Collection[str]) -> SliceAssignment | None:
        """Return the last assignment, or what a NodeSlicePool shows, perhaps of another range or size."""
        pool = next(filter(None, map(self._slice_pools.get, names)), None)
        if table.key in self._assignments or pool is None:
            return self._assignments.get(table.key)
        return read_assignment(pool, table.layout, waiting=waiting_nodes(pool))

    async def _publish(self, name: str, key: SliceTableKey, assignment: SliceAssignment) -> None:
        """Write an assignment to a NodeSlicePool, unless it is there."""
        pool, namespace = self._slice_pools.get(name), self._deps.namespace
        wanted = build_slice_pool(key, assignment, before=pool, now=self._deps.clock.wall())
        if pool is None:
            annotations = {key: value for key, value in wanted["metadata"]["annotations"].items() if value is not None}
            meta = {"name": name, "namespace": namespace, "annotations": annotations}
            self._slice_pools.put(await self._kube.create(NODE_SLICE_POOLS, {**wanted, "metadata": meta}))
        elif not slice_pool_is_current(pool, wanted):
            at = {"namespace": namespace, "precondition": pool.metadata.resource_version}
            self._slice_pools.put(await self._kube.merge_patch(NODE_SLICE_POOLS, name, wanted, **at))

    async def _delete_unused(self, network: str, assignments: Collection[SliceTableKey]) -> None:
        """Drop assignments that no NAD needs; their NodeSlicePools stay as long as a node has a slice."""
        for key in [each for each in self._assignments if each.network == network and each not in assignments]:
            del self._assignments[key]
        slices = [owned.slice for owned in self._ownership.by_network(network)]
        for pool in self._deps.informers.slice_pools.cache.values():
            table = table_key(pool)
            if table is None or table.network != network or pool.metadata.name in self._planner.plan.slice_pools:
                continue
            if not any(table.range.range.overlaps(each.range) for each in slices):
                await self._slice_pools.delete(self._kube, pool)

    def _report(
        self, table: SliceTablePlan, assignment: SliceAssignment, before: SliceAssignment | None, nodes: dict[str, Node]
    ) -> None:
        """Record Events about waiting nodes, withheld slices and conflicts that are new."""
        events, waited = self._deps.events, before.waiting if before else ()
        if assignment.waiting and assignment.waiting != waited:
            for nad in self._nads(table):
                events.insufficient_slices(nad, shortage_message(table.key, assignment))
            for name in [each for each in assignment.waiting if each not in waited]:
                events.no_free_slice(nodes[name], table.key)
        if assignment.withheld > (before.withheld if before else 0):
            for nad in self._nads(table):
                events.slices_withheld(nad, withheld_message(table.key, assignment))
        if before is None or assignment.conflicts != before.conflicts:
            for one, other in assignment.conflicts:
                self._report_conflict(table.key, one, other)
                self._report_conflict(table.key, other, one)

    def _nads(self, table: SliceTablePlan) -> list[NetworkAttachmentDefinition]:
        return list(filter(None, map(self._deps.informers.nads.get, table.nads)))

    def _report_conflict(self, key: SliceTableKey, one: HeldSlice, other: HeldSlice) -> None:
        names = [PoolIdentifier(range=each.slice, network=key.network, node=each.node).name for each in (one, other)]
        pool = self._ownership.pools.get(names[0]) if one.node else None
        if pool is not None:
            shared = f"{other.slice.at(0)} in a shared pool"
            self._deps.events.slice_conflict(pool, names[1] if other.node else shared)


def _desired(key: SliceTableKey, assignment: SliceAssignment, nodes: dict[str, Node]) -> list[DesiredSlice]:
    """Return the slices of an assignment; a node whose name is too long for an IPPool's name gets none."""
    conflicting = {(each.slice, each.node) for pair in assignment.conflicts for each in pair}
    desired = (
        DesiredSlice(
            identifier=PoolIdentifier(range=slice_, network=key.network, node=node),
            node_uid=nodes[node].metadata.uid,
            range=key.range,
            return_reason=_return_reason(assignment, slice_),
            conflicting=(slice_, node) in conflicting,
        )
        for node, slice_ in assignment.assigned.items()
    )
    return [each for each in desired if _has_valid_name(each)]


def _widest(ranges: Iterable[Prefix]) -> list[Prefix]:
    """Leave out ranges that are within another, such as slices within their range."""
    widest: list[Prefix] = []
    for each in sorted(set(ranges)):
        if not widest or not widest[-1].range.overlaps(each.range):
            widest.append(each)
    return widest


def _has_valid_name(desired: DesiredSlice) -> bool:
    try:
        return bool(desired.name)
    except InvalidInput as error:
        log.warning("IPPool name is invalid, node gets no slice", node=desired.identifier.node, reason=error)
        return False


def _return_reason(assignment: SliceAssignment, slice_: Prefix) -> str:
    """Return why a slice does not fit the layout, or an empty string."""
    layout = assignment.layout
    return "" if layout.contains(slice_) else f"{layout.range} is now divided into slices of /{layout.length}"

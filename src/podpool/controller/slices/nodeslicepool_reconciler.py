"""Reconciles the slice tables of one network: assigns slices to nodes and publishes them as NodeSlicePools.

Invariants:
- An assignment is made from the present ownership, at one time. Nothing is decided for a node from an outdated one.
- What a node may be using is read from the ownership, never from an assignment: that only says who gets what is free
  and who waits, the longest waiting first. A new leader reads the latter from the NodeSlicePool.
- Before a range is assigned, shared pools are sealed: slices with addresses in use from those are not assigned.

A slice that an assignment expected does not cause a new assignment: otherwise each of thousands of nodes that join
would cause several. NodeSlicePools follow from the assignments, and are written behind them, many changes at once.
"""

from collections.abc import Collection, Iterable, Iterator

from podpool.api.builtin import Node
from podpool.api.multus import NetworkAttachmentDefinition
from podpool.api.whereabouts import NODE_SLICE_POOLS, NodeSlicePool, waiting_nodes
from podpool.controller.deps import SliceDeps
from podpool.controller.metrics import SliceMetrics
from podpool.controller.slices.desired_slice_store import DesiredSlices, NetworkSlices
from podpool.controller.slices.nad_planner import NADPlanner, table_key
from podpool.controller.slices.node_slices_spec import DesiredSlice
from podpool.controller.slices.nodeslicepool import (
    build_slice_pool,
    shortage_message,
    slice_pool_is_current,
    withheld_message,
)
from podpool.controller.slices.read_your_writes_cache import ReadYourWritesCache
from podpool.controller.slices.shared_to_sliced_cutover import SharedPoolSeal
from podpool.controller.slices.slice_index import SliceIndex
from podpool.controller.slices.slice_ownership import Conflicts, OwnedSlice, SliceState, resolve_conflicts
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix
from podpool.runtime.logging import get_logger
from podpool.whereabouts.ippool_identity import allocated_in_shared_pools, slices_in_use
from podpool.whereabouts.network_plan import SliceTableKey, SliceTablePlan
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_assignment import HeldSlice, SliceAssignment, assign_slices, read_assignment

MAX_NAMES = 200
"""Characters of network and node with which the name of an IPPool is not too long: a slice has at most 43."""

log = get_logger(__name__)


class NodeSlicePoolReconciler:
    """Reconciles the slice tables of one network, by its name."""

    def __init__(
        self,
        deps: SliceDeps,
        planner: NADPlanner,
        index: SliceIndex,
        desired: DesiredSlices,
        *,
        seal: SharedPoolSeal,
        slice_pools: ReadYourWritesCache[NodeSlicePool],
    ) -> None:
        self._deps = deps
        self._kube = deps.kube
        self._planner = planner
        self._index = index
        self._desired = desired
        self._seal = seal
        self._slice_pools = slice_pools
        self._assignments: dict[SliceTableKey, SliceAssignment] = {}
        self._conflicting: set[str] = set()
        """Networks with overlapping slices, in which the state of each matters."""

    def metrics(self) -> dict[tuple[str, str], SliceMetrics]:
        """Return the metrics of each slice table by network and range."""
        return {
            (key.network, str(key.range)): SliceMetrics(
                assigned=len(assignment.assigned),
                free=assignment.free,
                nodes_waiting=len(assignment.waiting),
                resizing=len(assignment.outdated),
                conflicts=len(assignment.conflicts),
            )
            for key, assignment in self._assignments.items()
        }

    def expected(self, owned: OwnedSlice) -> bool:
        """Return whether a slice is as the assignments have it, so that it does not change them."""
        node = self._deps.nodes.get(owned.node)
        if node is None or owned.network in self._conflicting or not owned.belongs_to(node):
            return False
        assignments = (each for key, each in self._assignments.items() if key.network == owned.network)
        return any(each.assigned.get(owned.node) == owned.slice for each in assignments)

    async def reconcile(self, network: str) -> Iterable[str]:
        """Assign the slices of a network, and return the nodes for which that changed something."""
        sealed: list[Prefix] = []
        while sealed != (ranges := self._sliced_ranges(network)):
            await self._seal.seal(network, ranges)
            sealed = ranges
        tables = self._tables(network)
        self._claim_rows(network, [each for each in tables if each.key not in self._assignments])
        conflicts = resolve_conflicts(self._index.of_network(network))
        uids, in_use = self._identified_nodes(network), self._in_use(network, conflicts)
        assignments = {
            each.key: assign_slices(each, nodes=uids, in_use=in_use, previous=self._previous(each)) for each in tables
        }
        for table in tables:
            self._report(table, assignments[table.key], self._assignments.get(table.key))
        self._set_assignments(network, assignments)
        self._conflicting.discard(network)
        excluded = len(conflicts.kept) < len(self._index.of_network(network))
        if excluded or conflicts.blocked or any(each.conflicts for each in assignments.values()):
            self._conflicting.add(network)
        slices = NetworkSlices(by_node=_desired(assignments), node_uids=uids, blocked=conflicts.blocked)
        return self._desired.replace(network, slices)

    async def publish(self, network: str) -> None:
        """Write the NodeSlicePools of a network, and delete those that no NAD needs; then unseal unused pools."""
        for name, key in self._planner.plan.slice_pools.items():
            if key in self._assignments and key.network == network:
                await self._write(name, key, self._assignments[key])
        for pool in self._deps.informers.slice_pools.cache.values():
            shown = table_key(pool)
            if shown and shown.network == network and pool.metadata.name not in self._planner.plan.slice_pools:
                await self._slice_pools.delete(self._kube, pool)
        await self._seal.unseal(network, keep=self._sliced_ranges(network))

    def _set_assignments(self, network: str, assignments: dict[SliceTableKey, SliceAssignment]) -> None:
        others = {key: each for key, each in self._assignments.items() if key.network != network}
        self._assignments = others | assignments

    def _tables(self, network: str) -> list[SliceTablePlan]:
        return [table for table in self._planner.plan.tables if table.key.network == network]

    def _sliced_ranges(self, network: str) -> list[Prefix]:
        """Return the ranges of which nodes have slices, or will have."""
        planned = {table.key.range for table in self._tables(network)}
        others = (
            range_
            for each in self._index.of_network(network)
            if each.range not in planned or each.slice.length < each.range.length
            for range_ in (each.range, each.slice)
        )
        return _widest((*planned, *others, *self._planner.refused_ranges(network)))

    def _identified_nodes(self, network: str) -> dict[str, str]:
        """Return UIDs by name, in the order in which Nodes joined, without those whose identity is not known yet."""
        nodes = [each for each in self._deps.nodes.values() if each.boot_id or not self._may_be_same(each, network)]
        nodes.sort(key=lambda node: (node.metadata.creation_timestamp or "", node.metadata.name))
        return {node.metadata.name: node.metadata.uid for node in nodes}

    def _may_be_same(self, node: Node, network: str) -> bool:
        """Return whether a former Node of this name has a slice that the machine may be using."""
        slices = (each for each in self._index.of_node(node.metadata.name) if each.network == network)
        return any(each.boot_id and each.node_uid != node.metadata.uid for each in slices)

    def _in_use(self, network: str, conflicts: Conflicts) -> list[HeldSlice]:
        """Return what may be in use: owned slices, and what third parties allocated."""
        nodes = self._deps.nodes
        ours = [each.held_slice(nodes.get(each.node), disputed=conflicts.is_disputed(each)) for each in conflicts.kept]
        pools = self._index.unowned_pools.values()
        if not pools:
            return ours
        third_party = slices_in_use(pools, known=self._planner.known_names(network))
        shared = self._seal.overlapping(network, [table.key.range for table in self._tables(network)])
        return [*ours, *third_party.get(network, ()), *allocated_in_shared_pools(shared)]

    # NodeSlicePools

    def _pools(self, key: SliceTableKey) -> Iterator[NodeSlicePool]:
        names = (name for name, each in self._planner.plan.slice_pools.items() if each == key)
        yield from filter(None, map(self._slice_pools.get, names))

    def _previous(self, table: SliceTablePlan) -> SliceAssignment | None:
        """Return the last assignment, or what a NodeSlicePool shows, perhaps of another range or size."""
        pool = next(self._pools(table.key), None)
        if table.key in self._assignments or pool is None:
            return self._assignments.get(table.key)
        return read_assignment(pool, table.layout, waiting=waiting_nodes(pool))

    def _claim_rows(self, network: str, tables: Collection[SliceTablePlan]) -> None:
        """Count the slices that NodeSlicePools show when they are first read, and that no object has."""
        known = {each.slice for each in self._index.of_network(network)} if tables else ()
        for key, layout, pool in [(each.key, each.layout, pool) for each in tables for pool in self._pools(each.key)]:
            for node, slice_ in read_assignment(pool, layout).assigned.items():
                if slice_ not in known and not self._index.has_answered(node):
                    state = SliceState.HELD
                    row = OwnedSlice(
                        id="", network=network, range=key.range, slice=slice_, node=node, node_uid="", state=state
                    )
                    self._index.claim(node, [row])

    async def _write(self, name: str, key: SliceTableKey, assignment: SliceAssignment) -> None:
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

    # Events

    def _report(self, table: SliceTablePlan, assignment: SliceAssignment, before: SliceAssignment | None) -> None:
        """Record Events about waiting nodes, withheld slices and conflicts that are new."""
        events, waited = self._deps.events, before.waiting if before else ()
        if assignment.waiting and assignment.waiting != waited:
            for nad in self._nads(table):
                events.insufficient_slices(nad, shortage_message(table.key, assignment))
            for node in map(self._deps.nodes.get, (each for each in assignment.waiting if each not in waited)):
                if node:
                    events.no_free_slice(node, table.key)
        if assignment.withheld > (before.withheld if before else 0):
            for nad in self._nads(table):
                events.slices_withheld(nad, withheld_message(table.key, assignment))
        if before is None or assignment.conflicts != before.conflicts:
            for one, other in assignment.conflicts:
                self._report_conflict(one, other)
                self._report_conflict(other, one)

    def _nads(self, table: SliceTablePlan) -> list[NetworkAttachmentDefinition]:
        return list(filter(None, map(self._deps.informers.nads.get, table.nads)))

    def _report_conflict(self, one: HeldSlice, other: HeldSlice) -> None:
        obj = self._index.objects.get(one.node) if one.node else None
        if obj is not None:
            rival = f"{other.slice} of node {other.node}" if other.node else f"{other.slice.at(0)} in a shared pool"
            self._deps.events.slice_conflict(obj, str(one.slice), rival)


def _desired(assignments: dict[SliceTableKey, SliceAssignment]) -> dict[str, tuple[DesiredSlice, ...]]:
    """Return the slices of each node; one whose name is too long for an IPPool's name gets none."""
    desired: dict[str, tuple[DesiredSlice, ...]] = {}
    for key, assignment in assignments.items():
        conflicting = {(each.slice, each.node) for pair in assignment.conflicts for each in pair}
        for node, slice_ in assignment.assigned.items():
            if _has_valid_name(key.network, node, slice_):
                each = DesiredSlice(
                    network=key.network,
                    range=key.range,
                    slice=slice_,
                    return_reason=_return_reason(assignment, slice_),
                    conflicting=(slice_, node) in conflicting,
                )
                desired[node] = (*desired.get(node, ()), each)
    return desired


def _widest(ranges: Iterable[Prefix]) -> list[Prefix]:
    """Leave out ranges that are within another, such as slices within their range."""
    widest: list[Prefix] = []
    for each in sorted(set(ranges)):
        if not widest or not widest[-1].range.overlaps(each.range):
            widest.append(each)
    return widest


def _has_valid_name(network: str, node: str, slice_: Prefix) -> bool:
    if len(network) + len(node) <= MAX_NAMES:  # of thousands of nodes few have long names
        return True
    try:
        return bool(PoolIdentifier(range=slice_, network=network, node=node).name)
    except InvalidInput as error:
        log.warning(
            "network and node name give no valid IPPool name, node gets no slice: rename the network",
            node=node,
            reason=error,
        )
        return False


def _return_reason(assignment: SliceAssignment, slice_: Prefix) -> str:
    """Return why a slice does not fit the layout, or an empty string."""
    layout = assignment.layout
    return "" if layout.contains(slice_) else f"{layout.range} is now divided into slices of /{layout.length}"

"""Assignment of the slices of a network's range to nodes.

Invariants, for any change of nodes, range and slice size:
- A slice that a node may be using stays assigned to it until its agent returns it or the node is gone.
- No other assigned slice overlaps it.
- A node that stays keeps its slice.
- No node waits while a slice is free. The node that has waited longest is served first.

A node is its name and its UID: a machine that is registered again under its name gets another slice while the first
may be in use. Slices in which every address is excluded are not assigned.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from podpool.api.whereabouts import NodeSlicePool, SliceAllocation
from podpool.core.range_spec import RangeSpec
from podpool.core.ranges import Prefix, RangeSet, find_prefix, overlapping_pairs
from podpool.core.slice_table import SliceLayout, SliceTable
from podpool.whereabouts.network_plan import SliceTablePlan

MAX_LISTED_BYTES = 1_200_000
"""Bytes of listed slices in a NodeSlicePool, below the 1.5 MiB of an object."""
LISTED_SLICE_BYTES = 48
"""Bytes of a listed slice without its node's name."""


class HeldSlice(msgspec.Struct, frozen=True, order=True):
    """A slice that a node may be using: its agent holds it and has not returned it, and the node is not gone.

    Without a node: a single address that is allocated from the range as a shared range.
    """

    slice: Prefix
    node: str
    uid: str = ""
    """Of the Node at that time; empty when a third-party plugin uses it."""
    disputed: bool = False
    """Another node may use its addresses: the node gets another slice, and should return this one."""


class SliceAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """Which node has which slice."""

    layout: SliceLayout
    assigned: Mapping[str, Prefix] = {}
    """By node name."""
    waiting: tuple[str, ...] = ()
    """Nodes without a slice, the longest waiting first."""
    free: int = 0
    """How many slices are left."""
    others_in_use: tuple[HeldSlice, ...] = ()
    """Other slices in use: of deleted or replaced nodes, of nodes that have another slice, and shared addresses."""
    conflicts: tuple[tuple[HeldSlice, HeldSlice], ...] = ()
    """Overlapping slices in use by two nodes, which a third party must have written."""

    @property
    def outdated(self) -> tuple[str, ...]:
        """The nodes whose slice is of an earlier range or size."""
        return tuple(node for node, slice_ in self.assigned.items() if not self.layout.contains(slice_))

    @property
    def shared(self) -> tuple[Prefix, ...]:
        """Addresses allocated from the range as a shared range. Slices that contain one are not assigned."""
        return tuple(each.slice for each in self.others_in_use if not each.node)

    @property
    def withheld(self) -> int:
        """How many slices are not assigned because of shared addresses."""
        covered = (self.layout.overlapping(each) for each in self.shared)
        numbers = {run[0] for run in covered if run}
        return len(numbers - {run[0] for run in map(self.layout.overlapping, self.assigned.values()) if run})


def assign_slices(
    plan: SliceTablePlan,
    *,
    nodes: Mapping[str, str],
    in_use: Iterable[HeldSlice] = (),
    previous: SliceAssignment | None = None,
) -> SliceAssignment:
    """Return the next assignment.

    `nodes` are the UIDs of Nodes by name, in the order in which they joined. `previous` may have another layout.
    `in_use` contains the slices of the whole network: one of another range, from before a change, counts where the two
    overlap.
    """
    before = previous or SliceAssignment(layout=plan.layout)
    own, others, conflicts = _partition(before, plan.layout, nodes, in_use)
    conflicting = {later for _, later in conflicts}
    blocked = [plan.layout.overlapping(each.slice) for each in (*others, *conflicting)]
    table = SliceTable(
        plan.layout,
        held={node: each.slice for node, each in own.items() if each not in conflicting},
        closed=(*filter(None, blocked), *unusable_slices(plan.layout, plan.range_specs)),
    )
    unassigned = dict.fromkeys(each for each in nodes if each not in own)
    for node in filter(unassigned.__contains__, before.assigned):
        table.adopt(node, before.assigned[node])
    for node in (*filter(unassigned.__contains__, (*before.assigned, *before.waiting)), *unassigned):
        table.join(node)
    return SliceAssignment(
        layout=plan.layout,
        assigned={**table.held, **{node: each.slice for node, each in own.items() if each in conflicting}},
        waiting=table.waiting,
        free=table.free,
        others_in_use=tuple(others),
        conflicts=conflicts,
    )


def _partition(
    before: SliceAssignment, layout: SliceLayout, nodes: Mapping[str, str], in_use: Iterable[HeldSlice]
) -> tuple[dict[str, HeldSlice], list[HeldSlice], tuple[tuple[HeldSlice, HeldSlice], ...]]:
    """Divide the slices in use: one per live node, all others, and those of either that conflict.

    A node with several keeps the one that fits the layout, else the one that it had before. One without a UID is not
    its own if a former Node of that name has it.
    """
    relevant = sorted(each for each in set(in_use) if layout.overlapping(each.slice))
    former = {(each.node, each.slice) for each in relevant if each.uid not in ("", nodes.get(each.node))}
    own: dict[str, HeldSlice] = {}
    previous = before.assigned.get
    for held in sorted(relevant, key=lambda each: (not layout.contains(each.slice), each.slice != previous(each.node))):
        is_own = held.uid == nodes.get(held.node) or (not held.uid and (held.node, held.slice) not in former)
        if held.node in nodes and is_own and not held.disputed:
            own.setdefault(held.node, held)
    others = [each for each in relevant if own.get(each.node) != each]
    pairs = overlapping_pairs(relevant, lambda each: each.slice.range)
    return own, others, tuple(each for each in pairs if not _may_be_same_node(*each))


def _may_be_same_node(one: HeldSlice, other: HeldSlice) -> bool:
    return one.node == other.node and (one.uid == other.uid or "" in (one.uid, other.uid))


def unusable_slices(layout: SliceLayout, range_specs: Sequence[RangeSpec]) -> list[tuple[int, int]]:
    """Return the numbers, in runs, of the slices from which no NAD could allocate an address."""
    whole, size = layout.range.range, 1 << (layout.range.family.bits - layout.length)
    usable = RangeSet.of(each for spec in range_specs for each in spec.members.ranges)
    gaps = RangeSet((whole,)) - usable if range_specs else RangeSet()
    offsets = ((gap.first - whole.first, gap.last - whole.first) for gap in gaps.ranges)
    runs = ((-(-(first - 1) // size), (last + 2) // size - 1) for first, last in offsets)
    return [(max(first, 0), min(last, layout.count - 1)) for first, last in runs if first <= last]


def usable_addresses(range_spec: RangeSpec, slice_: Prefix) -> RangeSet:
    """Return what a node may allocate: what is allowed in its slice, without its first and last address."""
    return range_spec.members.within(slice_.usable)


def slice_allocations(assignment: SliceAssignment) -> tuple[SliceAllocation, ...]:
    """Return the status of a NodeSlicePool: all slices, or only the assigned ones if all do not fit into an object.

    The slice of a deleted node is listed under its name until another node has that name. A slice that is blocked by
    shared addresses is not listed.
    """
    present = {*assignment.assigned, *assignment.waiting}
    others = {each.slice: "" if each.node in present else each.node for each in assignment.others_in_use if each.node}
    owners = others | {slice_: node for node, slice_ in assignment.assigned.items()}
    size = assignment.layout.count * LISTED_SLICE_BYTES + sum(map(len, assignment.assigned))
    free = _free(assignment, owners) if size <= MAX_LISTED_BYTES else ()
    listed = sorted((*owners.items(), *((slice_, "") for slice_ in free)))
    return tuple(SliceAllocation(node_name=node, slice_range=str(slice_)) for slice_, node in listed)


def _free(assignment: SliceAssignment, owners: Mapping[Prefix, str]) -> Iterable[Prefix]:
    layout = assignment.layout
    covered = [layout.overlapping(slice_) for slice_ in (*owners, *assignment.shared)]
    taken = {number for run in covered if run for number in range(run[0], run[1] + 1)}
    return (layout.slice(number) for number in range(layout.count) if number not in taken)


def read_assignment(pool: NodeSlicePool, layout: SliceLayout, *, waiting: tuple[str, ...] = ()) -> SliceAssignment:
    """Return the assignment that a NodeSlicePool shows. Invalid slices are skipped."""
    assigned: dict[str, Prefix] = {}
    for each in pool.status.allocations:
        slice_ = find_prefix(each.slice_range)
        if each.node_name and slice_:
            assigned.setdefault(each.node_name, slice_)
    return SliceAssignment(layout=layout, assigned=assigned, waiting=waiting)

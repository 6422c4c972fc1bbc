"""The slice table of a network's range: which node has which slice, and who waits.

What must hold, whatever the nodes, the range and the size become: a slice that a node may be using stays that node's
until its agent hands it back or the node is gone; no other slice that is given shares an address with it; a node that
stays keeps its slice; nobody waits beside a slice that is free, and the longest waiting is served first.

A node is its name and its UID: a machine that comes back under the old name gets another slice, as long as the first
one's may be in use. Slices that have nothing to give, because everything in them is excluded, are given to nobody.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from podpool.api.whereabouts import NodeSlicePool, SliceAllocation
from podpool.core.errors import InvalidInput
from podpool.core.range_spec import RangeSpec
from podpool.core.ranges import Prefix, RangeSet, parse_prefix
from podpool.core.slice_table import SliceLayout, SliceTable
from podpool.whereabouts.network_plan import SliceTablePlan

LARGEST_LIST = 1_200_000
"""Bytes of slices in an object, which holds 1.5 MiB in all."""
LISTED = 48
"""Bytes of a listed slice beside its node's name."""


class LiveNode(msgspec.Struct, frozen=True, order=True):
    """A Node that exists."""

    name: str
    uid: str = ""


class HeldSlice(msgspec.Struct, frozen=True, order=True):
    """A slice that a node may be using: its agent took it and has not handed it back, and the node is not gone.

    Or, without a node, a single address that somebody has from a range that all nodes shared.
    """

    slice: Prefix
    node: str
    uid: str = ""
    """Of the Node at the time; empty when a foreign plugin took it."""


class SliceAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """Who has which slice."""

    cut: SliceLayout
    held: Mapping[str, Prefix] = {}
    """By the node's name."""
    waiting: tuple[str, ...] = ()
    """Longest waiting first."""
    left_behind: tuple[HeldSlice, ...] = ()
    """What else may be in use: by nodes that do not exist any more, or exist anew, or have another slice already."""
    disputed: tuple[tuple[HeldSlice, HeldSlice], ...] = ()
    """Slices in use of two nodes that share an address: somebody wrote past us."""

    @property
    def misfits(self) -> tuple[str, ...]:
        """The nodes that still have a slice of an earlier range or size."""
        return tuple(node for node, slice_ in self.held.items() if not self.cut.has(slice_))

    @property
    def shared(self) -> tuple[Prefix, ...]:
        """The addresses that somebody has from the range as all nodes shared it; slices with them are nobody's."""
        return tuple(each.slice for each in self.left_behind if not each.node)

    @property
    def kept_back(self) -> int:
        """How many slices nobody gets because of those."""
        covered = (self.cut.covered(each) for each in self.shared)
        numbers = {run[0] for run in covered if run}
        return len(numbers - {run[0] for run in map(self.cut.covered, self.held.values()) if run})


def assign_slices(
    plan: SliceTablePlan,
    *,
    nodes: Sequence[LiveNode],
    in_use: Iterable[HeldSlice] = (),
    previous: SliceAssignment | None = None,
) -> SliceAssignment:
    """Decide who has which slice from now on.

    Nodes come in the order in which they joined. The table before may be of another range or size. What is in use is
    told of the whole network: a slice of another range, from before that was changed, counts where the two overlap.
    """
    before = previous or SliceAssignment(cut=plan.cut)
    own, others, disputed = _sorted_out(before, plan.cut, nodes, in_use)
    twice = {later for _, later in disputed}
    blocked = [plan.cut.covered(each.slice) for each in (*others, *twice)]
    table = SliceTable(
        plan.cut,
        held={node: each.slice for node, each in own.items() if each not in twice},
        closed=(*filter(None, blocked), *unusable_slices(plan.cut, plan.allowed)),
    )
    free = [each.name for each in nodes if each.name not in own]
    present = set(free)
    for node in filter(present.__contains__, before.held):
        table.keep(node, before.held[node])
    for node in (*filter(present.__contains__, (*before.held, *before.waiting)), *free):
        table.join(node)
    return SliceAssignment(
        cut=plan.cut,
        held={**table.held, **{node: each.slice for node, each in own.items() if each in twice}},
        waiting=table.waiting,
        left_behind=tuple(others),
        disputed=disputed,
    )


def _sorted_out(
    before: SliceAssignment, cut: SliceLayout, nodes: Sequence[LiveNode], in_use: Iterable[HeldSlice]
) -> tuple[dict[str, HeldSlice], list[HeldSlice], tuple[tuple[HeldSlice, HeldSlice], ...]]:
    """Tell the slices in use apart: one for each living node, all others, and those of either that are disputed.

    Of several a node goes on with the one that fits, or else that it had in the table before.
    """
    relevant = sorted(each for each in set(in_use) if cut.covered(each.slice))
    living = {each.name: each.uid for each in nodes}
    own: dict[str, HeldSlice] = {}
    had = before.held.get
    for holding in sorted(relevant, key=lambda each: (not cut.has(each.slice), each.slice != had(each.node))):
        if holding.node in living and holding.uid in ("", living[holding.node]):
            own.setdefault(holding.node, holding)
    others = [each for each in relevant if own.get(each.node) != each]
    return own, others, tuple(_disputed(relevant))


def _disputed(ordered: Sequence[HeldSlice]) -> Iterator[tuple[HeldSlice, HeldSlice]]:
    """Compare each with the one before it that reaches furthest."""
    furthest: HeldSlice | None = None
    for holding in ordered:
        shared = furthest is not None and furthest.slice.range.overlaps(holding.slice.range)
        if furthest and shared and not _may_be_one(furthest, holding):
            yield furthest, holding
        if furthest is None or holding.slice.range.last > furthest.slice.range.last:
            furthest = holding


def _may_be_one(one: HeldSlice, other: HeldSlice) -> bool:
    return one.node == other.node and (one.uid == other.uid or "" in (one.uid, other.uid))


def unusable_slices(cut: SliceLayout, allowed: Sequence[RangeSpec]) -> list[tuple[int, int]]:
    """Number the slices, in runs, that no attachment could give an address from."""
    whole, size = cut.range.range, 1 << (cut.range.family.bits - cut.length)
    given = RangeSet.of(each for one in allowed for each in one.members.ranges)
    gaps = RangeSet((whole,)) - given if allowed else RangeSet()
    offsets = ((gap.first - whole.first, gap.last - whole.first) for gap in gaps.ranges)
    runs = ((-(-(first - 1) // size), (last + 2) // size - 1) for first, last in offsets)
    return [(max(first, 0), min(last, cut.count - 1)) for first, last in runs if first <= last]


def usable_addresses(allowed: RangeSpec, slice_: Prefix) -> RangeSet:
    """Find what a node may give: what the configuration allows, in its slice, but for the slice's first and last."""
    return allowed.members.within(slice_.usable)


def slice_allocations(table: SliceAssignment) -> tuple[SliceAllocation, ...]:
    """Write a table for a NodeSlicePool: every slice, or, when that is too much for an object, those that are held.

    A slice that a node left behind is listed under its name until another node has the name; one that nobody may have
    because of addresses that are shared is not listed.
    """
    present = {*table.held, *table.waiting}
    left = {each.slice: "" if each.node in present else each.node for each in table.left_behind if each.node}
    owners = left | {slice_: node for node, slice_ in table.held.items()}
    size = table.cut.count * LISTED + sum(map(len, table.held))
    free = _free(table, owners) if size <= LARGEST_LIST else ()
    shown = sorted((*owners.items(), *((slice_, "") for slice_ in free)))
    return tuple(SliceAllocation(node_name=node, slice_range=str(slice_)) for slice_, node in shown)


def _free(table: SliceAssignment, owners: Mapping[Prefix, str]) -> Iterable[Prefix]:
    covered = [table.cut.covered(slice_) for slice_ in (*owners, *table.shared)]
    taken = {number for run in covered if run for number in range(run[0], run[1] + 1)}
    return (table.cut.slice(number) for number in range(table.cut.count) if number not in taken)


def read_assignment(pool: NodeSlicePool, cut: SliceLayout, *, waiting: tuple[str, ...] = ()) -> SliceAssignment:
    """Take up a table where a NodeSlicePool shows it; what is no slice is nobody's."""
    held: dict[str, Prefix] = {}
    for each in pool.status.allocations:
        slice_ = _read_slice(each.slice_range)
        if each.node_name and slice_:
            held.setdefault(each.node_name, slice_)
    return SliceAssignment(cut=cut, held=held, waiting=waiting)


def _read_slice(text: str) -> Prefix | None:
    try:
        return parse_prefix(text, what="sliceRange")
    except InvalidInput:
        return None

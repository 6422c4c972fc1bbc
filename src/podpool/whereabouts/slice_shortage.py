"""More nodes than slices: how many slices a table has, and which range or slice size would suffice. Pure."""

from podpool.core.ranges import Prefix
from podpool.core.slice_table import SliceLayout
from podpool.whereabouts.network_plan import SliceTablePlan
from podpool.whereabouts.slice_assignment import unusable_slices

KEPT = "a node keeps a slice of another size until nothing in it is in use"


def available_slices(plan: SliceTablePlan) -> int:
    """Return how many slices can be assigned: those from which a NAD may allocate an address."""
    unusable = unusable_slices(plan.layout, plan.range_specs)
    return plan.layout.count - len({number for first, last in unusable for number in range(first, last + 1)})


def shortage_remedy(layout: SliceLayout, *, available: int, nodes: int) -> str:
    """Return what provides slices for so many nodes if only some are available: a larger range, or smaller slices."""
    doublings = _doublings(available or layout.count, nodes)
    range_ = layout.range
    remedies = []
    if doublings <= range_.length:
        remedies.append(f"a larger range, such as {_around(range_, range_.length - doublings)}")
    length = layout.length + doublings
    if length <= range_.family.bits - 2:
        usable = Prefix(range_.family, range_.network, length).usable.size
        remedies.append(f"node_slice_size /{length} ({usable} addresses per node; {KEPT})")
    return f"use {', or '.join(remedies)}" if remedies else "use a larger range"


def _doublings(available: int, nodes: int) -> int:
    """Return how often the number of slices must be doubled."""
    return max(1, (-(-nodes // available) - 1).bit_length())


def _around(range_: Prefix, length: int) -> Prefix:
    """Return the shorter prefix that contains a range."""
    size = range_.family.bits - length
    return Prefix(range_.family, range_.network >> size << size, length)

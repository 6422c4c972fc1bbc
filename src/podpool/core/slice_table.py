"""Slice table: a range divided into equal slices, each assigned to one node.

Invariants: slices of two nodes never overlap; a node keeps its slice whatever other nodes do; a node whose slice is in
use keeps it when the slice size changes, until it returns it. A node for which no slice is left waits, and gets the
next free one before nodes that came later.

Slices are numbered, not listed: fd00::/16 divided into /64s costs nothing, and a join costs O(log n).
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from podpool.core.bitmap import Bitmap
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix


class SliceLayout(msgspec.Struct, frozen=True):
    """A range divided into prefixes of one length."""

    range: Prefix
    length: int

    @property
    def count(self) -> int:
        """The number of slices."""
        return 1 << (self.length - self.range.length)

    def slice(self, number: int) -> Prefix:
        """Return a slice by its number."""
        size = self.range.family.bits - self.length
        return Prefix(self.range.family, self.range.network + (number << size), self.length)

    def contains(self, prefix: Prefix) -> bool:
        """Return whether a prefix is one of the slices: prefixes of one length are equal or disjoint."""
        return prefix.length == self.length and self.range.range.overlaps(prefix.range)

    def overlapping(self, prefix: Prefix) -> tuple[int, int] | None:
        """Return the numbers of the first and last slice that share an address with a prefix, or None."""
        ours, theirs = self.range.range, prefix.range
        if not ours.overlaps(theirs):
            return None
        size = self.range.family.bits - self.length
        first = max(theirs.first, ours.first) - ours.first
        last = min(theirs.last, ours.last) - ours.first
        return first >> size, last >> size


def parse_slice_size(text: str, *, of: Prefix) -> SliceLayout:
    """Parse `/24` or `24`, and check it against the range to divide."""
    digits = text.removeprefix("/")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 3):
        raise InvalidInput("node_slice_size", text, "not a prefix length: write it as /24")
    length = int(digits)
    if not of.length <= length <= of.family.bits:
        reason = f"does not divide {of}: use /{of.length} to /{of.family.bits}"
        raise InvalidInput("node_slice_size", text, reason)
    return SliceLayout(of, length)


class SliceTable:
    """The slice of each node, and the nodes that wait for one."""

    def __init__(
        self,
        layout: SliceLayout,
        *,
        held: Mapping[str, Prefix] | None = None,
        waiting: Iterable[str] = (),
        closed: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Start with the slices that nodes hold; one of another size blocks the slices that it overlaps.

        Slices whose numbers are in a `closed` run, first and last included, are not assigned.
        """
        self.layout = layout
        self._closed = tuple(closed)
        self._held = dict(held or {})
        self._waiting = OrderedDict.fromkeys(waiting)
        _refuse_overlaps(self._held)
        self._taken = self._occupied()

    @property
    def held(self) -> Mapping[str, Prefix]:
        """The slice of each node that has one."""
        return self._held

    @property
    def waiting(self) -> tuple[str, ...]:
        """The nodes without a slice, longest waiting first."""
        return tuple(self._waiting)

    @property
    def free(self) -> int:
        """How many slices can be assigned."""
        return self.layout.count - self._taken.count

    def join(self, node: str) -> Prefix | None:
        """Return the slice of a node, the lowest free one if it has none yet; None while none is free."""
        if node not in self._held:
            self._waiting.setdefault(node)
            self._serve()
        return self._held.get(node)

    def adopt(self, node: str, slice_: Prefix) -> bool:
        """Assign this slice to a node without one, if it is of this layout and free; return whether it did."""
        covered = self.layout.overlapping(slice_)
        if node in self._held or not covered or not self.layout.contains(slice_) or covered[0] in self._taken:
            return False
        self._waiting.pop(node, None)
        self._taken.add(covered[0])
        self._held[node] = slice_
        return True

    def _serve(self) -> None:
        """Assign free slices to the waiting nodes, in order."""
        while self._waiting:
            number = self._taken.first_absent()
            if number is None:
                break
            node, _ = self._waiting.popitem(last=False)
            self._taken.add(number)
            self._held[node] = self.layout.slice(number)

    def _occupied(self) -> Bitmap:
        numbers = map(self.layout.overlapping, self._held.values())
        return Bitmap(self.layout.count, full=(*self._closed, *filter(None, numbers)))


def _refuse_overlaps(held: Mapping[str, Prefix]) -> None:
    ordered = sorted((slice_.range, node) for node, slice_ in held.items())
    for (lower, first), (upper, second) in pairwise(ordered):
        if lower.overlaps(upper):
            reason = f"overlaps the slice of node {first!r}, {lower}: one of the two must return it"
            raise InvalidInput(f"slice of node {second!r}", str(upper), reason)

"""Slices: a range cut into equal parts, each the property of one node.

What must hold: slices of two nodes never overlap; a node keeps its slice whatever other nodes do; a node whose slice
is in use keeps it even when the range is cut anew, until it hands it back. A node beyond the last slice waits, and gets
the next one that is free before any that came later.

Slices are numbered, not listed: cutting fd00::/16 into /64s costs nothing, and a join or leave costs O(log n).
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from podpool.core.bitmap import Bitmap
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.ranges import Prefix


class NoSuchSlice(PodpoolError):
    """A node that has no slice was asked to hand one back."""

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node!r} has no slice")
        self.node = node


class SliceLayout(msgspec.Struct, frozen=True):
    """How a range is divided: into prefixes of one length."""

    range: Prefix
    length: int

    @property
    def count(self) -> int:
        """How many slices there are."""
        return 1 << (self.length - self.range.length)

    def slice(self, number: int) -> Prefix:
        """Find a slice by its number."""
        size = self.range.family.bits - self.length
        return Prefix(self.range.family, self.range.network + (number << size), self.length)

    def contains(self, prefix: Prefix) -> bool:
        """Tell whether a prefix is one of the slices: prefixes of one length are equal or apart."""
        return prefix.length == self.length and self.range.range.overlaps(prefix.range)

    def overlapping(self, taken: Prefix) -> tuple[int, int] | None:
        """Number the slices, first and last, that share an address with a prefix."""
        ours, theirs = self.range.range, taken.range
        if not ours.overlaps(theirs):
            return None
        size = self.range.family.bits - self.length
        first = max(theirs.first, ours.first) - ours.first
        last = min(theirs.last, ours.last) - ours.first
        return first >> size, last >> size


def parse_slice_size(text: str, *, of: Prefix) -> SliceLayout:
    """Read `/24` or `24`, and check it against the range that is to be cut."""
    digits = text.removeprefix("/")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 3):
        raise InvalidInput("node_slice_size", text, "not a prefix length: write it as /24")
    length = int(digits)
    if not of.length <= length <= of.family.bits:
        reason = f"does not divide {of}: use /{of.length} to /{of.family.bits}"
        raise InvalidInput("node_slice_size", text, reason)
    return SliceLayout(of, length)


class SliceTable:
    """Which node has which slice of a range, and who waits for one."""

    def __init__(
        self,
        layout: SliceLayout,
        *,
        held: Mapping[str, Prefix] | None = None,
        waiting: Iterable[str] = (),
        closed: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Begin with what nodes hold already; a slice of another cut blocks those that it overlaps.

        Slices whose numbers are in a closed run, first and last included, are given to nobody.
        """
        self.layout = layout
        self._closed = tuple(closed)
        self._held = dict(held or {})
        self._waiting = OrderedDict.fromkeys(waiting)
        _refuse_overlaps(self._held)
        self._taken = self._blocked()

    @property
    def held(self) -> Mapping[str, Prefix]:
        """The slice of each node that has one."""
        return self._held

    @property
    def waiting(self) -> tuple[str, ...]:
        """The nodes beyond the last slice, longest waiting first."""
        return tuple(self._waiting)

    def join(self, node: str) -> Prefix | None:
        """Give a node its slice, the lowest that is free; the same again when it has one; none when none is left."""
        if node not in self._held:
            self._waiting.setdefault(node)
            self._serve()
        return self._held.get(node)

    def adopt(self, node: str, slice_: Prefix) -> bool:
        """Let a node go on with the slice that it has, when that is one of this cut's and free; tell whether it is."""
        covered = self.layout.overlapping(slice_)
        if node in self._held or not covered or not self.layout.contains(slice_) or covered[0] in self._taken:
            return False
        self._waiting.pop(node, None)
        self._taken.add(covered[0])
        self._held[node] = slice_
        return True

    def leave(self, node: str) -> tuple[str, ...]:
        """Take back the slice that a node has let go of; tell which waiting nodes got one for it."""
        if node in self._waiting:
            del self._waiting[node]
            return ()
        if node not in self._held:
            raise NoSuchSlice(node)
        freed = self._held.pop(node)
        covered = self.layout.overlapping(freed)
        if covered and self.layout.contains(freed) and not self._closed:
            self._taken.discard(covered[0])
        else:
            self._taken = self._blocked()  # rare: something else may block the same numbers
        return self._serve()

    def _serve(self) -> tuple[str, ...]:
        """Give what is free to those who wait, in order."""
        served: list[str] = []
        while self._waiting:
            number = self._taken.first_absent()
            if number is None:
                break
            node, _ = self._waiting.popitem(last=False)
            self._taken.add(number)
            self._held[node] = self.layout.slice(number)
            served.append(node)
        return tuple(served)

    def _blocked(self) -> Bitmap:
        numbers = map(self.layout.overlapping, self._held.values())
        return Bitmap(self.layout.count, full=(*self._closed, *filter(None, numbers)))


def _refuse_overlaps(held: Mapping[str, Prefix]) -> None:
    ordered = sorted((slice_.range, node) for node, slice_ in held.items())
    for (lower, first), (upper, second) in pairwise(ordered):
        if lower.overlaps(upper):
            reason = f"overlaps the slice of node {first!r}, {lower}: one of the two must let go of it"
            raise InvalidInput(f"slice of node {second!r}", str(upper), reason)

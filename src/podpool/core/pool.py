"""A pool of addresses: which are free, taken or resting, and which comes next.

What must hold: an address is in one state at a time, and `take` never yields one that is not free. Every operation
costs O(log n), at a million addresses and with the last one free as well as in an empty IPv6 /64.

The pool has no clock: an address rests from the moment that its owner names, until `wake` is called with a later one.
A rest that is over stays over, whatever the cooldown becomes afterwards.
"""

import enum
import math
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from podpool.core.bitmap import Bitmap
from podpool.core.errors import InvalidInput, PoolExhausted, WrongState
from podpool.core.ranges import Range, RangeSet, parse_range


class Order(enum.Enum):
    """Which of the free addresses comes next."""

    LOWEST = "lowest"
    """The lowest, as secondary-network users expect it."""
    LONGEST_RESTED = "longest-rested"
    """One that was never used, else the one whose rest began first: an address comes back as late as possible."""


class State(enum.Enum):
    """What an address is to the pool."""

    FREE = "free"
    TAKEN = "taken"
    RESTING = "resting"
    ABSENT = "not in the pool"


class PoolSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pool in words that can be written down; whatever is not listed and not absent is free."""

    span: str
    order: Order
    absent: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    resting: tuple[tuple[str, float], ...] = ()
    """Addresses with the moment that their rest began, earliest first."""
    rested: tuple[str, ...] = ()
    """Free addresses that were used before, longest rested first."""


class Pool:
    """The addresses of a span, or some of them."""

    def __init__(self, span: Range, *, members: RangeSet | None = None, order: Order = Order.LOWEST) -> None:
        """Begin with every member free; without `members` that is the whole span."""
        self.span = span
        self.order = order
        gaps = RangeSet((span,)) - members if members is not None else RangeSet()
        self._out = Bitmap(span.size, full=self._offsets(gaps))  # all but the free ones that `first_absent` may find
        self._absent = Bitmap(span.size, full=self._offsets(gaps))
        self._resting: OrderedDict[int, float] = OrderedDict()
        self._rested: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """How many can be taken now."""
        return self.span.size - self._out.count + len(self._rested)

    @property
    def taken(self) -> int:
        """How many are in use."""
        return self._out.count - self._absent.count - len(self._resting) - len(self._rested)

    @property
    def resting(self) -> int:
        """How many were used and must not be given yet."""
        return len(self._resting)

    def state(self, address: int) -> State:
        """Tell what an address is to the pool."""
        offset = address - self.span.first
        if address not in self.span or offset in self._absent:
            return State.ABSENT
        if offset in self._resting:
            return State.RESTING
        if offset in self._rested or offset not in self._out:
            return State.FREE
        return State.TAKEN

    def take(self) -> int:
        """Take the next free address."""
        offset = self._out.first_absent()
        if offset is not None:
            self._out.add(offset)
        elif self._rested:
            offset, _ = self._rested.popitem(last=False)
        else:
            raise PoolExhausted(taken=self.taken, resting=self.resting)
        return self.span.first + offset

    def take_this(self, address: int) -> None:
        """Take one certain free address."""
        offset = self._offset(address, needed=State.FREE)
        if offset in self._rested:
            del self._rested[offset]
        else:
            self._out.add(offset)

    def give_back(self, address: int) -> None:
        """Free a taken address that nobody used: it need not rest."""
        self._out.discard(self._offset(address, needed=State.TAKEN))

    def rest(self, address: int, *, since: float) -> None:
        """Let a taken address rest. One that comes late joins at the end: it rests longer, never shorter."""
        offset = self._offset(address, needed=State.TAKEN)
        latest = next(reversed(self._resting.values()), since)
        self._resting[offset] = max(since, latest)

    def wake(self, *, before: float) -> int:
        """End the rest of every address that has rested since `before` or longer; tell how many."""
        woken = 0
        while self._resting and next(iter(self._resting.values())) <= before:
            offset, _ = self._resting.popitem(last=False)
            if self.order is Order.LOWEST:
                self._out.discard(offset)
            else:
                self._rested[offset] = None
            woken += 1
        return woken

    def add(self, address: int) -> None:
        """Bring an address into the pool, free."""
        offset = self._offset(address, needed=State.ABSENT)
        self._absent.discard(offset)
        self._out.discard(offset)

    def forget(self, address: int) -> None:
        """Let an address leave the pool, whatever its state."""
        if self.state(address) is State.ABSENT:
            raise self._wrong(address, needed=f"one of {self.span}")
        offset = address - self.span.first
        if offset not in self._out:
            self._out.add(offset)
        self._resting.pop(offset, None)
        self._rested.pop(offset, None)
        self._absent.add(offset)

    def snapshot(self) -> PoolSnapshot:
        """Write the pool down."""
        others = RangeSet.of(self._stretch(each, each) for each in (*self._resting, *self._rested))
        absent = RangeSet(tuple(self._stretch(*run) for run in self._absent.runs()))
        out = RangeSet(tuple(self._stretch(*run) for run in self._out.runs()))
        return PoolSnapshot(
            span=str(self.span),
            order=self.order,
            absent=tuple(map(str, absent.ranges)),
            taken=tuple(map(str, (out - absent - others).ranges)),
            resting=tuple((self._text(offset), since) for offset, since in self._resting.items()),
            rested=tuple(self._text(offset) for offset in self._rested),
        )

    @classmethod
    def restore(cls, snapshot: PoolSnapshot) -> "Pool":
        """Make the pool that a snapshot tells of."""
        span = parse_range(snapshot.span, what="span")
        pool = cls(span, order=snapshot.order)
        listed = (
            _listed(snapshot.absent, span, what="absent"),
            _listed(snapshot.taken, span, what="taken"),
            _listed((address for address, _ in snapshot.resting), span, what="resting", single=True),
            _listed(snapshot.rested, span, what="rested", single=True),
        )
        out = RangeSet.of(each for ranges in listed for each in ranges)
        if out.size != sum(each.size for ranges in listed for each in ranges):
            raise InvalidInput("snapshot", snapshot.span, "an address is listed twice")
        pool._out = Bitmap(span.size, full=pool._offsets(out))
        pool._absent = Bitmap(span.size, full=pool._offsets(RangeSet.of(listed[0])))
        if snapshot.rested and snapshot.order is Order.LOWEST:
            raise InvalidInput("rested", snapshot.rested[0], "a pool that gives the lowest keeps no such order")
        moments = [since for _, since in snapshot.resting]
        if not all(map(math.isfinite, moments)) or moments != sorted(moments):
            raise InvalidInput("resting", moments, "must be in the order in which the rests began")
        pool._resting.update((each.first - span.first, since) for each, since in zip(listed[2], moments, strict=True))
        pool._rested.update((each.first - span.first, None) for each in listed[3])
        return pool

    def _offset(self, address: int, *, needed: State) -> int:
        if self.state(address) is not needed or address not in self.span:
            raise self._wrong(address, needed=needed.value)
        return address - self.span.first

    def _wrong(self, address: int, *, needed: str) -> WrongState:
        known = 0 <= address <= self.span.family.highest
        text = self.span.family.text(address) if known else str(address)
        return WrongState(text, state=self.state(address).value, needed=needed)

    def _offsets(self, ranges: RangeSet) -> Iterable[tuple[int, int]]:
        return ((each.first - self.span.first, each.last - self.span.first) for each in ranges.ranges)

    def _stretch(self, first: int, last: int) -> Range:
        return Range(self.span.family, self.span.first + first, self.span.first + last)

    def _text(self, offset: int) -> str:
        return self.span.family.text(self.span.first + offset)


def _listed(texts: Iterable[str], span: Range, *, what: str, single: bool = False) -> list[Range]:
    ranges = [parse_range(text, what=what) for text in texts]
    for each in ranges:
        if each.family is not span.family or each.first < span.first or each.last > span.last:
            raise InvalidInput(what, str(each), f"is not in the span {span}")
        if single and each.size > 1:
            raise InvalidInput(what, str(each), "must be single addresses")
    return ranges

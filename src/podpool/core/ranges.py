"""Address ranges, prefixes (CIDRs) and sets of ranges.

Invariant: a `RangeSet` is sorted, its ranges neither overlap nor touch, and all are of one family. The cost of every
operation depends on the number of ranges, never on the number of addresses: `::/0` is as cheap as a /30.
"""

import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput, quoted

T = TypeVar("T")


class Range(msgspec.Struct, frozen=True, order=True):
    """A contiguous range of addresses, first and last included, never empty."""

    family: Family
    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of addresses."""
        return self.last - self.first + 1

    def __contains__(self, value: int) -> bool:
        return self.first <= value <= self.last

    def overlaps(self, other: "Range") -> bool:
        """Return whether the ranges share an address."""
        return self.family is other.family and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return f"{self.family.text(self.first)}-{self.family.text(self.last)}"


class Prefix(msgspec.Struct, frozen=True, order=True):
    """A network in CIDR notation, without host bits."""

    family: Family
    network: int
    length: int

    @property
    def host_bits(self) -> int:
        """The number of host bits."""
        return self.family.bits - self.length

    @property
    def range(self) -> Range:
        """All its addresses, as a range."""
        return Range(self.family, self.network, self.network + (1 << self.host_bits) - 1)

    @property
    def usable(self) -> Range:
        """All but the first and the last address, for IPv6 too, as Whereabouts counts."""
        if self.host_bits < 2:
            longest = self.family.bits - 2
            raise InvalidInput("range", str(self), f"has no usable address: use a prefix of /{longest} or shorter")
        return Range(self.family, self.network + 1, self.range.last - 1)

    def __contains__(self, address: Address) -> bool:
        return address.family is self.family and address.value in self.range

    def offset(self, address: Address) -> int:
        """Return the distance of an address from the network address."""
        if address not in self:
            raise InvalidInput("address", str(address), f"is not in {self}")
        return address.value - self.network

    def at(self, offset: int) -> Address:
        """Return the address with this offset."""
        if not 0 <= offset < 1 << self.host_bits:
            raise InvalidInput("offset", offset, f"is outside {self}")
        return Address(self.family, self.network + offset)

    def __str__(self) -> str:
        return f"{self.family.text(self.network)}/{self.length}"


class RangeSet(msgspec.Struct, frozen=True):
    """A set of addresses of one family, as sorted ranges with gaps between them."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> "RangeSet":
        """Return the union of ranges."""
        joined: list[Range] = []
        for each in sorted(ranges):
            if joined and each.family is not joined[-1].family:
                raise InvalidInput("ranges", f"{joined[-1]}, {each}", "IPv4 and IPv6 cannot be in one set: use two")
            if joined and each.first <= joined[-1].last + 1:
                joined[-1] = Range(each.family, joined[-1].first, max(each.last, joined[-1].last))
            else:
                joined.append(each)
        return cls(tuple(joined))

    @property
    def size(self) -> int:
        """The number of addresses."""
        return sum(each.size for each in self.ranges)

    def __contains__(self, value: int) -> bool:
        at = bisect_right(self.ranges, value, key=lambda each: each.first)
        return at > 0 and value in self.ranges[at - 1]

    def __sub__(self, other: "RangeSet") -> "RangeSet":
        """Return the difference of two sets, in one pass."""
        left: list[Range] = []
        cuts = [cut for cut in other.ranges if self.ranges and cut.family is self.ranges[0].family]
        at = 0
        for each in self.ranges:
            first = each.first
            while at < len(cuts) and cuts[at].last < first:
                at += 1
            here = at
            while here < len(cuts) and cuts[here].first <= each.last:
                if first < cuts[here].first:
                    left.append(Range(each.family, first, cuts[here].first - 1))
                first = cuts[here].last + 1
                here += 1
            if first <= each.last:
                left.append(Range(each.family, first, each.last))
        return RangeSet(tuple(left))

    def within(self, bounds: Range) -> "RangeSet":
        """Return the part inside the bounds."""
        kept = (
            Range(each.family, max(each.first, bounds.first), min(each.last, bounds.last))
            for each in self.ranges
            if each.overlaps(bounds)
        )
        return RangeSet(tuple(kept))


def overlapping_pairs(ordered: Iterable[T], range_of: Callable[[T], Range]) -> Iterator[tuple[T, T]]:
    """Compare each item with the one before it that ends last. The items are in the order of their ranges."""
    last: T | None = None
    for each in ordered:
        if last is not None and range_of(last).overlaps(range_of(each)):
            yield last, each
        if last is None or range_of(each).last > range_of(last).last:
            last = each


@functools.lru_cache(maxsize=256)  # an agent parses the few subnets of its pool again with every ADD
def parse_prefix(text: str, *, what: str = "range", leading_zeros: bool = False) -> Prefix:
    """Parse CIDR notation and clear host bits: `192.168.2.225/24` is `192.168.2.0/24`."""
    address_text, slash, length_text = text.partition("/")
    if not slash:
        raise InvalidInput(what, text, "not in CIDR notation: write ADDRESS/LENGTH")
    try:
        address = parse_address(address_text, what=what, leading_zeros=leading_zeros)
    except InvalidInput as error:
        raise InvalidInput(what, text, f"{quoted(address_text)} is {error.reason}") from None
    length = _parse_length(length_text, of=text, what=what)
    if ":" in address_text and address.family is Family.V4:
        if length < 96:
            address = Address(Family.V6, address.value | 0xFFFF_0000_0000)
        else:
            length -= 96
    return prefix_of(address, length, what=what, text=text)


def find_prefix(text: str) -> Prefix | None:
    """Return the prefix that a text of another program is; None if it is none."""
    try:
        return parse_prefix(text)
    except InvalidInput:
        return None


def prefix_of(address: Address, length: int, *, what: str = "range", text: str | None = None) -> Prefix:
    """Return the network of this length that contains an address."""
    host_bits = address.family.bits - length
    if host_bits < 0:
        reason = f"prefix length {length} is longer than an IPv{address.family} address ({address.family.bits})"
        raise InvalidInput(what, text or f"{address}/{length}", reason)
    return Prefix(address.family, address.value >> host_bits << host_bits, length)


def parse_exclusion(text: str, *, what: str = "exclude") -> Range:
    """Parse an excluded range: a single address, or CIDR notation."""
    if "/" in text:
        return parse_prefix(text, what=what).range
    address = parse_address(text, what=what)
    return Range(address.family, address.value, address.value)


def parse_range(text: str, *, what: str = "range") -> Range:
    """Parse the text of a `Range`: `10.0.0.4-10.0.0.9`, or one address."""
    first_text, dash, last_text = text.partition("-")
    try:
        first = parse_address(first_text, what=what)
        last = parse_address(last_text, what=what) if dash else first
    except InvalidInput as error:
        raise InvalidInput(what, text, f"{quoted(error.value)} is {error.reason}") from None
    if first.family is not last.family or first.value > last.value:
        raise InvalidInput(what, text, "the last address must follow the first, in the same family")
    return Range(first.family, first.value, last.value)


def _parse_length(text: str, *, of: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise InvalidInput(what, of, f"{quoted(text)} is not a prefix length")
    return int(text)

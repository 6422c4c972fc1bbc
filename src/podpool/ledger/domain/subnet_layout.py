"""The addresses of a subnet, and the block and slot of each.

Capacity is the size of the CIDRs less network and broadcast address of each (IPv4), gateway, and excluded ranges. A
block is 64 consecutive addresses, counted from the start of its segment. Blocks without a usable address are never
created, so an IPv6 /64 with half of it excluded costs nothing.

Invariant: an address stays in its slot when the subnet grows. Added addresses are therefore segments of their own,
whose blocks are numbered after all earlier ones.
"""

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, Range, RangeSet, parse_prefix, parse_range
from podpool.ledger.messages import SubnetGrowth

BLOCK_SIZE = 64
"""Addresses in a block. The row stays below 2 KB; a row of 7 KB halves the rate."""

_MAX_HOST_BITS = 68
_MAX_BLOCKS = 1 << 63
"""A block number must fit into 63 bits."""


class Segment(msgspec.Struct, frozen=True):
    """Addresses that were added together, and the number of their first block."""

    first: int
    last: int
    base: int

    @property
    def end(self) -> int:
        """The number after its last block."""
        return self.base + -(-(self.last - self.first + 1) // BLOCK_SIZE)

    def first_address(self, number: int) -> int:
        """Return the first address of a block."""
        return self.first + (number - self.base) * BLOCK_SIZE


class SubnetLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The CIDRs of a subnet, and which of their addresses can be granted."""

    prefixes: tuple[Prefix, ...]
    """None contains another; the one that the subnet was created with, or a larger one around it, comes first."""
    segments: tuple[Segment, ...]
    """In order of their blocks."""
    cidrs: tuple[str, ...]
    """The prefixes as text."""
    members: RangeSet
    """The addresses that can be granted."""
    capacity: int
    """How many those are."""
    excluded: int
    """How many usable addresses are never granted: the gateway and the excluded ranges."""

    @property
    def family(self) -> Family:
        """IPv4 or IPv6."""
        return self.prefixes[0].family

    @property
    def edges(self) -> tuple[int, ...]:
        """The first and the last address of each CIDR."""
        return tuple(end for each in self.prefixes for end in (each.range.first, each.range.last))

    def locate(self, address: int) -> tuple[int, int]:
        """Return the block and the slot of an address."""
        for segment in self.segments:
            if segment.first <= address <= segment.last:
                block, slot = divmod(address - segment.first, BLOCK_SIZE)
                return segment.base + block, slot
        raise AssertionError(f"{self.text(address)} is not in {self}")

    def address(self, block: int, slot: int) -> int:
        """Return the address of a slot."""
        return self._segment(block).first_address(block) + slot

    def slots(self, block: int) -> list[int]:
        """Return the slots of a block that can be granted."""
        segment = self._segment(block)
        first = segment.first_address(block)
        inside = self.members.within(Range(self.family, first, min(first + BLOCK_SIZE - 1, segment.last)))
        return [value - first for each in inside.ranges for value in range(each.first, each.last + 1)]

    def next_block(self, at_least: int) -> int | None:
        """Return the first block from this one on with an address that can be granted."""
        for segment in self.segments:
            start = segment.first_address(max(at_least, segment.base))
            at = bisect_left(self.members.ranges, start, key=lambda each: each.last)
            if at < len(self.members.ranges):
                found = max(start, self.members.ranges[at].first)
                if found <= segment.last:
                    return segment.base + (found - segment.first) // BLOCK_SIZE
        return None

    def overlaps(self, other: "SubnetLayout") -> Prefix | None:
        """Return a CIDR of another subnet that overlaps one of this."""
        pairs = ((mine, theirs) for mine in self.prefixes for theirs in other.prefixes)
        return next((theirs for mine, theirs in pairs if mine.range.overlaps(theirs.range)), None)

    def text(self, address: int) -> str:
        """Format an address."""
        return self.family.text(address)

    def parse(self, text: str, *, what: str) -> int:
        """Parse an address that can be granted."""
        address = parse_address(text, what=what)
        if address.family is not self.family or address.value not in self.members:
            raise InvalidInput(what, text, f"is not an address of {self} that can be granted")
        return address.value

    def _segment(self, block: int) -> Segment:
        for segment in self.segments:
            if block < segment.end:
                return segment
        raise AssertionError(f"{self} has no block {block}")

    def __str__(self) -> str:
        return ", ".join(self.cidrs)


@lru_cache(maxsize=4096)
def subnet_layout(
    cidr: str, gateway: str | None, excluded_ranges: tuple[str, ...], growths: tuple[SubnetGrowth, ...] = ()
) -> SubnetLayout:
    """Return the layout of a subnet, from the fields of its spec and its growths."""
    prefixes: tuple[Prefix, ...] = ()
    segments: tuple[Segment, ...] = ()
    for each in (_parse_cidr(cidr), *(_parse_cidr(growth.cidr) for growth in growths)):
        segments += tuple(_new_segments(each, prefixes, base=segments[-1].end if segments else 0))
        prefixes = _merge(prefixes, each)
    if segments[-1].end > _MAX_BLOCKS:
        raise InvalidInput("cidr", str(prefixes[-1]), "makes the subnet too large: create another subnet")
    texts = (*excluded_ranges, *(text for growth in growths for text in growth.excluded_ranges))
    excluded = [_parse_excluded(text, prefixes) for text in texts]
    if gateway is not None:
        value = _require_inside(parse_address(gateway, what="gateway"), prefixes).value
        excluded.append(Range(prefixes[0].family, value, value))
    usable = RangeSet.of(map(_usable, prefixes))
    members = usable - RangeSet.of(excluded)
    if not members.size:
        remedy = f"leaves no address of {prefixes[0]}: exclude less"
        raise InvalidInput("excluded_ranges", ", ".join(excluded_ranges), remedy)
    return SubnetLayout(
        prefixes=prefixes,
        segments=segments,
        cidrs=tuple(map(str, prefixes)),
        members=members,
        capacity=members.size,
        excluded=usable.size - members.size,
    )


def _usable(prefix: Prefix) -> Range:
    return prefix.usable if prefix.family is Family.V4 else prefix.range


def _new_segments(new: Prefix, prefixes: Iterable[Prefix], *, base: int) -> Iterable[Segment]:
    """Yield the segments that a CIDR adds."""
    for each in (RangeSet((new.range,)) - RangeSet.of([old.range for old in prefixes])).ranges:
        segment = Segment(each.first, each.last, base)
        base = segment.end
        yield segment


def _merge(prefixes: tuple[Prefix, ...], new: Prefix) -> tuple[Prefix, ...]:
    """Return the prefixes with a new one, which replaces those that it contains."""
    for old in prefixes:
        if old.family is not new.family:
            raise InvalidInput("cidr", str(new), f"is not of the address family of {old}: create another subnet")
        if old.range.overlaps(new.range) and old.length <= new.length:
            raise InvalidInput("cidr", str(new), f"is part of {old}, which the subnet has already")
    kept = [old for old in prefixes if not old.range.overlaps(new.range)]
    first = not prefixes or prefixes[0] not in kept
    return (new, *kept) if first else (*kept, new)


def _parse_cidr(cidr: str) -> Prefix:
    prefix = parse_prefix(cidr, what="cidr")
    if parse_address(cidr.partition("/")[0], what="cidr").value != prefix.network:
        raise InvalidInput("cidr", cidr, f"has host bits set: use {prefix}")
    if prefix.host_bits < 2:
        raise InvalidInput("cidr", cidr, f"is too small: use /{prefix.family.bits - 2} or shorter")
    if prefix.host_bits > _MAX_HOST_BITS:
        raise InvalidInput("cidr", cidr, f"is too large: use /{prefix.family.bits - _MAX_HOST_BITS} or longer")
    return prefix


def _parse_excluded(text: str, prefixes: tuple[Prefix, ...]) -> Range:
    what = "excluded_ranges"
    excluded = parse_prefix(text, what=what).range if "/" in text else parse_range(text, what=what)
    if not any(excluded.overlaps(each.range) for each in prefixes):
        raise InvalidInput(what, text, f"is not in {', '.join(map(str, prefixes))}")
    return excluded


def _require_inside(address: Address, prefixes: tuple[Prefix, ...]) -> Address:
    if not any(address.family is each.family and address.value in each.range for each in prefixes):
        raise InvalidInput("gateway", str(address), f"is not in {', '.join(map(str, prefixes))}")
    return address

"""The addresses of a subnet: which there are, and in which block and slot each is kept.

Capacity is the size of its CIDRs less network and broadcast address of each (IPv4), gateway, and what is kept back. A
block is 64 addresses in a row, counted from where its stretch begins; blocks without a single member are never made, so
an IPv6 /64 with half of it kept back costs nothing.

What must hold: an address stays in its slot when the subnet grows. So what is added lies in stretches of its own, whose
blocks are numbered behind all that were there.
"""

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, Range, RangeSet, parse_prefix, parse_range
from podpool.ledger.messages import SubnetGrowth

BLOCK = 64
"""Addresses in a block: its row stays below 2 KB, and was measured twice as fast as one of 7 KB."""

_MOST_HOST_BITS = 68
_MOST_BLOCKS = 1 << 63
"""A block's number must fit into 63 bits."""


class Segment(msgspec.Struct, frozen=True):
    """Addresses that came together, and the number of their first block."""

    first: int
    last: int
    base: int

    @property
    def end(self) -> int:
        """The number behind its last block."""
        return self.base + -(-(self.last - self.first + 1) // BLOCK)

    def block(self, number: int) -> int:
        """Tell the first address of a block."""
        return self.first + (number - self.base) * BLOCK


class SubnetLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Networks, and which of their addresses may be given."""

    prefixes: tuple[Prefix, ...]
    """None of them inside another; the one that the subnet was made with, or what has grown around it, comes first."""
    stretches: tuple[Segment, ...]
    """In the order of their blocks."""
    cidrs: tuple[str, ...]
    """The networks as people write them."""
    members: RangeSet
    capacity: int
    """How many may be given,"""
    kept_back: int
    """and how many never are although they could be: the gateway, and what a person keeps back."""

    @property
    def family(self) -> Family:
        """IPv4 or IPv6."""
        return self.prefixes[0].family

    @property
    def edges(self) -> tuple[int, ...]:
        """The first and the last address of each network."""
        return tuple(end for each in self.prefixes for end in (each.range.first, each.range.last))

    def place(self, address: int) -> tuple[int, int]:
        """Tell the block and the slot of an address."""
        for stretch in self.stretches:
            if stretch.first <= address <= stretch.last:
                block, slot = divmod(address - stretch.first, BLOCK)
                return stretch.base + block, slot
        raise AssertionError(f"{self.text(address)} is not in {self}")

    def address(self, block: int, slot: int) -> int:
        """Tell the address in a slot."""
        return self._stretch(block).block(block) + slot

    def slots(self, block: int) -> list[int]:
        """List the slots of a block that hold members."""
        stretch = self._stretch(block)
        first = stretch.block(block)
        inside = self.members.within(Range(self.family, first, min(first + BLOCK - 1, stretch.last)))
        return [value - first for each in inside.ranges for value in range(each.first, each.last + 1)]

    def next_block(self, at_least: int) -> int | None:
        """Find the first block from this one on that has a member."""
        for stretch in self.stretches:
            start = stretch.block(max(at_least, stretch.base))
            at = bisect_left(self.members.ranges, start, key=lambda each: each.last)
            if at < len(self.members.ranges):
                found = max(start, self.members.ranges[at].first)
                if found <= stretch.last:
                    return stretch.base + (found - stretch.first) // BLOCK
        return None

    def overlaps(self, other: "SubnetLayout") -> Prefix | None:
        """Find a network of the other's that shares an address with one of these."""
        pairs = ((mine, theirs) for mine in self.prefixes for theirs in other.prefixes)
        return next((theirs for mine, theirs in pairs if mine.range.overlaps(theirs.range)), None)

    def text(self, address: int) -> str:
        """Write an address."""
        return self.family.text(address)

    def parse(self, text: str, *, what: str) -> int:
        """Read an address that must be a member."""
        address = parse_address(text, what=what)
        if address.family is not self.family or address.value not in self.members:
            raise InvalidInput(what, text, f"is not an address that {self} gives")
        return address.value

    def _stretch(self, block: int) -> Segment:
        for stretch in self.stretches:
            if block < stretch.end:
                return stretch
        raise AssertionError(f"{self} has no block {block}")

    def __str__(self) -> str:
        return ", ".join(self.cidrs)


@lru_cache(maxsize=4096)
def subnet_layout(cidr: str, gateway: str | None, keep_back: tuple[str, ...], grown: tuple[SubnetGrowth, ...] = ()) -> SubnetLayout:
    """Read what a person wrote about a subnet, and what it was given since."""
    prefixes: tuple[Prefix, ...] = ()
    stretches: tuple[Segment, ...] = ()
    for each in (_network(cidr), *(_network(growth.cidr) for growth in grown)):
        stretches += tuple(_added(each, prefixes, base=stretches[-1].end if stretches else 0))
        prefixes = _joined(prefixes, each)
    if stretches[-1].end > _MOST_BLOCKS:
        raise InvalidInput("cidr", str(prefixes[-1]), "makes the subnet too large: make another subnet")
    kept = [_kept(text, prefixes) for text in (*keep_back, *(text for growth in grown for text in growth.keep_back))]
    if gateway is not None:
        value = _inside(parse_address(gateway, what="gateway"), prefixes).value
        kept.append(Range(prefixes[0].family, value, value))
    usable = RangeSet.of(map(_usable, prefixes))
    members = usable - RangeSet.of(kept)
    if not members.size:
        raise InvalidInput("keep_back", ", ".join(keep_back), f"leaves no address of {prefixes[0]}: keep back less")
    return SubnetLayout(
        prefixes=prefixes,
        stretches=stretches,
        cidrs=tuple(map(str, prefixes)),
        members=members,
        capacity=members.size,
        kept_back=usable.size - members.size,
    )


def _usable(prefix: Prefix) -> Range:
    return prefix.usable if prefix.family is Family.V4 else prefix.range


def _added(new: Prefix, prefixes: Iterable[Prefix], *, base: int) -> Iterable[Segment]:
    """Number the addresses that a network adds."""
    for each in (RangeSet((new.range,)) - RangeSet.of([old.range for old in prefixes])).ranges:
        stretch = Segment(each.first, each.last, base)
        base = stretch.end
        yield stretch


def _joined(prefixes: tuple[Prefix, ...], new: Prefix) -> tuple[Prefix, ...]:
    """Put a network beside others, or in the place of those that it contains."""
    for old in prefixes:
        if old.family is not new.family:
            raise InvalidInput("cidr", str(new), f"is not of the family of {old}: make another subnet")
        if old.range.overlaps(new.range) and old.length <= new.length:
            raise InvalidInput("cidr", str(new), f"is in {old}, which the subnet has")
    kept = [old for old in prefixes if not old.range.overlaps(new.range)]
    first = not prefixes or prefixes[0] not in kept
    return (new, *kept) if first else (*kept, new)


def _network(cidr: str) -> Prefix:
    prefix = parse_prefix(cidr, what="cidr")
    if parse_address(cidr.partition("/")[0], what="cidr").value != prefix.network:
        raise InvalidInput("cidr", cidr, f"is an address inside a network: write {prefix}")
    if prefix.host_bits < 2:
        raise InvalidInput("cidr", cidr, f"is too small: use /{prefix.family.bits - 2} or shorter")
    if prefix.host_bits > _MOST_HOST_BITS:
        raise InvalidInput("cidr", cidr, f"is too large: use /{prefix.family.bits - _MOST_HOST_BITS} or longer")
    return prefix


def _kept(text: str, prefixes: tuple[Prefix, ...]) -> Range:
    kept = parse_prefix(text, what="keep_back").range if "/" in text else parse_range(text, what="keep_back")
    if not any(kept.overlaps(each.range) for each in prefixes):
        raise InvalidInput("keep_back", text, f"is not in {', '.join(map(str, prefixes))}")
    return kept


def _inside(address: Address, prefixes: tuple[Prefix, ...]) -> Address:
    if not any(address.family is each.family and address.value in each.range for each in prefixes):
        raise InvalidInput("gateway", str(address), f"is not in {', '.join(map(str, prefixes))}")
    return address

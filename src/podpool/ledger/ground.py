"""The addresses of a subnet: which there are, and in which block and slot each is kept.

Capacity is the CIDR's size less network and broadcast address (IPv4), gateway, and what is kept back. A block is 64
addresses in a row, counted from the network address; blocks without a single member are never made, so an IPv6 /64 with
half of it kept back costs nothing.
"""

from bisect import bisect_left
from functools import lru_cache

import msgspec

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, Range, RangeSet, parse_prefix, parse_stretch

BLOCK = 64
"""Addresses in a block: its row stays below 2 KB, and was measured twice as fast as one of 7 KB."""

_MOST_HOST_BITS = 68
"""A block's number must fit into 63 bits."""


class Ground(msgspec.Struct, frozen=True):
    """A network, and which of its addresses may be given."""

    prefix: Prefix
    members: RangeSet

    @property
    def capacity(self) -> int:
        """How many may be given."""
        return self.members.size

    def place(self, address: int) -> tuple[int, int]:
        """Tell the block and the slot of an address."""
        return divmod(address - self.prefix.network, BLOCK)

    def address(self, block: int, slot: int) -> int:
        """Tell the address in a slot."""
        return self.prefix.network + block * BLOCK + slot

    def slots(self, block: int) -> list[int]:
        """List the slots of a block that hold members."""
        first = self.address(block, 0)
        inside = self.members.within(Range(self.prefix.family, first, first + BLOCK - 1))
        return [value - first for each in inside.ranges for value in range(each.first, each.last + 1)]

    def next_block(self, at_least: int) -> int | None:
        """Find the first block from this one on that has a member."""
        start = self.address(at_least, 0)
        at = bisect_left(self.members.ranges, start, key=lambda each: each.last)
        if at == len(self.members.ranges):
            return None
        return self.place(max(start, self.members.ranges[at].first))[0]

    def text(self, address: int) -> str:
        """Write an address."""
        return self.prefix.family.text(address)

    def parse(self, text: str, *, what: str) -> int:
        """Read an address that must be a member."""
        address = parse_address(text, what=what)
        if address.family is not self.prefix.family or address.value not in self.members:
            raise InvalidInput(what, text, f"is not an address that {self.prefix} gives")
        return address.value


@lru_cache(maxsize=4096)
def ground_of(cidr: str, gateway: str | None, keep_back: tuple[str, ...]) -> Ground:
    """Read what a person wrote about a subnet."""
    prefix = _network(cidr)
    whole = prefix.usable if prefix.family is Family.V4 else prefix.range
    cuts = [_kept(text, prefix) for text in keep_back]
    if gateway is not None:
        value = _inside(parse_address(gateway, what="gateway"), prefix).value
        cuts.append(Range(prefix.family, value, value))
    members = RangeSet((whole,)) - RangeSet.of(cuts)
    if not members.size:
        raise InvalidInput("keep_back", ", ".join(keep_back), f"leaves no address of {prefix}: keep back less")
    return Ground(prefix, members)


def _network(cidr: str) -> Prefix:
    prefix = parse_prefix(cidr, what="cidr")
    if parse_address(cidr.partition("/")[0], what="cidr").value != prefix.network:
        raise InvalidInput("cidr", cidr, f"is an address inside a network: write {prefix}")
    if prefix.host_bits < 2:
        raise InvalidInput("cidr", cidr, f"is too small: use /{prefix.family.bits - 2} or shorter")
    if prefix.host_bits > _MOST_HOST_BITS:
        raise InvalidInput("cidr", cidr, f"is too large: use /{prefix.family.bits - _MOST_HOST_BITS} or longer")
    return prefix


def _kept(text: str, prefix: Prefix) -> Range:
    kept = parse_prefix(text, what="keep_back").range if "/" in text else parse_stretch(text, what="keep_back")
    if not kept.overlaps(prefix.range):
        raise InvalidInput("keep_back", text, f"is not in {prefix}")
    return kept


def _inside(address: Address, prefix: Prefix) -> Address:
    if address.family is not prefix.family or address.value not in prefix.range:
        raise InvalidInput("gateway", str(address), f"is not in {prefix}")
    return address

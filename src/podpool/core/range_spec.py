"""Configured range of a secondary network, and the addresses that may be assigned from it.

The rules are those of Whereabouts, because running clusters depend on them: `a-b/nn` is a start and an end inside the
network b/nn; a start or end outside the usable addresses, or an end before the start, is ignored; the first and last
address of the network are never assigned.
"""

from collections.abc import Sequence

import msgspec

from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput, quoted
from podpool.core.ranges import Prefix, Range, RangeSet, parse_exclusion, parse_prefix


class RangeSpec(msgspec.Struct, frozen=True):
    """A network, and which part of it may be assigned."""

    prefix: Prefix
    start: Address | None = None
    end: Address | None = None
    exclude: tuple[Range, ...] = ()

    @property
    def bounds(self) -> Range:
        """The usable addresses from start to end."""
        usable = self.prefix.usable
        first, last = usable.first, usable.last
        if self.start and self._usable(self.start):
            first = self.start.value
        if self.end and self._usable(self.end) and self.end.value >= first:
            last = self.end.value
        return Range(self.prefix.family, first, last)

    @property
    def members(self) -> RangeSet:
        """Every address that may be assigned."""
        excluded = RangeSet.of(each for each in self.exclude if each.family is self.prefix.family)
        return RangeSet((self.bounds,)) - excluded

    def _usable(self, address: Address) -> bool:
        return address.family is self.prefix.family and address.value in self.prefix.usable


def parse_range_spec(
    text: str,
    *,
    start: str | None = None,
    end: str | None = None,
    exclude: Sequence[str] = (),
) -> RangeSpec:
    """Parse `192.168.2.0/24` or `192.168.2.10-192.168.2.99/24`; bounds in `text` override `start` and `end`."""
    excluded = tuple(parse_exclusion(each) for each in exclude)
    if "-" in text:
        prefix, first, last = _parse_bounded(text)
        return RangeSpec(prefix, first, last, excluded)
    return RangeSpec(
        parse_prefix(text, leading_zeros=True),
        parse_address(start, what="range_start", leading_zeros=True) if start else None,
        parse_address(end, what="range_end", leading_zeros=True) if end else None,
        excluded,
    )


def _parse_bounded(text: str) -> tuple[Prefix, Address, Address]:
    first_text, _, network_text = text.partition("-")
    last_text = network_text.partition("/")[0]
    try:
        first = parse_address(first_text, leading_zeros=True)
    except InvalidInput as error:
        raise InvalidInput("range", text, f"the start {quoted(first_text)} is {error.reason}") from None
    try:
        prefix = parse_prefix(network_text, leading_zeros=True)
    except InvalidInput as error:
        raise InvalidInput("range", text, f"the end {quoted(network_text)}: {error.reason}") from None
    if first.family is not prefix.family or first.value not in prefix.range:
        raise InvalidInput("range", text, f"the start {first} is not in {prefix}")
    return prefix, first, parse_address(last_text, leading_zeros=True)

"""Prefixes, ranges and range sets."""

import ipaddress
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import (
    Prefix,
    Range,
    RangeSet,
    find_prefix,
    overlapping_pairs,
    parse_exclusion,
    parse_prefix,
    parse_range,
    prefix_of,
)

networks = st.ip_addresses().flatmap(
    lambda address: st.integers(0, address.max_prefixlen).map(
        lambda length: ipaddress.ip_network((address, length), strict=False)
    )
)
small = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda at: Range(Family.V4, at[0], at[0] + at[1]))


def members(ranges: RangeSet) -> set[int]:
    return {value for each in ranges.ranges for value in range(each.first, each.last + 1)}


@given(networks)
def test_a_prefix_is_its_first_and_last_address(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
    """From /0 to /32 and /0 to /128, as the standard library counts."""
    prefix = prefix_of(Address(Family(network.version), int(network.broadcast_address)), network.prefixlen)
    assert (int(network.network_address), int(network.broadcast_address)) == (prefix.range.first, prefix.range.last)
    assert network.num_addresses == prefix.range.size


@given(networks)
def test_host_bits_are_cleared(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
    if int(network.network_address) >> 32 != 0xFFFF:
        assert str(network) == str(parse_prefix(f"{network.broadcast_address}/{network.prefixlen}"))


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("192.168.2.225/8", "192.0.0.0/8"),
        ("::ffff:10.0.0.0/120", "10.0.0.0/24"),
        ("::ffff:10.0.0.0/90", "::ffc0:0:0/90"),
        ("::ffff:10.0.0.0/96", "0.0.0.0/0"),
        ("::ffff:10.0.0.0/95", "::fffe:0:0/95"),
        ("00192.00168.1.0/24", "192.168.1.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("::/0", "::/0"),
        ("fd00::1/128", "fd00::1/128"),
    ],
)
def test_prefixes_of_existing_configurations_are_parsed(text: str, prefix: str) -> None:
    expected = ipaddress.ip_network(prefix)
    parsed = parse_prefix(text, leading_zeros=True)
    assert (int(expected.network_address), expected.prefixlen) == (parsed.network, parsed.length)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("192.168.2.0", "CIDR notation"),
        ("foo", "CIDR notation"),
        ("foo/24", "not an IPv4 or IPv6 address"),
        ("010.0.0.0/24", "'010.0.0.0' is not an IPv4 or IPv6 address"),
        ("10.0.0.0/33", "longer than an IPv4 address"),
        ("10.0.0.0/0024", "'0024' is not a prefix length"),
        ("fd00::/129", "longer than an IPv6 address"),
        ("10.0.0.0/", "not a prefix length"),
        ("10.0.0.0/-1", "not a prefix length"),
        ("10.0.0.0/24/24", "not a prefix length"),
        ("10.0.0.0/" + "0" * 5000, "not a prefix length"),
    ],
)
def test_an_invalid_prefix_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        parse_prefix(text)
    assert find_prefix(text) is None
    assert ("range", text) == (caught.value.what, caught.value.value)


def test_a_length_beyond_the_family_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="range '10.0.0.1/33': prefix length 33 is longer"):
        prefix_of(parse_address("10.0.0.1"), 33)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("192.168.0.0/30", "192.168.0.1", "192.168.0.2"),
        ("192.168.0.0/23", "192.168.0.1", "192.168.1.254"),
        ("2000::/126", "2000::1", "2000::2"),
        ("2000::/64", "2000::1", "2000::ffff:ffff:ffff:fffe"),
        ("0.0.0.0/0", "0.0.0.1", "255.255.255.254"),
    ],
)
def test_the_first_and_last_address_are_not_usable(text: str, first: str, last: str) -> None:
    assert f"{first}-{last}" == str(parse_prefix(text).usable)


@pytest.mark.parametrize("text", ["192.168.0.0/32", "192.168.0.0/31", "2000::/128", "2000::/127"])
def test_too_short_a_network_has_no_usable_address(text: str) -> None:
    with pytest.raises(InvalidInput, match="no usable address: use a prefix of /(30|126) or shorter"):
        _ = parse_prefix(text).usable


@given(networks, st.data())
def test_offsets_round_trip(network: ipaddress.IPv4Network | ipaddress.IPv6Network, data: st.DataObject) -> None:
    """Also beyond 2^63, where others lose addresses of an IPv6 /64."""
    prefix = Prefix(Family(network.version), int(network.network_address), network.prefixlen)
    offset = data.draw(st.integers(0, network.num_addresses - 1))
    assert offset == prefix.offset(prefix.at(offset))


def test_offsets_stay_inside() -> None:
    prefix = parse_prefix("10.1.0.0/24")
    for offset in (-1, 256):
        with pytest.raises(InvalidInput, match=f"^offset {offset}: is outside 10.1.0.0/24"):
            prefix.at(offset)
    assert parse_address("10.1.0.255") in prefix
    for stranger in ("10.1.1.0", "::a01:1"):
        assert parse_address(stranger) not in prefix
        with pytest.raises(InvalidInput, match=f"^address '{stranger}': is not in 10.1.0.0/24"):
            prefix.offset(parse_address(stranger))


@given(st.lists(small))
def test_a_set_is_sorted_and_has_gaps(ranges: list[Range]) -> None:
    united = RangeSet.of(ranges)
    assert {value for each in ranges for value in range(each.first, each.last + 1)} == members(united)
    assert all(one.last + 1 < other.first for one, other in pairwise(united.ranges))
    assert len(members(united)) == united.size


@given(st.lists(small), st.integers(0, 80))
def test_a_set_contains_exactly_its_members(ranges: list[Range], value: int) -> None:
    united = RangeSet.of(ranges)
    assert (value in members(united)) == (value in united)


@given(st.lists(small), st.lists(small))
def test_difference_is_the_difference_of_the_members(one: list[Range], other: list[Range]) -> None:
    left, right = RangeSet.of(one), RangeSet.of(other)
    assert members(left) - members(right) == members(left - right)
    assert left - right == RangeSet.of((left - right).ranges)


@given(st.lists(small), small)
def test_within_keeps_what_is_inside(ranges: list[Range], bounds: Range) -> None:
    united = RangeSet.of(ranges)
    inside = members(united) & members(RangeSet((bounds,)))
    assert RangeSet.of(Range(Family.V4, each, each) for each in inside) == united.within(bounds)


def test_difference_does_not_enumerate() -> None:
    everything = RangeSet((parse_prefix("::/0").range,))
    left = everything - RangeSet.of([parse_prefix("8000::/1").range, parse_prefix("::/64").range])
    assert (1 << 127) - (1 << 64) == left.size


def test_families_do_not_mix() -> None:
    four, six = parse_prefix("0.0.0.0/0").range, parse_prefix("::/0").range
    with pytest.raises(InvalidInput, match="cannot be in one set"):
        RangeSet.of([four, six])
    assert RangeSet((four,)) == RangeSet((four,)) - RangeSet((six,))
    assert RangeSet() == RangeSet((four,)).within(six)
    assert not four.overlaps(six)


@pytest.mark.parametrize(
    ("text", "range_"),
    [("192.168.0.1", "192.168.0.1-192.168.0.1"), ("192.168.0.6/31", "192.168.0.6-192.168.0.7"), ("::1", "::1-::1")],
)
def test_an_exclusion_is_an_address_or_a_prefix(text: str, range_: str) -> None:
    assert range_ == str(parse_exclusion(text))


@pytest.mark.parametrize("text", ["192.168.0.1/123", "100::2::1", "010.0.0.1", "10.0.0.1-10.0.0.9", ""])
def test_exclusions_are_strict(text: str) -> None:
    with pytest.raises(InvalidInput, match="^exclude "):
        parse_exclusion(text)


@given(small)
def test_a_range_round_trips(range_: Range) -> None:
    assert range_ == parse_range(str(range_))


@pytest.mark.parametrize("text", ["10.0.0.9-10.0.0.1", "10.0.0.1-::1", "10.0.0.1-", "-", ""])
def test_a_range_ascends_within_one_family(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_range(text)


def test_one_address_is_a_range() -> None:
    assert "10.0.0.1-10.0.0.1" == str(parse_range("10.0.0.1"))


@given(st.lists(small, max_size=6))
def test_overlaps_are_found_by_comparing_neighbours(found: list[Range]) -> None:
    ordered = sorted(found)
    pairs = list(overlapping_pairs(ordered, lambda each: each))
    assert all(one.overlaps(other) for one, other in pairs)
    assert bool(pairs) == any(one.overlaps(other) for one, other in combinations(ordered, 2))

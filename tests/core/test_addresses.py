"""Addresses: one number, one text."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput

families = st.sampled_from(Family)
addresses = families.flatmap(lambda family: st.builds(Address, st.just(family), st.integers(0, family.highest)))


@given(addresses)
def test_text_is_canonical_and_reads_back(address: Address) -> None:
    mapped = address.family is Family.V6 and address.value >> 32 == 0xFFFF
    assert mapped or parse_address(str(address)) == address
    assert ipaddress.ip_address(str(address)) == ipaddress.ip_address(address.value) or address.value < 1 << 32


@given(st.ip_addresses())
def test_every_spelling_of_the_standard_library_is_read(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert parse_address(address.exploded).value == int(address) or int(address) >> 32 == 0xFFFF


def test_ipv4_written_as_ipv6_is_ipv4() -> None:
    assert Address(Family.V4, 0x0A000005) == parse_address("::ffff:10.0.0.5")


@pytest.mark.parametrize("text", ["00192.00168.1.5", "192.168.01.005"])
def test_leading_zeros_are_decimal_where_allowed_and_refused_elsewhere(text: str) -> None:
    assert "192.168.1.5" == str(parse_address(text, leading_zeros=True))
    with pytest.raises(InvalidInput, match="not an IPv4"):
        parse_address(text)


def test_all_zero_octets_keep_one_zero() -> None:
    assert "0.0.0.0" == str(parse_address("000.00.0.0", leading_zeros=True))


@pytest.mark.parametrize(
    "text", ["", " 10.0.0.1", "10.0.0.1 ", "10.0.0", "fe80::1%eth0", "foo", "256.0.0.1", "1::2::3"]
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address(text, what="gateway", leading_zeros=True)
    assert ("gateway", text) == (caught.value.what, caught.value.value)


@pytest.mark.parametrize(
    ("start", "offset", "end"),
    [
        ("192.168.2.23", 1, "192.168.2.24"),
        ("192.168.2.255", 1, "192.168.3.0"),
        ("192.168.255.255", 1, "192.169.0.0"),
        ("ff02::ff", 1, "ff02::100"),
        ("ff02::ffff:ffff", 1, "ff02::1:0:0"),
        ("192.168.1.1", 256, "192.168.2.1"),
        ("2000::1", 65535, "2000::1:0"),
        ("192.168.2.0", -1, "192.168.1.255"),
        ("0.0.0.9", -9, "0.0.0.0"),
        ("255.255.255.0", 255, "255.255.255.255"),
    ],
)
def test_counting_on_carries(start: str, offset: int, end: str) -> None:
    assert end == str(parse_address(start).plus(offset))


@pytest.mark.parametrize(
    ("start", "offset"), [("255.255.255.255", 1), ("0.0.0.0", -1), ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 1)]
)
def test_there_is_no_way_around_the_end(start: str, offset: int) -> None:
    """Others wrap to 0.0.0.0 here; an address that nobody meant would be given."""
    with pytest.raises(InvalidInput, match=rf"offset {offset}: leads from {start} out of the IPv[46] address space"):
        parse_address(start).plus(offset)


@pytest.mark.parametrize(
    ("one", "other", "steps"),
    [
        ("192.168.1.1", "192.168.1.0", 1),
        ("192.168.4.0", "192.168.3.0", 256),
        ("192.168.1.0", "192.168.2.255", 511),
        ("192.168.3.0", "192.168.2.1", 255),
        ("ff02::1:0", "ff02::1", 65535),
    ],
)
def test_distance_has_no_direction(one: str, other: str, steps: int) -> None:
    assert steps == parse_address(one).distance(parse_address(other))
    assert steps == parse_address(other).distance(parse_address(one))


def test_there_is_no_distance_between_families() -> None:
    with pytest.raises(InvalidInput, match="distance '192.168.3.0 to ff02::1': cannot measure from IPv4 to IPv6"):
        parse_address("192.168.3.0").distance(parse_address("ff02::1"))


@pytest.mark.parametrize(
    ("lower", "higher"), [("192.168.0.0", "192.169.0.0"), ("2000::", "2000::1"), ("255.255.255.255", "::")]
)
def test_addresses_are_ordered_by_number_within_a_family(lower: str, higher: str) -> None:
    assert parse_address(lower) < parse_address(higher)

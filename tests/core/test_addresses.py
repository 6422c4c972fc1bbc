"""IP addresses as integers and text."""

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
def test_every_spelling_of_the_standard_library_is_parsed(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert parse_address(address.exploded).value == int(address) or int(address) >> 32 == 0xFFFF


octets = st.sampled_from(
    ["0", "00", "1", "01", "10", "99", "100", "255", "256", "999", "", "+1", " 1", "1_0", "\u0661", "\u00b2"]
)


@given(st.lists(octets, min_size=3, max_size=5).map(".".join) | st.text("0123456789.", max_size=16))
def test_what_the_standard_library_refuses_is_refused(text: str) -> None:
    try:
        expected = int(ipaddress.IPv4Address(text))
    except ValueError:
        with pytest.raises(InvalidInput):
            parse_address(text)
    else:
        assert Address(Family.V4, expected) == parse_address(text)


def test_an_ipv4_mapped_address_is_ipv4() -> None:
    assert Address(Family.V4, 0x0A000005) == parse_address("::ffff:10.0.0.5")


@pytest.mark.parametrize("text", ["00192.00168.1.5", "192.168.01.005"])
def test_leading_zeros_are_decimal_where_allowed_and_rejected_elsewhere(text: str) -> None:
    assert "192.168.1.5" == str(parse_address(text, leading_zeros=True))
    with pytest.raises(InvalidInput, match="not an IPv4"):
        parse_address(text)


def test_all_zero_octets_keep_one_zero() -> None:
    assert "0.0.0.0" == str(parse_address("000.00.0.0", leading_zeros=True))


@pytest.mark.parametrize(
    "text", ["", " 10.0.0.1", "10.0.0.1 ", "10.0.0", "fe80::1%eth0", "foo", "256.0.0.1", "1::2::3"]
)
def test_an_invalid_address_is_rejected_by_name(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address(text, what="gateway", leading_zeros=True)
    assert ("gateway", text) == (caught.value.what, caught.value.value)


@pytest.mark.parametrize(
    ("lower", "higher"), [("192.168.0.0", "192.169.0.0"), ("2000::", "2000::1"), ("255.255.255.255", "::")]
)
def test_addresses_are_ordered_by_number_within_a_family(lower: str, higher: str) -> None:
    assert parse_address(lower) < parse_address(higher)

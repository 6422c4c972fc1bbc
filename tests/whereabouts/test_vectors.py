"""Cases that Whereabouts is known by and that are about numbers alone.

Others of their kind stand where their subject is: 40 to 54 in `tests/core`, 1 to 33 in `test_config` and
`test_given`, 58 to 86 in `test_classic`, 69 and 70 in `test_names`, 88 and 89 in `test_table`, 90 to 97 in
`test_cleanup`, 98 in `test_networks` and, for a node that is not there, in `tests/agent/secondary/test_slices_kept`.
"""

import pytest

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix, parse_range
from podpool.whereabouts.slice_assignment import assign_slices
from tests.whereabouts.builders import network, plan, read_config


def test_34_addresses_compare_as_numbers() -> None:
    lower, higher = parse_address("192.168.0.0"), parse_address("192.169.0.0")
    assert lower < higher
    assert higher > lower
    assert lower == parse_address("::ffff:192.168.0.0"), "also when one is written in 16 bytes"
    assert parse_address("2000::") < parse_address("2000::1")


@pytest.mark.parametrize(
    ("address", "stretch", "inside"),
    [
        ("2001:db8:480:603d:304:403::", "2001:db8:480:603d::1-2001:db8:480:603e::4", True),
        ("2000:1::1", "2000::-2000:1::", False),
    ],
)
def test_36_an_address_is_in_a_stretch_or_not(address: str, stretch: str, *, inside: bool) -> None:
    assert inside == (parse_address(address).value in parse_range(stretch))


def test_37_no_address_is_in_no_stretch() -> None:
    with pytest.raises(InvalidInput, match="not an IPv4 or IPv6 address"):
        parse_address("")


@pytest.mark.parametrize(("length", "last"), [(32, "0.0"), (31, "0.1"), (30, "0.3"), (23, "1.255")])
def test_38_a_network_ends_with_its_broadcast_address(length: int, last: str) -> None:
    assert f"192.168.0.0-192.168.{last}" == str(parse_prefix(f"192.168.0.0/{length}").range)


def test_56_a_slice_is_not_larger_than_its_range() -> None:
    (wanted,) = read_config(network(range="10.0.0.0/10", node_slice_size="/8")).ranges
    with pytest.raises(InvalidInput, match="^node_slice_size '/8': does not divide 10.0.0.0/10: use /10 to /32"):
        _ = wanted.cut


def test_57_slices_of_one_address_have_none_to_give() -> None:
    """Theirs makes them, and refuses every ADD."""
    (wanted,) = read_config(network(range="10.0.0.0/30", node_slice_size="/32")).ranges
    with pytest.raises(InvalidInput, match="^node_slice_size '/32': leaves no usable address: use /30 or less"):
        _ = wanted.cut


def test_57_host_bits_do_not_keep_a_range_from_being_cut() -> None:
    """Theirs refuses them when it cuts."""
    table = assign_slices(plan("10.0.0.5/8", 10), nodes=[])
    assert ["10.0.0.0/10", "10.64.0.0/10"] == [str(table.cut.slice(number)) for number in (0, 1)]


def test_57_a_size_that_is_no_number_is_refused() -> None:
    """Theirs cuts such a range into nothing."""
    (wanted,) = read_config(network(range="10.0.0.0/8", node_slice_size="x")).ranges
    with pytest.raises(InvalidInput, match="^node_slice_size 'x': not a prefix length: write it as /24"):
        _ = wanted.cut

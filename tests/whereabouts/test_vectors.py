"""Numbered cases of Whereabouts' behaviour that concern address arithmetic only.

The others are in the tests of their subject: 40 to 54 in `tests/core`, 1 to 33 in `test_config` and `test_cni_args`, 58
to 86 in `test_shared_range`, 69 and 70 in `test_object_names`, 88 and 89 in `test_slice_assignment`, 90 to 97 in
`test_orphan_gc`, 98 in `test_network_plan` and, for a missing node, in
`tests/agent/secondary/test_node_slices_reconciler`.
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
    ("address", "range_", "inside"),
    [
        ("2001:db8:480:603d:304:403::", "2001:db8:480:603d::1-2001:db8:480:603e::4", True),
        ("2000:1::1", "2000::-2000:1::", False),
    ],
)
def test_36_an_address_is_in_a_range_or_not(address: str, range_: str, *, inside: bool) -> None:
    assert inside == (parse_address(address).value in parse_range(range_))


def test_37_an_empty_address_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="not an IPv4 or IPv6 address"):
        parse_address("")


@pytest.mark.parametrize(("length", "last"), [(32, "0.0"), (31, "0.1"), (30, "0.3"), (23, "1.255")])
def test_38_a_network_ends_with_its_broadcast_address(length: int, last: str) -> None:
    assert f"192.168.0.0-192.168.{last}" == str(parse_prefix(f"192.168.0.0/{length}").range)


def test_56_a_slice_is_not_larger_than_its_range() -> None:
    (range_,) = read_config(network(range="10.0.0.0/10", node_slice_size="/8")).ranges
    with pytest.raises(InvalidInput, match="^node_slice_size '/8': does not divide 10.0.0.0/10: use /10 to /32"):
        _ = range_.layout


def test_57_slices_without_a_usable_address_are_rejected() -> None:
    """Whereabouts creates them, and every ADD fails."""
    (range_,) = read_config(network(range="10.0.0.0/30", node_slice_size="/32")).ranges
    with pytest.raises(InvalidInput, match="^node_slice_size '/32': leaves no usable address: use /30 or less"):
        _ = range_.layout


def test_57_host_bits_of_a_sliced_range_are_ignored() -> None:
    """Whereabouts rejects them when it creates slices."""
    table = assign_slices(plan("10.0.0.5/8", 10), nodes={})
    assert ["10.0.0.0/10", "10.64.0.0/10"] == [str(table.layout.slice(number)) for number in (0, 1)]


def test_57_a_slice_size_that_is_not_a_number_is_rejected() -> None:
    """Whereabouts creates no slices then."""
    (range_,) = read_config(network(range="10.0.0.0/8", node_slice_size="x")).ranges
    with pytest.raises(InvalidInput, match="^node_slice_size 'x': not a prefix length: write it as /24"):
        _ = range_.layout

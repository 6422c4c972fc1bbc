"""More nodes than slices: the remedy provides a slice for each node, and names what each node then has."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.range_spec import RangeSpec
from podpool.core.ranges import parse_exclusion, parse_prefix
from podpool.core.slice_table import SliceLayout, parse_slice_size
from podpool.whereabouts.network_plan import SliceTableKey, SliceTablePlan
from podpool.whereabouts.slice_shortage import KEPT, available_slices, shortage_remedy


def layout(range_: str, size: str) -> SliceLayout:
    return parse_slice_size(size, of=parse_prefix(range_))


@pytest.mark.parametrize(
    ("range_", "size", "nodes", "remedy"),
    [
        ("10.60.0.0/16", "/24", 500, "a larger range, such as 10.60.0.0/15, or node_slice_size /25 (126 addresses"),
        ("10.61.0.0/16", "/24", 500, "a larger range, such as 10.60.0.0/15, or"),
        ("10.60.0.0/16", "/24", 513, "a larger range, such as 10.60.0.0/14, or node_slice_size /26 (62 addresses"),
        ("fd00::/112", "/120", 300, "a larger range, such as fd00::/111, or node_slice_size /121 (126 addresses"),
        ("10.0.0.0/28", "/30", 5, "a larger range, such as 10.0.0.0/27"),
        ("0.0.0.0/0", "/24", 1 << 25, "node_slice_size /25 (126 addresses"),
    ],
)
def test_a_larger_range_or_smaller_slices(range_: str, size: str, nodes: int, remedy: str) -> None:
    divided = layout(range_, size)
    found = shortage_remedy(divided, available=divided.count, nodes=nodes)
    assert found.startswith(f"use {remedy}")
    assert ("node_slice_size" in found) == found.endswith(f"per node; {KEPT})")


def test_a_range_that_can_neither_grow_nor_be_divided_further() -> None:
    assert "use a larger range" == shortage_remedy(layout("0.0.0.0/0", "/30"), available=1 << 30, nodes=1 << 31)


def test_without_any_available_slice_the_whole_range_counts() -> None:
    assert "10.0.0.0/23, or" in shortage_remedy(layout("10.0.0.0/24", "/28"), available=0, nodes=17)


@given(length=st.integers(8, 24), more=st.integers(0, 6), surplus=st.integers(1, 5000))
def test_the_remedy_suffices_and_half_of_it_would_not(length: int, more: int, surplus: int) -> None:
    divided = layout(f"10.0.0.0/{length}", f"/{length + more}")
    nodes = divided.count + surplus
    found = shortage_remedy(divided, available=divided.count, nodes=nodes)
    if larger := re.search(r"such as ([^\s,]+)", found):
        count = layout(larger[1], f"/{divided.length}").count
        assert count // 2 < nodes <= count
    if smaller := re.search(r"node_slice_size (/\d+)", found):
        count = layout(str(divided.range), smaller[1]).count
        assert count // 2 < nodes <= count


def test_slices_without_a_usable_address_are_not_available() -> None:
    prefix = parse_prefix("10.0.0.0/24")
    key, divided = SliceTableKey("red", prefix), layout("10.0.0.0/24", "/28")
    assert 16 == available_slices(SliceTablePlan(key=key, layout=divided))
    spec = RangeSpec(prefix, None, None, (parse_exclusion("10.0.0.0/27"), parse_exclusion("10.0.0.250")))
    assert 14 == available_slices(SliceTablePlan(key=key, layout=divided, range_specs=(spec,)))

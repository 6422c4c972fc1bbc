"""Slice table."""

from collections.abc import Collection
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.core.slice_table import SliceLayout, SliceTable, parse_slice_size

nodes = st.sampled_from([f"node{number}" for number in range(12)])
# layouts of one range, of a part of it, of an adjacent one: /28 to /31, four to sixteen slices and more nodes than that
layouts = st.sampled_from(
    [
        SliceLayout(parse_prefix(text), length)
        for text, length in [
            ("10.0.0.0/26", 29),
            ("10.0.0.0/26", 28),
            ("10.0.0.0/27", 30),
            ("10.0.0.32/27", 29),
            ("10.0.0.0/24", 26),
            ("10.0.1.0/26", 29),
            ("fd00::/60", 63),
        ]
    ]
)


def layout(text: str, size: str) -> SliceLayout:
    return parse_slice_size(size, of=parse_prefix(text))


def resize(table: SliceTable, other: SliceLayout, *, in_use: Collection[str]) -> SliceTable:
    """Change the slice size: slices in use and slices that fit are kept, other nodes join again in order."""
    again = SliceTable(other, held={node: table.held[node] for node in in_use})
    for node, slice_ in table.held.items():
        again.adopt(node, slice_)
    for node in (*table.held, *table.waiting):
        again.join(node)
    return again


def without(table: SliceTable, node: str) -> SliceTable:
    """Return the table after a node has returned its slice."""
    held = {each: slice_ for each, slice_ in table.held.items() if each != node}
    again = SliceTable(table.layout, held=held, waiting=table.waiting)
    for each in table.waiting:
        again.join(each)
    return again


class SliceMachine(RuleBasedStateMachine):
    """Nodes join and leave in any order, the slice size changes, and slices never overlap."""

    @initialize(first=layouts)
    def begin(self, first: SliceLayout) -> None:
        self.table = SliceTable(first)
        self.known: dict[str, Prefix] = {}
        self.queue: list[str] = []

    @rule(node=nodes)
    def join(self, node: str) -> None:
        given_out = self.table.join(node)
        if node in self.known:
            assert self.known[node] == given_out
        elif given_out is None:
            self.queue += [] if node in self.queue else [node]
        else:
            assert [] == self.queue, "another node waited before"
            assert self.table.layout.contains(given_out)
            self.known[node] = given_out

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.known)))
        self.table = without(self.table, node)
        del self.known[node]
        served = [each for each in self.queue if each in self.table.held]
        assert served == self.queue[: len(served)], "the longest waiting first"
        self.queue = self.queue[len(served) :]
        self.known |= {each: self.table.held[each] for each in served}

    @precondition(lambda self: self.known)
    @rule(other=layouts, data=st.data())
    def resize(self, other: SliceLayout, data: st.DataObject) -> None:
        in_use = data.draw(st.sets(st.sampled_from(sorted(self.known))))
        before, everybody = self.known, [*self.known, *self.queue]
        self.table = resize(self.table, other, in_use=in_use)
        self.known = dict(self.table.held)
        self.queue = list(self.table.waiting)
        assert sorted(everybody) == sorted([*self.known, *self.queue])
        assert all(self.known[node] == before[node] for node in in_use)
        assert all(self.known[node] == before[node] for node in before if other.contains(before[node]))
        assert all(other.contains(slice_) for node, slice_ in self.known.items() if node not in in_use)

    @invariant()
    def no_slice_moved(self) -> None:
        assert self.known == self.table.held
        assert tuple(self.queue) == self.table.waiting

    @invariant()
    def no_two_slices_overlap(self) -> None:
        ranges = sorted(each.range for each in self.table.held.values())
        assert not any(one.overlaps(other) for one, other in pairwise(ranges))

    @invariant()
    def no_node_waits_while_a_slice_is_free(self) -> None:
        if self.queue:
            held = [each.range for each in self.table.held.values()]
            free = [
                number
                for number in range(self.table.layout.count)
                if not any(self.table.layout.slice(number).range.overlaps(each) for each in held)
            ]
            assert [] == free


TestSlices = SliceMachine.TestCase
TestSlices.settings = settings(max_examples=min(60, settings().max_examples), stateful_step_count=40)


@pytest.mark.parametrize(
    ("text", "size", "slices"),
    [
        ("10.0.0.0/8", "/10", ["10.0.0.0/10", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"]),
        ("10.0.0.0/10", "12", ["10.0.0.0/12", "10.16.0.0/12", "10.32.0.0/12", "10.48.0.0/12"]),
        ("192.168.2.225/23", "/25", ["192.168.2.0/25", "192.168.2.128/25", "192.168.3.0/25", "192.168.3.128/25"]),
        ("10.0.0.0/30", "/32", ["10.0.0.0/32", "10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"]),
        ("10.0.0.0/24", "/24", ["10.0.0.0/24"]),
        ("fd00::/62", "/64", ["fd00::/64", "fd00:0:0:1::/64", "fd00:0:0:2::/64", "fd00:0:0:3::/64"]),
    ],
)
def test_a_range_is_divided_in_order(text: str, size: str, slices: list[str]) -> None:
    table = SliceTable(layout(text, size))
    assert slices == [str(table.join(f"node{number}")) for number in range(len(slices))]
    assert table.join("one too many") is None
    assert ("one too many",) == table.waiting


def test_all_of_ipv6_is_divided_without_being_listed() -> None:
    table = SliceTable(layout("::/0", "/128"))
    assert 1 << 128 == table.layout.count
    assert ["::/128", "::1/128"] == [str(table.join(node)) for node in ("a", "b")]


@pytest.mark.parametrize(
    ("text", "size", "reason"),
    [
        ("10.0.0.0/10", "/8", "does not divide 10.0.0.0/10: use /10 to /32"),
        ("10.0.0.0/24", "/33", "does not divide 10.0.0.0/24: use /24 to /32"),
        ("fd00::/64", "/129", "does not divide fd00::/64: use /64 to /128"),
        ("10.0.0.0/8", "x", "not a prefix length: write it as /24"),
        ("10.0.0.0/8", "", "not a prefix length: write it as /24"),
        ("10.0.0.0/8", "0024", "not a prefix length: write it as /24"),
    ],
)
def test_a_slice_size_that_does_not_divide_the_range_is_rejected(text: str, size: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        layout(text, size)
    assert f"node_slice_size {size!r}: {reason}" == str(caught.value)


def test_the_slice_of_a_removed_node_goes_to_the_waiting_node() -> None:
    """Node and replacement seen at one moment: others leave the new one without a slice."""
    table = SliceTable(layout("10.0.0.0/23", "/24"))
    freed = [table.join(node) for node in ("node1", "node2", "node3")][1]
    assert freed == without(table, "node2").held["node3"]


def test_a_slice_in_use_of_another_size_is_kept_until_it_is_returned() -> None:
    table = SliceTable(layout("10.0.0.0/24", "/26"))
    for node in ("busy", "idle"):
        table.join(node)
    table = resize(table, layout("10.0.0.0/24", "/25"), in_use={"busy"})
    assert {"busy": "10.0.0.0/26", "idle": "10.0.0.128/25"} == {node: str(s) for node, s in table.held.items()}
    assert table.join("newcomer") is None
    assert "10.0.0.0/25" == str(without(table, "busy").held["newcomer"])


def test_a_table_starts_with_held_slices_and_waiting_nodes() -> None:
    held = {"a": parse_prefix("10.0.0.64/26"), "b": parse_prefix("10.0.0.128/25")}
    table = SliceTable(layout("10.0.0.0/24", "/26"), held=held, waiting=["c", "d"])
    assert "10.0.0.0/26" == str(table.join("c"))
    assert ("d",) == table.waiting


def test_overlapping_slices_are_rejected_with_both_nodes() -> None:
    held = {"a": parse_prefix("10.0.0.0/25"), "b": parse_prefix("10.0.0.64/26")}
    with pytest.raises(InvalidInput, match="^slice of node 'b' '10.0.0.64-10.0.0.127': overlaps the slice of node 'a'"):
        SliceTable(layout("10.0.0.0/24", "/26"), held=held)


class TestClosed:
    """Slices that are not assigned."""

    def test_closed_slices_are_not_assigned(self) -> None:
        table = SliceTable(layout("10.0.0.0/24", "/26"), closed=[(0, 0), (2, 3)])
        assert ["10.0.0.64/26", "None"] == [str(table.join(node)) for node in ("a", "b")]
        assert ("b",) == table.waiting


class TestAdopt:
    """A node keeps the slice that it had."""

    def test_a_free_slice_is_adopted(self) -> None:
        table = SliceTable(layout("10.0.0.0/24", "/26"), waiting=["a", "b"])
        assert table.adopt("a", parse_prefix("10.0.0.128/26"))
        assert ("b",) == table.waiting
        assert ["10.0.0.0/26", "10.0.0.128/26"] == [str(table.join(node)) for node in ("b", "a")]
        assert ["10.0.0.64/26", "10.0.0.192/26"] == [str(table.join(node)) for node in ("c", "d")]

    @pytest.mark.parametrize(
        "slice_", ["10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/25", "10.0.0.128/27", "10.0.1.0/26", "fd00::/26"]
    )
    def test_a_slice_that_is_held_closed_or_of_another_size_is_not_adopted(self, slice_: str) -> None:
        held = {"first": parse_prefix("10.0.0.0/26")}
        table = SliceTable(layout("10.0.0.0/24", "/26"), held=held, closed=[(1, 1)])
        assert not table.adopt("a", parse_prefix(slice_))
        assert held == table.held

    def test_a_second_slice_is_not_adopted(self) -> None:
        table = SliceTable(layout("10.0.0.0/24", "/26"))
        table.join("a")
        assert not table.adopt("a", parse_prefix("10.0.0.64/26"))
        assert "10.0.0.0/26" == str(table.join("a"))

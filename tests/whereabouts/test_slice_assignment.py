"""Assignment of slices to nodes, for changing nodes, ranges and sizes."""

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from podpool.api.meta import ObjectMeta
from podpool.api.whereabouts import NodeSlicePool, NodeSlicePoolStatus, SliceAllocation
from podpool.core.range_spec import RangeSpec
from podpool.core.ranges import Prefix, parse_prefix
from podpool.whereabouts.network_plan import SliceTablePlan
from podpool.whereabouts.slice_assignment import (
    HeldSlice,
    SliceAssignment,
    assign_slices,
    read_assignment,
    slice_allocations,
    unusable_slices,
    usable_addresses,
)
from tests.whereabouts.builders import config, plan, range_spec


def nodes(*names: str) -> dict[str, str]:
    return {name: f"uid-{name}" for name in names}


def in_use_by(node: str, slice_: str, *, uid: str | None = None) -> HeldSlice:
    return HeldSlice(parse_prefix(slice_), node, f"uid-{node}" if uid is None else uid)


def assigned(table: SliceAssignment) -> dict[str, str]:
    return {node: str(each) for node, each in table.assigned.items()}


def listed(table: SliceAssignment) -> list[str]:
    return [f"{each.slice_range} {each.node_name}".strip() for each in slice_allocations(table)]


class TestAsWhereabouts:
    """The tests of Whereabouts' controller, and observations of its behaviour."""

    def test_creates_node_slice_pools_no_nodes(self) -> None:
        table = assign_slices(plan("10.0.0.0/8", 10), nodes={})
        assert ["10.0.0.0/10", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"] == listed(table)

    def test_creates_node_slice_pools_with_nodes(self) -> None:
        table = assign_slices(plan("10.0.0.0/8", 10), nodes=nodes("node1", "node2"))
        assert ["10.0.0.0/10 node1", "10.64.0.0/10 node2", "10.128.0.0/10", "10.192.0.0/10"] == listed(table)

    def test_node_joins(self) -> None:
        before = assign_slices(plan("10.0.0.0/8", 10), nodes={})
        table = assign_slices(plan("10.0.0.0/8", 10), nodes=nodes("node1"), previous=before)
        assert ["10.0.0.0/10 node1", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"] == listed(table)

    def test_node_leaves(self) -> None:
        before = assign_slices(plan("10.0.0.0/8", 10), nodes=nodes("node1"))
        table = assign_slices(plan("10.0.0.0/8", 10), nodes={}, previous=before)
        assert ["10.0.0.0/10", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"] == listed(table)

    @pytest.mark.parametrize(
        ("range_", "length", "expected"),
        [
            ("10.0.0.0/10", 12, ["10.0.0.0/12 node1", "10.16.0.0/12 node2", "10.32.0.0/12", "10.48.0.0/12"]),
            ("11.0.0.0/8", 10, ["11.0.0.0/10 node1", "11.64.0.0/10 node2", "11.128.0.0/10", "11.192.0.0/10"]),
            (
                "10.0.0.0/8",
                11,
                ["10.0.0.0/11 node1", "10.32.0.0/11 node2", *(f"10.{each}.0.0/11" for each in range(64, 256, 32))],
            ),
            ("10.0.0.0/8", 10, ["10.0.0.0/10 node1", "10.64.0.0/10 node2", "10.128.0.0/10", "10.192.0.0/10"]),
        ],
    )
    def test_update_range_and_slice_change(self, range_: str, length: int, expected: list[str]) -> None:
        """If nothing is in use. Whereabouts also moves nodes with running Pods."""
        two = nodes("node1", "node2")
        before = assign_slices(plan("10.0.0.0/8", 10), nodes=two)
        assert expected == listed(assign_slices(plan(range_, length), nodes=two, previous=before))

    def test_three_nodes_for_two_slices(self) -> None:
        """Whereabouts does not report the third node, on which its plugin crashes."""
        table = assign_slices(plan("10.0.0.0/23", 24), nodes=nodes("n1", "n2", "n3"))
        assert ["10.0.0.0/24 n1", "10.0.1.0/24 n2"] == listed(table)
        assert ("n3",) == table.waiting

    def test_host_bits_are_dropped(self) -> None:
        expected = ["192.168.2.0/25", "192.168.2.128/25", "192.168.3.0/25", "192.168.3.128/25"]
        assert expected == listed(assign_slices(plan("192.168.2.225/23", 25), nodes={}))

    def test_ipv6_ranges_are_sliced(self) -> None:
        """Whereabouts crashes."""
        table = assign_slices(plan("fd00::/62", 64), nodes=nodes("a"))
        assert ["fd00::/64 a", "fd00:0:0:1::/64", "fd00:0:0:2::/64", "fd00:0:0:3::/64"] == listed(table)

    def test_a_node_is_replaced_in_a_full_table(self) -> None:
        """Whereabouts leaves the new node without a slice until the next change."""
        before = assign_slices(plan("10.0.0.0/23", 24), nodes=nodes("n1", "n2"))
        table = assign_slices(plan("10.0.0.0/23", 24), nodes=nodes("n1", "n3"), previous=before)
        assert ["10.0.0.0/24 n1", "10.0.1.0/24 n3"] == listed(table)

    def test_88_exclusions_apply_inside_slices(self) -> None:
        """Whereabouts allocates 10.0.0.1. The prefix length is that of the whole range in both."""
        read = config(range="10.0.0.0/8", exclude=["10.0.0.0/28"], node_slice_size="/24")
        members = usable_addresses(read.ranges[0].spec, parse_prefix("10.0.0.0/24"))
        assert ["10.0.0.16-10.0.0.254"] == [str(each) for each in members.ranges]
        lowest = read.ranges[0].prefix.at(members.ranges[0].first - read.ranges[0].prefix.network)
        assert ["10.0.0.16/8"] == [str(each) for each in read.interface_addresses([lowest])]

    def test_89_a_second_range_has_its_own_slices(self) -> None:
        """Whereabouts returns the IPv4 address twice, the second time with an IPv6 prefix length."""
        read = config(range="10.0.0.0/8", ipRanges=[{"range": "fd00::/64"}], node_slice_size="/24")
        chosen = [each.layout.slice(0).at(1) for each in read.ranges]
        assert ["10.0.0.1/8", "fd00::1/64"] == [str(each) for each in read.interface_addresses(chosen)]


class TestWaiting:
    def test_the_longest_waiting_node_gets_the_next_free_slice(self) -> None:
        two = plan("10.0.0.0/23", 24)
        table = assign_slices(two, nodes=nodes("a", "b", "c", "d"))
        assert ("c", "d") == table.waiting
        table = assign_slices(two, nodes=nodes("a", "b", "d", "c", "e"), previous=table)
        assert ("c", "d", "e") == table.waiting, "independent of the order of the nodes"
        table = assign_slices(two, nodes=nodes("a", "e", "d", "c"), previous=table)
        assert (["a", "c"], ("d", "e")) == (sorted(table.assigned), table.waiting)

    def test_a_deleted_node_stops_waiting(self) -> None:
        one = plan("10.0.0.0/24", 24)
        table = assign_slices(one, nodes=nodes("a", "b", "c"))
        assert ("c",) == assign_slices(one, nodes=nodes("a", "c"), previous=table).waiting


class TestInUse:
    def test_a_slice_of_a_deleted_node_is_kept_while_in_use(self) -> None:
        two = plan("10.0.0.0/23", 24)
        before = assign_slices(two, nodes=nodes("a", "b", "c"))
        used = [in_use_by("b", "10.0.1.0/24")]
        table = assign_slices(two, nodes=nodes("a", "c"), in_use=used, previous=before)
        assert (("c",), tuple(used)) == (table.waiting, table.others_in_use)
        assert ["10.0.0.0/24 a", "10.0.1.0/24 b"] == listed(table)
        table = assign_slices(two, nodes=nodes("a", "c"), previous=table)
        assert ["10.0.0.0/24 a", "10.0.1.0/24 c"] == listed(table)

    def test_a_replaced_node_gets_another_slice(self) -> None:
        four = plan("10.0.0.0/22", 24)
        before = assign_slices(four, nodes=nodes("a"))
        old = in_use_by("a", "10.0.0.0/24", uid="former")
        table = assign_slices(four, nodes=nodes("a"), in_use=[old], previous=before)
        assert {"a": parse_prefix("10.0.1.0/24")} == table.assigned
        assert ["10.0.0.0/24", "10.0.1.0/24 a", "10.0.2.0/24", "10.0.3.0/24"] == listed(table)

    def test_a_replaced_node_waits_if_no_other_slice_is_free(self) -> None:
        """The NodeSlicePool does not list the former node's slice under its name."""
        one = plan("10.0.0.0/24", 24)
        table = assign_slices(one, nodes=nodes("a"), in_use=[in_use_by("a", "10.0.0.0/24", uid="former")])
        assert (("a",), ["10.0.0.0/24"]) == (table.waiting, listed(table))

    def test_a_slice_used_by_a_third_party_plugin_belongs_to_a_former_node_that_has_it(self) -> None:
        used = [in_use_by("a", "10.0.0.0/24", uid=""), in_use_by("a", "10.0.0.0/24", uid="former")]
        table = assign_slices(plan("10.0.0.0/22", 24), nodes=nodes("a"), in_use=used)
        assert {"a": parse_prefix("10.0.1.0/24")} == table.assigned

    def test_a_node_gets_another_slice_for_a_disputed_one(self) -> None:
        disputed = HeldSlice(parse_prefix("10.0.0.0/24"), "a", "uid-a", disputed=True)
        table = assign_slices(plan("10.0.0.0/22", 24), nodes=nodes("a", "b"), in_use=[disputed])
        assert {"a": parse_prefix("10.0.1.0/24"), "b": parse_prefix("10.0.2.0/24")} == table.assigned

    def test_a_slice_used_by_a_third_party_plugin_belongs_to_the_live_node(self) -> None:
        table = assign_slices(plan("10.0.0.0/22", 24), nodes=nodes("a"), in_use=[in_use_by("a", "10.0.3.0/24", uid="")])
        assert {"a": parse_prefix("10.0.3.0/24")} == table.assigned

    def test_use_takes_precedence_over_the_previous_assignment(self) -> None:
        four = plan("10.0.0.0/22", 24)
        before = SliceAssignment(
            layout=four.layout, assigned={"a": parse_prefix("10.0.0.0/24"), "b": parse_prefix("10.0.1.0/24")}
        )
        table = assign_slices(four, nodes=nodes("a", "b"), in_use=[in_use_by("b", "10.0.0.0/24")], previous=before)
        assert {"a": "10.0.1.0/24", "b": "10.0.0.0/24"} == assigned(table)

    def test_a_changed_size_moves_idle_nodes_and_keeps_slices_in_use(self) -> None:
        before = assign_slices(plan("10.0.0.0/24", 26), nodes=nodes("busy", "idle"))
        used = [in_use_by("busy", "10.0.0.0/26")]
        table = assign_slices(plan("10.0.0.0/24", 25), nodes=nodes("busy", "idle", "new"), in_use=used, previous=before)
        assert {"busy": "10.0.0.0/26", "idle": "10.0.0.128/25"} == assigned(table)
        assert (("busy",), ("new",)) == (table.outdated, table.waiting)
        assert ["10.0.0.0/26 busy", "10.0.0.128/25 idle"] == listed(table)
        returned = assign_slices(plan("10.0.0.0/24", 25), nodes=nodes("busy", "idle", "new"), previous=table)
        assert ((), ["10.0.0.0/25 busy", "10.0.0.128/25 idle"]) == (returned.outdated, listed(returned))
        assert ("new",) == returned.waiting

    def test_a_disjoint_range_does_not_affect_former_slices(self) -> None:
        used = [in_use_by("busy", "10.0.0.0/24")]
        table = assign_slices(plan("11.0.0.0/16", 24), nodes=nodes("busy"), in_use=used)
        assert ({"busy": parse_prefix("11.0.0.0/24")}, ()) == (table.assigned, table.others_in_use)

    def test_of_two_slices_a_node_keeps_the_one_that_fits_and_both_are_blocked(self) -> None:
        used = [in_use_by("a", "10.0.0.0/26"), in_use_by("a", "10.0.0.128/25")]
        table = assign_slices(plan("10.0.0.0/24", 25), nodes=nodes("a", "b"), in_use=used)
        assert {"a": parse_prefix("10.0.0.128/25")} == table.assigned
        assert (("b",), (used[0],), ()) == (table.waiting, table.others_in_use, table.conflicts)

    def test_overlapping_slices_in_use_are_conflicts(self) -> None:
        used = [in_use_by("a", "10.0.0.0/24"), in_use_by("b", "10.0.0.0/25"), in_use_by("gone", "10.0.1.0/24")]
        table = assign_slices(plan("10.0.0.0/22", 24), nodes=nodes("a", "b", "c"), in_use=used)
        assert ((used[0], used[1]),) == table.conflicts
        assert {"a": "10.0.0.0/24", "b": "10.0.0.0/25", "c": "10.0.2.0/24"} == assigned(table)


class TestShared:
    """Addresses that Pods have from before the range was divided into slices."""

    plan = plan("10.0.0.0/24", 26)
    taken = (
        in_use_by("", "10.0.0.1/32", uid=""),
        in_use_by("", "10.0.0.2/32", uid=""),
        in_use_by("", "10.0.0.200/32", uid=""),
    )

    def test_a_slice_with_a_shared_address_is_neither_assigned_nor_listed(self) -> None:
        table = assign_slices(self.plan, nodes=nodes("a", "b", "c"), in_use=self.taken)
        assert {"a": "10.0.0.64/26", "b": "10.0.0.128/26"} == assigned(table)
        assert (("c",), 2) == (table.waiting, table.withheld)
        assert ["10.0.0.64/26 a", "10.0.0.128/26 b"] == listed(table)

    def test_it_is_assigned_when_its_last_shared_address_is_released(self) -> None:
        before = assign_slices(self.plan, nodes=nodes("a", "b", "c"), in_use=self.taken)
        table = assign_slices(self.plan, nodes=nodes("a", "b", "c"), in_use=self.taken[2:], previous=before)
        assert {"a": "10.0.0.64/26", "b": "10.0.0.128/26", "c": "10.0.0.0/26"} == assigned(table)
        assert 1 == table.withheld

    def test_a_slice_in_use_with_a_shared_address_is_kept_and_is_a_conflict(self) -> None:
        mine = in_use_by("a", "10.0.0.0/26")
        table = assign_slices(self.plan, nodes=nodes("a"), in_use=(mine, *self.taken))
        assert {"a": "10.0.0.0/26"} == assigned(table)
        assert [(mine, self.taken[0]), (mine, self.taken[1])] == [*table.conflicts]


class TestUnusableSlices:
    @pytest.mark.parametrize(
        ("able", "runs"),
        [
            ([], []),
            ([range_spec("10.0.0.0/24")], []),
            ([range_spec("10.0.0.0/24", exclude=("10.0.0.0/25",))], [(0, 1)]),
            ([range_spec("10.0.0.0/24", start="10.0.0.70", end="10.0.0.130")], [(0, 0), (3, 3)]),
            ([range_spec("10.0.0.0/24", exclude=("10.0.0.64/26", "10.0.0.128/27", "10.0.0.160/27"))], [(1, 2)]),
            ([range_spec("10.0.0.0/24", exclude=("10.0.0.65/32",))], []),
            ([range_spec("10.0.0.0/24", start="10.0.0.63")], [(0, 0)]),
            ([range_spec("10.0.0.0/24", end="10.0.0.64")], [(1, 3)]),
            (
                [range_spec("10.0.0.0/24", exclude=("10.0.0.0/25",)), range_spec("10.0.0.0/24", end="10.0.0.9")],
                [(1, 1)],
            ),
            ([range_spec("10.0.0.0/24", exclude=("10.0.0.0/24",))], [(0, 3)]),
        ],
    )
    def test_slices_without_a_usable_address_are_found(
        self, able: list[RangeSpec], runs: list[tuple[int, int]]
    ) -> None:
        """Also when only the first or last address of a slice is allowed."""
        layout = plan("10.0.0.0/24", 26).layout
        assert runs == unusable_slices(layout, able)
        usable = {
            number for number in range(4) if any(usable_addresses(each, layout.slice(number)).ranges for each in able)
        }
        assert not able or usable == set(range(4)) - {number for run in runs for number in range(run[0], run[1] + 1)}

    def test_they_are_not_assigned(self) -> None:
        halved = plan("10.0.0.0/24", 26, allow=(range_spec("10.0.0.0/24", exclude=("10.0.0.0/25",)),))
        table = assign_slices(halved, nodes=nodes("a", "b", "c"))
        assert {"a": "10.0.0.128/26", "b": "10.0.0.192/26"} == assigned(table)
        assert ("c",) == table.waiting

    def test_a_node_with_an_unusable_slice_moves_unless_it_is_in_use(self) -> None:
        before = assign_slices(plan("10.0.0.0/24", 26), nodes=nodes("a", "b"))
        halved = plan("10.0.0.0/24", 26, allow=(range_spec("10.0.0.0/24", exclude=("10.0.0.0/25",)),))
        used = [in_use_by("b", "10.0.0.64/26")]
        table = assign_slices(halved, nodes=nodes("a", "b"), in_use=used, previous=before)
        assert {"a": "10.0.0.128/26", "b": "10.0.0.64/26"} == assigned(table)

    def test_wide_ipv6_ranges_are_not_enumerated(self) -> None:
        layout = plan("fd00::/16", 64).layout
        assert [(0, (1 << 47) - 1)] == unusable_slices(layout, [range_spec("fd00::/16", exclude=("fd00::/17",))])


class TestNodeSlicePoolStatus:
    def test_all_slices_are_listed_if_they_fit(self) -> None:
        assert 16_384 == len(slice_allocations(assign_slices(plan("10.0.0.0/8", 22), nodes=nodes("a"))))

    @pytest.mark.parametrize(("range_", "length"), [("10.0.0.0/8", 24), ("fd00::/16", 64)])
    def test_only_assigned_slices_are_listed_if_all_do_not_fit(self, range_: str, length: int) -> None:
        table = assign_slices(plan(range_, length), nodes=nodes("a", "b"))
        assert ["a", "b"] == [each.node_name for each in slice_allocations(table)]

    def test_an_assignment_is_read_from_a_nodeslicepool(self) -> None:
        four = plan("10.0.0.0/22", 24)
        table = assign_slices(four, nodes=nodes("a", "b"))
        status = NodeSlicePoolStatus(
            allocations=(*slice_allocations(table), SliceAllocation(node_name="c", slice_range="nonsense"))
        )
        pool = NodeSlicePool(metadata=ObjectMeta(name="net"), status=status)
        assert 2 == table.free
        assert table.assigned == read_assignment(pool, four.layout).assigned
        assert ("z",) == read_assignment(pool, four.layout, waiting=("z",)).waiting


PLANS = [
    plan("10.0.0.0/26", 29),
    plan("10.0.0.0/26", 28),
    plan("10.0.0.0/27", 30),
    plan("10.0.0.32/27", 29),
    plan("10.0.1.0/26", 29),
    plan("10.0.0.0/26", 29, allow=(range_spec("10.0.0.0/26", exclude=("10.0.0.8/29",), end="10.0.0.40"),)),
    plan("fd00::/60", 63),
]
names = st.sampled_from([f"n{number}" for number in range(11)])


class Cluster(RuleBasedStateMachine):
    """Nodes join, leave and are replaced; agents use and return slices; range and size change."""

    @initialize(first=st.sampled_from(PLANS))
    def begin(self, first: SliceTablePlan) -> None:
        self.plan = first
        self.live: dict[str, str] = {}
        self.used: set[HeldSlice] = set()
        self.created = 0
        self.table = assign_slices(first, nodes={})

    def step(self) -> None:
        before, self.table = (
            self.table,
            assign_slices(self.plan, nodes=self.live, in_use=self.used, previous=self.table),
        )
        for node in self.live.keys() & before.assigned.keys() & self.table.assigned.keys():
            fits = before.assigned[node] not in self.unusable() and self.plan.layout.contains(before.assigned[node])
            if fits and not self.uses_another(node, before.assigned[node]):
                assert before.assigned[node] == self.table.assigned[node], "a node that stays keeps its slice"
        still = [node for node in before.waiting if node in self.table.waiting]
        assert still == [node for node in self.table.waiting if node in before.waiting], "in order"

    def uses_another(self, node: str, slice_: Prefix) -> bool:
        """Return whether a node may be using another slice, or a former node of its name any."""
        used = self.uses(node)
        mine = [each.slice for each in used if each.uid == self.live[node]]
        return len(mine) < len(used) or bool(mine and slice_ not in mine)

    def uses(self, node: str) -> list[HeldSlice]:
        return [each for each in self.used if each.node == node]

    def unusable(self) -> set[Prefix]:
        return {
            self.plan.layout.slice(number)
            for first, last in unusable_slices(self.plan.layout, self.plan.range_specs)
            for number in range(first, last + 1)
        }

    @rule(name=names)
    def join(self, name: str) -> None:
        self.created += 1
        self.live.setdefault(name, f"uid-{self.created}")
        self.step()

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.live.pop(name, None)
        self.step()

    @rule(name=names, other=names)
    def swap(self, name: str, other: str) -> None:
        self.live.pop(name, None)
        self.join(other)

    @rule(name=names)
    def replace(self, name: str) -> None:
        self.live.pop(name, None)
        self.join(name)

    @rule(name=names)
    def use(self, name: str) -> None:
        """An agent uses its assigned slice."""
        if name in self.live and name in self.table.assigned:
            self.used.add(HeldSlice(self.table.assigned[name], name, self.live[name]))
            self.step()

    @rule(name=names)
    def return_or_delete(self, name: str) -> None:
        self.used -= set(self.uses(name))
        self.step()

    @rule(other=st.sampled_from(PLANS))
    def change(self, other: SliceTablePlan) -> None:
        self.plan = other
        self.step()

    @rule()
    def no_change(self) -> None:
        before = self.table
        self.step()
        assert before == self.table

    @invariant()
    def no_two_slices_overlap(self) -> None:
        given = {HeldSlice(each, node, self.live[node]) for node, each in self.table.assigned.items()}
        ranges = sorted((each.slice.range, each.node, each.uid) for each in given | self.used)
        assert not any(one[0].overlaps(other[0]) for one, other in pairwise(ranges))

    @invariant()
    def every_node_has_a_slice_or_waits(self) -> None:
        assert sorted(self.live) == sorted([*self.table.assigned, *self.table.waiting])

    @invariant()
    def no_node_waits_while_a_slice_is_free(self) -> None:
        if self.table.waiting:
            taken = [each.range for each in (*self.table.assigned.values(), *(each.slice for each in self.used))]
            slices = [self.plan.layout.slice(number) for number in range(self.plan.layout.count)]
            free = [each for each in slices if not any(each.range.overlaps(other) for other in taken)]
            assert set(free) <= self.unusable()

    @invariant()
    def unusable_slices_are_not_assigned(self) -> None:
        assert not (set(self.table.assigned.values()) & self.unusable()) - {each.slice for each in self.used}

    @invariant()
    def the_nodeslicepool_lists_the_assignment(self) -> None:
        listed = {
            each.node_name: each.slice_range for each in slice_allocations(self.table) if each.node_name in self.live
        }
        assert {node: str(each) for node, each in self.table.assigned.items()} == listed


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=min(50, settings().max_examples), stateful_step_count=30)

"""The slice table: who has which slice, whatever nodes, range and size become."""

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
    LiveNode,
    SliceAssignment,
    assign_slices,
    read_assignment,
    slice_allocations,
    unusable_slices,
    usable_addresses,
)
from tests.whereabouts.builders import allowed, config, plan


def nodes(*names: str) -> list[LiveNode]:
    return [LiveNode(name, f"uid-{name}") for name in names]


def holding(node: str, slice_: str, *, uid: str | None = None) -> HeldSlice:
    return HeldSlice(parse_prefix(slice_), node, f"uid-{node}" if uid is None else uid)


def held(table: SliceAssignment) -> dict[str, str]:
    return {node: str(each) for node, each in table.held.items()}


def shown(table: SliceAssignment) -> list[str]:
    return [f"{each.slice_range} {each.node_name}".strip() for each in slice_allocations(table)]


class TestAsWhereabouts:
    """Its controller's own tests, and what was seen by running it."""

    def test_creates_node_slice_pools_no_nodes(self) -> None:
        table = assign_slices(plan("10.0.0.0/8", 10), nodes=[])
        assert ["10.0.0.0/10", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"] == shown(table)

    def test_creates_node_slice_pools_with_nodes(self) -> None:
        table = assign_slices(plan("10.0.0.0/8", 10), nodes=nodes("node1", "node2"))
        assert ["10.0.0.0/10 node1", "10.64.0.0/10 node2", "10.128.0.0/10", "10.192.0.0/10"] == shown(table)

    def test_node_joins(self) -> None:
        before = assign_slices(plan("10.0.0.0/8", 10), nodes=[])
        table = assign_slices(plan("10.0.0.0/8", 10), nodes=nodes("node1"), previous=before)
        assert ["10.0.0.0/10 node1", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"] == shown(table)

    def test_node_leaves(self) -> None:
        before = assign_slices(plan("10.0.0.0/8", 10), nodes=nodes("node1"))
        table = assign_slices(plan("10.0.0.0/8", 10), nodes=[], previous=before)
        assert ["10.0.0.0/10", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"] == shown(table)

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
        """While nothing is in use; theirs moves nodes whose Pods run, too."""
        two = nodes("node1", "node2")
        before = assign_slices(plan("10.0.0.0/8", 10), nodes=two)
        assert expected == shown(assign_slices(plan(range_, length), nodes=two, previous=before))

    def test_three_nodes_for_two_slices(self) -> None:
        """Theirs says nothing of the third, whose Pods crash the plugin."""
        table = assign_slices(plan("10.0.0.0/23", 24), nodes=nodes("n1", "n2", "n3"))
        assert ["10.0.0.0/24 n1", "10.0.1.0/24 n2"] == shown(table)
        assert ("n3",) == table.waiting

    def test_host_bits_are_dropped(self) -> None:
        expected = ["192.168.2.0/25", "192.168.2.128/25", "192.168.3.0/25", "192.168.3.128/25"]
        assert expected == shown(assign_slices(plan("192.168.2.225/23", 25), nodes=[]))

    def test_ipv6_is_cut_too(self) -> None:
        """Theirs crashes."""
        table = assign_slices(plan("fd00::/62", 64), nodes=nodes("a"))
        assert ["fd00::/64 a", "fd00:0:0:1::/64", "fd00:0:0:2::/64", "fd00:0:0:3::/64"] == shown(table)

    def test_a_full_table_with_a_node_swapped_in_one_step(self) -> None:
        """Theirs leaves the new node without a slice until something else happens."""
        before = assign_slices(plan("10.0.0.0/23", 24), nodes=nodes("n1", "n2"))
        table = assign_slices(plan("10.0.0.0/23", 24), nodes=nodes("n1", "n3"), previous=before)
        assert ["10.0.0.0/24 n1", "10.0.1.0/24 n3"] == shown(table)

    def test_88_exclusions_are_honoured_inside_slices(self) -> None:
        """Theirs gives 10.0.0.1; the mask is that of the whole range in both."""
        read = config(range="10.0.0.0/8", exclude=["10.0.0.0/28"], node_slice_size="/24")
        members = usable_addresses(read.ranges[0].allocation, parse_prefix("10.0.0.0/24"))
        assert ["10.0.0.16-10.0.0.254"] == [str(each) for each in members.ranges]
        lowest = read.ranges[0].prefix.at(members.ranges[0].first - read.ranges[0].prefix.network)
        assert ["10.0.0.16/8"] == [str(each) for each in read.given([lowest])]

    def test_89_a_second_range_has_its_own_slices(self) -> None:
        """Theirs gives the IPv4 address twice, the second time with an IPv6 mask."""
        read = config(range="10.0.0.0/8", ipRanges=[{"range": "fd00::/64"}], node_slice_size="/24")
        chosen = [each.cut.slice(0).at(1) for each in read.ranges]
        assert ["10.0.0.1/8", "fd00::1/64"] == [str(each) for each in read.given(chosen)]


class TestWaiting:
    def test_the_longest_waiting_gets_the_next_free_slice(self) -> None:
        two = plan("10.0.0.0/23", 24)
        table = assign_slices(two, nodes=nodes("a", "b", "c", "d"))
        assert ("c", "d") == table.waiting
        table = assign_slices(two, nodes=nodes("a", "b", "d", "c", "e"), previous=table)
        assert ("c", "d", "e") == table.waiting, "whatever order nodes are listed in"
        table = assign_slices(two, nodes=nodes("a", "e", "d", "c"), previous=table)
        assert (["a", "c"], ("d", "e")) == (sorted(table.held), table.waiting)

    def test_one_that_leaves_does_not_wait_any_more(self) -> None:
        one = plan("10.0.0.0/24", 24)
        table = assign_slices(one, nodes=nodes("a", "b", "c"))
        assert ("c",) == assign_slices(one, nodes=nodes("a", "c"), previous=table).waiting


class TestInUse:
    def test_a_slice_stays_with_a_node_that_left_until_it_is_gone(self) -> None:
        two = plan("10.0.0.0/23", 24)
        before = assign_slices(two, nodes=nodes("a", "b", "c"))
        used = [holding("b", "10.0.1.0/24")]
        table = assign_slices(two, nodes=nodes("a", "c"), in_use=used, previous=before)
        assert (("c",), tuple(used)) == (table.waiting, table.left_behind)
        assert ["10.0.0.0/24 a", "10.0.1.0/24 b"] == shown(table)
        table = assign_slices(two, nodes=nodes("a", "c"), previous=table)
        assert ["10.0.0.0/24 a", "10.0.1.0/24 c"] == shown(table)

    def test_a_machine_that_comes_back_under_the_name_gets_another(self) -> None:
        four = plan("10.0.0.0/22", 24)
        before = assign_slices(four, nodes=nodes("a"))
        old = holding("a", "10.0.0.0/24", uid="the old one")
        table = assign_slices(four, nodes=nodes("a"), in_use=[old], previous=before)
        assert {"a": parse_prefix("10.0.1.0/24")} == table.held
        assert ["10.0.0.0/24", "10.0.1.0/24 a", "10.0.2.0/24", "10.0.3.0/24"] == shown(table)

    def test_even_when_there_is_none_left(self) -> None:
        """The object does not tell it that the first one's slice were its own."""
        one = plan("10.0.0.0/24", 24)
        table = assign_slices(one, nodes=nodes("a"), in_use=[holding("a", "10.0.0.0/24", uid="the old one")])
        assert (("a",), ["10.0.0.0/24"]) == (table.waiting, shown(table))

    def test_a_slice_that_a_foreign_plugin_took_is_the_living_nodes(self) -> None:
        table = assign_slices(plan("10.0.0.0/22", 24), nodes=nodes("a"), in_use=[holding("a", "10.0.3.0/24", uid="")])
        assert {"a": parse_prefix("10.0.3.0/24")} == table.held

    def test_what_is_in_use_counts_more_than_what_was_planned(self) -> None:
        four = plan("10.0.0.0/22", 24)
        before = SliceAssignment(
            cut=four.cut, held={"a": parse_prefix("10.0.0.0/24"), "b": parse_prefix("10.0.1.0/24")}
        )
        table = assign_slices(four, nodes=nodes("a", "b"), in_use=[holding("b", "10.0.0.0/24")], previous=before)
        assert {"a": "10.0.1.0/24", "b": "10.0.0.0/24"} == held(table)

    def test_a_changed_size_moves_who_is_idle_and_keeps_who_is_busy(self) -> None:
        before = assign_slices(plan("10.0.0.0/24", 26), nodes=nodes("busy", "idle"))
        used = [holding("busy", "10.0.0.0/26")]
        table = assign_slices(plan("10.0.0.0/24", 25), nodes=nodes("busy", "idle", "new"), in_use=used, previous=before)
        assert {"busy": "10.0.0.0/26", "idle": "10.0.0.128/25"} == held(table)
        assert (("busy",), ("new",)) == (table.misfits, table.waiting)
        assert ["10.0.0.0/26 busy", "10.0.0.128/25 idle"] == shown(table)
        handed_back = assign_slices(plan("10.0.0.0/24", 25), nodes=nodes("busy", "idle", "new"), previous=table)
        assert ((), ["10.0.0.0/25 busy", "10.0.0.128/25 idle"]) == (handed_back.misfits, shown(handed_back))
        assert ("new",) == handed_back.waiting

    def test_a_range_elsewhere_leaves_the_old_slices_alone(self) -> None:
        used = [holding("busy", "10.0.0.0/24")]
        table = assign_slices(plan("11.0.0.0/16", 24), nodes=nodes("busy"), in_use=used)
        assert ({"busy": parse_prefix("11.0.0.0/24")}, ()) == (table.held, table.left_behind)

    def test_a_node_with_two_keeps_the_one_that_fits_and_blocks_both(self) -> None:
        used = [holding("a", "10.0.0.0/26"), holding("a", "10.0.0.128/25")]
        table = assign_slices(plan("10.0.0.0/24", 25), nodes=nodes("a", "b"), in_use=used)
        assert {"a": parse_prefix("10.0.0.128/25")} == table.held
        assert (("b",), (used[0],), ()) == (table.waiting, table.left_behind, table.disputed)

    def test_two_that_use_the_same_addresses_are_named_and_nobody_joins_them(self) -> None:
        used = [holding("a", "10.0.0.0/24"), holding("b", "10.0.0.0/25"), holding("gone", "10.0.1.0/24")]
        table = assign_slices(plan("10.0.0.0/22", 24), nodes=nodes("a", "b", "c"), in_use=used)
        assert ((used[0], used[1]),) == table.disputed
        assert {"a": "10.0.0.0/24", "b": "10.0.0.0/25", "c": "10.0.2.0/24"} == held(table)


class TestShared:
    """Addresses that Pods have from the range as it was shared by all nodes, before it was cut."""

    cut = plan("10.0.0.0/24", 26)
    taken = (
        holding("", "10.0.0.1/32", uid=""),
        holding("", "10.0.0.2/32", uid=""),
        holding("", "10.0.0.200/32", uid=""),
    )

    def test_a_slice_with_such_an_address_is_given_to_nobody_and_not_listed_as_free(self) -> None:
        table = assign_slices(self.cut, nodes=nodes("a", "b", "c"), in_use=self.taken)
        assert {"a": "10.0.0.64/26", "b": "10.0.0.128/26"} == held(table)
        assert (("c",), 2) == (table.waiting, table.kept_back)
        assert ["10.0.0.64/26 a", "10.0.0.128/26 b"] == shown(table)

    def test_it_goes_to_who_waits_as_soon_as_its_last_such_address_is_free(self) -> None:
        before = assign_slices(self.cut, nodes=nodes("a", "b", "c"), in_use=self.taken)
        table = assign_slices(self.cut, nodes=nodes("a", "b", "c"), in_use=self.taken[2:], previous=before)
        assert {"a": "10.0.0.64/26", "b": "10.0.0.128/26", "c": "10.0.0.0/26"} == held(table)
        assert 1 == table.kept_back

    def test_who_uses_its_slice_keeps_it_and_is_named(self) -> None:
        mine = holding("a", "10.0.0.0/26")
        table = assign_slices(self.cut, nodes=nodes("a"), in_use=(mine, *self.taken))
        assert {"a": "10.0.0.0/26"} == held(table)
        assert [(mine, self.taken[0]), (mine, self.taken[1])] == [*table.disputed]


class TestBarren:
    @pytest.mark.parametrize(
        ("able", "runs"),
        [
            ([], []),
            ([allowed("10.0.0.0/24")], []),
            ([allowed("10.0.0.0/24", exclude=("10.0.0.0/25",))], [(0, 1)]),
            ([allowed("10.0.0.0/24", start="10.0.0.70", end="10.0.0.130")], [(0, 0), (3, 3)]),
            ([allowed("10.0.0.0/24", exclude=("10.0.0.64/26", "10.0.0.128/27", "10.0.0.160/27"))], [(1, 2)]),
            ([allowed("10.0.0.0/24", exclude=("10.0.0.65/32",))], []),
            ([allowed("10.0.0.0/24", start="10.0.0.63")], [(0, 0)]),
            ([allowed("10.0.0.0/24", end="10.0.0.64")], [(1, 3)]),
            ([allowed("10.0.0.0/24", exclude=("10.0.0.0/25",)), allowed("10.0.0.0/24", end="10.0.0.9")], [(1, 1)]),
            ([allowed("10.0.0.0/24", exclude=("10.0.0.0/24",))], [(0, 3)]),
        ],
    )
    def test_slices_without_a_usable_address_are_found(
        self, able: list[RangeSpec], runs: list[tuple[int, int]]
    ) -> None:
        """Also when all that is left is a slice's own first or last address."""
        cut = plan("10.0.0.0/24", 26).cut
        assert runs == unusable_slices(cut, able)
        given = {
            number for number in range(4) if any(usable_addresses(each, cut.slice(number)).ranges for each in able)
        }
        assert not able or given == set(range(4)) - {number for run in runs for number in range(run[0], run[1] + 1)}

    def test_they_are_given_to_nobody(self) -> None:
        halved = plan("10.0.0.0/24", 26, allow=(allowed("10.0.0.0/24", exclude=("10.0.0.0/25",)),))
        table = assign_slices(halved, nodes=nodes("a", "b", "c"))
        assert {"a": "10.0.0.128/26", "b": "10.0.0.192/26"} == held(table)
        assert ("c",) == table.waiting

    def test_who_has_one_that_became_so_moves_unless_it_is_in_use(self) -> None:
        before = assign_slices(plan("10.0.0.0/24", 26), nodes=nodes("a", "b"))
        halved = plan("10.0.0.0/24", 26, allow=(allowed("10.0.0.0/24", exclude=("10.0.0.0/25",)),))
        used = [holding("b", "10.0.0.64/26")]
        table = assign_slices(halved, nodes=nodes("a", "b"), in_use=used, previous=before)
        assert {"a": "10.0.0.128/26", "b": "10.0.0.64/26"} == held(table)

    def test_a_whole_ipv6_range_is_looked_at_without_being_listed(self) -> None:
        cut = plan("fd00::/16", 64).cut
        assert [(0, (1 << 47) - 1)] == unusable_slices(cut, [allowed("fd00::/16", exclude=("fd00::/17",))])


class TestListing:
    def test_a_table_that_fits_lists_every_slice(self) -> None:
        assert 16_384 == len(slice_allocations(assign_slices(plan("10.0.0.0/8", 22), nodes=nodes("a"))))

    @pytest.mark.parametrize(("range_", "length"), [("10.0.0.0/8", 24), ("fd00::/16", 64)])
    def test_one_too_large_for_an_object_lists_those_that_are_held(self, range_: str, length: int) -> None:
        table = assign_slices(plan(range_, length), nodes=nodes("a", "b"))
        assert ["a", "b"] == [each.node_name for each in slice_allocations(table)]

    def test_a_table_is_taken_up_where_an_object_shows_it(self) -> None:
        four = plan("10.0.0.0/22", 24)
        table = assign_slices(four, nodes=nodes("a", "b"))
        status = NodeSlicePoolStatus(
            allocations=(*slice_allocations(table), SliceAllocation(node_name="c", slice_range="nonsense"))
        )
        pool = NodeSlicePool(metadata=ObjectMeta(name="net"), status=status)
        assert table == read_assignment(pool, four.cut)
        assert ("z",) == read_assignment(pool, four.cut, waiting=("z",)).waiting


PLANS = [
    plan("10.0.0.0/26", 29),
    plan("10.0.0.0/26", 28),
    plan("10.0.0.0/27", 30),
    plan("10.0.0.32/27", 29),
    plan("10.0.1.0/26", 29),
    plan("10.0.0.0/26", 29, allow=(allowed("10.0.0.0/26", exclude=("10.0.0.8/29",), end="10.0.0.40"),)),
    plan("fd00::/60", 63),
]
names = st.sampled_from([f"n{number}" for number in range(11)])


class Cluster(RuleBasedStateMachine):
    """Nodes come, go and come back as others; agents take and hand back; range and size change."""

    @initialize(first=st.sampled_from(PLANS))
    def begin(self, first: SliceTablePlan) -> None:
        self.plan = first
        self.living: dict[str, LiveNode] = {}
        self.used: set[HeldSlice] = set()
        self.births = 0
        self.table = assign_slices(first, nodes=[])
        self.queue: list[str] = []

    def step(self) -> None:
        before, self.table = (
            self.table,
            assign_slices(self.plan, nodes=list(self.living.values()), in_use=self.used, previous=self.table),
        )
        for node in self.living.keys() & before.held.keys() & self.table.held.keys():
            fits = before.held[node] not in self.barren() and self.plan.cut.has(before.held[node])
            if fits and not self.elsewhere(node, before.held[node]):
                assert before.held[node] == self.table.held[node], "a node that stays keeps its slice"
        still = [node for node in before.waiting if node in self.table.waiting]
        assert still == [node for node in self.table.waiting if node in before.waiting], "in order"

    def elsewhere(self, node: str, slice_: Prefix) -> bool:
        """Tell whether a node may be using other slices, or an earlier machine of its name some."""
        used = self.uses(node)
        mine = [each.slice for each in used if each.uid == self.living[node].uid]
        return len(mine) < len(used) or bool(mine and slice_ not in mine)

    def uses(self, node: str) -> list[HeldSlice]:
        return [each for each in self.used if each.node == node]

    def barren(self) -> set[Prefix]:
        return {
            self.plan.cut.slice(number)
            for first, last in unusable_slices(self.plan.cut, self.plan.allowed)
            for number in range(first, last + 1)
        }

    @rule(name=names)
    def join(self, name: str) -> None:
        self.births += 1
        self.living.setdefault(name, LiveNode(name, f"uid-{self.births}"))
        self.step()

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.living.pop(name, None)
        self.step()

    @rule(name=names, other=names)
    def swap(self, name: str, other: str) -> None:
        self.living.pop(name, None)
        self.join(other)

    @rule(name=names)
    def replace(self, name: str) -> None:
        self.living.pop(name, None)
        self.join(name)

    @rule(name=names)
    def take(self, name: str) -> None:
        """An agent takes the slice that the table gives it."""
        if name in self.living and name in self.table.held:
            self.used.add(HeldSlice(self.table.held[name], name, self.living[name].uid))
            self.step()

    @rule(name=names)
    def hand_back_or_be_gone(self, name: str) -> None:
        self.used -= set(self.uses(name))
        self.step()

    @rule(other=st.sampled_from(PLANS))
    def change(self, other: SliceTablePlan) -> None:
        self.plan = other
        self.step()

    @rule()
    def nothing_happens(self) -> None:
        before = self.table
        self.step()
        assert before == self.table

    @invariant()
    def no_two_share_an_address(self) -> None:
        given = {HeldSlice(each, node, self.living[node].uid) for node, each in self.table.held.items()}
        ranges = sorted((each.slice.range, each.node, each.uid) for each in given | self.used)
        assert not any(one[0].overlaps(other[0]) for one, other in pairwise(ranges))

    @invariant()
    def everybody_has_one_or_waits(self) -> None:
        assert sorted(self.living) == sorted([*self.table.held, *self.table.waiting])

    @invariant()
    def nobody_waits_beside_a_free_slice(self) -> None:
        if self.table.waiting:
            taken = [each.range for each in (*self.table.held.values(), *(each.slice for each in self.used))]
            slices = [self.plan.cut.slice(number) for number in range(self.plan.cut.count)]
            free = [each for each in slices if not any(each.range.overlaps(other) for other in taken)]
            assert set(free) <= self.barren()

    @invariant()
    def nobody_is_given_one_that_has_nothing(self) -> None:
        assert not (set(self.table.held.values()) & self.barren()) - {each.slice for each in self.used}

    @invariant()
    def the_object_agrees(self) -> None:
        listed = {
            each.node_name: each.slice_range for each in slice_allocations(self.table) if each.node_name in self.living
        }
        assert {node: str(each) for node, each in self.table.held.items()} == listed


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=50, stateful_step_count=30)

"""Attachments, and the slice tables that they need."""

import json
from typing import Any

import pytest

from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.nads import ParsedNad, parse_nad, suggest_slice_size
from podpool.whereabouts.network_plan import NetworkPlan, SliceTableKey, plan_networks
from tests.whereabouts.builders import attachment, config, definition, network


def key(range_: str, network_name: str = "") -> SliceTableKey:
    return SliceTableKey(network_name, parse_prefix(range_))


def tables(found: NetworkPlan) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {f"{plan.key.network} {plan.key.range}".strip(): (plan.cut.length, plan.attachments) for plan in found.plans}


class TestAttachments:
    def test_one_that_is_ours_is_read(self) -> None:
        read = parse_nad(definition("blue", network(range="10.0.0.0/8", node_slice_size="/24"), namespace="shop"))
        assert read is not None
        assert ("shop/blue", "mynet") == (read.key, read.config.name)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            '{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}}',
            '{"type": "macvlan"}',
            '{"type": "macvlan", "ipam": {}}',
            '{"name": "list", "plugins": [{"type": "tuning"}, {"type": "bridge", "ipam": {"type": "dhcp"}}]}',
            '{"name": "list", "plugins": []}',
        ],
    )
    def test_98_those_of_others_are_passed_over(self, text: str) -> None:
        """Nothing is told of them, and they block nobody, as one host-local attachment once did."""
        assert parse_nad(definition("other", text)) is None

    def test_one_that_cannot_be_read_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="^configuration "):
            parse_nad(definition("bad", "{"))

    def test_without_a_name_in_its_configuration_it_goes_by_its_own(self) -> None:
        """Whereabouts asks for a NodeSlicePool without a name."""
        plugin = json.loads(network(range="10.0.0.0/8"))
        del plugin["name"]
        for text in (json.dumps(plugin), json.dumps({"plugins": [plugin]})):
            read = parse_nad(definition("blue", text))
            assert read is not None
            assert "blue" == read.pool_name

    def test_one_for_the_nodes_own_pool_is_none_whatever_the_flat_file_says(self) -> None:
        """As on the nodes, whose agents give such a Pod an address of the pool."""
        own = json.dumps({"name": "own", "type": "ptp", "ipam": {"type": "podpool"}})
        assert parse_nad(definition("own", own), flat='{"range": "10.0.0.0/8", "node_slice_size": "/24"}') is None

    def test_a_flat_file_counts_as_on_the_nodes(self) -> None:
        read = parse_nad(definition("blue", network(range="10.0.0.0/8")), flat='{"node_slice_size": "/24"}')
        assert read is not None
        assert read.config.sliced

    def test_a_list_goes_by_its_name(self) -> None:
        plugin = json.loads(network(range="10.0.0.0/8"))
        read = parse_nad(definition("blue", json.dumps({"name": "listed", "plugins": [plugin]})))
        assert read is not None
        assert "listed" == read.pool_name


class TestSizeThatFits:
    @pytest.mark.parametrize(
        ("range_", "nodes", "size"),
        [
            ("10.0.0.0/8", 256, "/17"),
            ("10.0.0.0/8", 5000, "/22"),
            ("10.0.0.0/24", 0, "/25"),
            ("10.0.0.0/24", 1, "/25"),
            ("10.0.0.0/24", 3, "/27"),
            ("10.0.0.0/24", 64, "/30"),
            ("fd00::/64", 1000, "/75"),
        ],
    )
    def test_it_has_room_for_twice_the_nodes_where_the_range_has(self, range_: str, nodes: int, size: str) -> None:
        (wanted,) = config(range=range_).ranges
        assert size == suggest_slice_size(wanted, nodes=nodes)
        read = config(range=range_, node_slice_size=size).ranges[0]
        assert nodes <= read.cut.count

    def test_a_range_too_small_has_none(self) -> None:
        (wanted,) = config(range="10.0.0.0/24").ranges
        with pytest.raises(InvalidInput, match="^range '10.0.0.0/24': cannot be cut into 65 slices: use a"):
            suggest_slice_size(wanted, nodes=65)


class TestTables:
    def test_attachments_of_one_network_share_a_table(self) -> None:
        found = plan_networks(
            [
                attachment("a/one", network_name="blue", range="10.0.0.0/8", node_slice_size="/24"),
                attachment("b/two", network_name="blue", range="10.0.0.9/8", node_slice_size="24"),
            ]
        )
        assert {"blue 10.0.0.0/8": (24, ("a/one", "b/two"))} == tables(found)
        assert {"blue": key("10.0.0.0/8", "blue")} == found.slice_pools
        assert () == found.refusals

    def test_unnamed_ones_over_one_range_share_it_too_and_each_has_its_object(self) -> None:
        """So that a node has the same slice in both: Whereabouts gives it to two nodes."""
        found = plan_networks([attachment(each, range="10.0.0.0/8", node_slice_size="/24") for each in ("one", "two")])
        assert {"10.0.0.0/8": (24, ("default/one", "default/two"))} == tables(found)
        assert {"one": key("10.0.0.0/8"), "two": key("10.0.0.0/8")} == found.slice_pools

    def test_unnamed_ones_over_different_ranges_do_not_block_each_other(self) -> None:
        """With Whereabouts they do."""
        found = plan_networks(
            [
                attachment("one", range="10.0.0.0/8", node_slice_size="/24"),
                attachment("two", range="11.0.0.0/8", node_slice_size="/22"),
                attachment("three", range="12.0.0.0/8"),
            ]
        )
        assert {"10.0.0.0/8": (24, ("default/one",)), "11.0.0.0/8": (22, ("default/two",))} == tables(found)
        assert () == found.refusals

    def test_networks_of_different_names_may_have_the_same_addresses(self) -> None:
        found = plan_networks(
            [
                attachment(each, network_name=each, range="10.0.0.0/8", node_slice_size=size)
                for each, size in (("red", "/24"), ("blue", "/22"))
            ]
        )
        assert {"red 10.0.0.0/8": (24, ("default/red",)), "blue 10.0.0.0/8": (22, ("default/blue",))} == tables(found)

    def test_each_range_of_a_network_has_its_table_and_its_object(self) -> None:
        found = plan_networks(
            [attachment("dual", ipRanges=[{"range": "10.0.0.0/8"}, {"range": "fd00::/64"}], node_slice_size="/24")]
        )
        assert {"10.0.0.0/8": (24, ("default/dual",)), "fd00::/64": (120, ("default/dual",))} == tables(found)
        assert {"dual": key("10.0.0.0/8"), "dual-fd00---64": key("fd00::/64")} == found.slice_pools

    def test_a_published_object_keeps_its_range(self) -> None:
        """A network gets a further range before the first: nobody's object changes under them."""
        attachments = [
            attachment("dual", ipRanges=[{"range": "fd00::/64"}, {"range": "10.0.0.0/8"}], node_slice_size="/120")
        ]
        found = plan_networks(attachments, published={"dual": key("10.0.0.0/8")})
        assert {"dual": key("10.0.0.0/8"), "dual-fd00---64": key("fd00::/64")} == found.slice_pools
        found = plan_networks(attachments, published={"dual": key("11.0.0.0/8")})
        assert {"dual": key("fd00::/64"), "dual-10.0.0.0-8": key("10.0.0.0/8")} == found.slice_pools

    def test_what_each_may_give_is_kept_apart(self) -> None:
        found = plan_networks(
            [
                attachment("one", range="10.0.0.0/24", exclude=["10.0.0.0/25"], node_slice_size="/26"),
                attachment("two", range="10.0.0.1-10.0.0.9/24", node_slice_size="/26"),
            ]
        )
        (plan,) = found.plans
        assert ["10.0.0.128-10.0.0.254", "10.0.0.1-10.0.0.9"] == [
            str(each) for one in plan.allowed for each in one.members.ranges
        ]


PUBLISHED = {"test": key("10.0.0.0/8", "test")}


class TestAsWhereabouts:
    """Its controller's own tests that are about attachments."""

    first = attachment("test1", network_name="test", range="10.0.0.0/8", node_slice_size="/10")
    second = attachment("test2", network_name="test", range="10.0.0.0/8", node_slice_size="/10")

    def test_do_nothing(self) -> None:
        assert NetworkPlan() == plan_networks([])

    def test_nad_delete(self) -> None:
        """Theirs deletes the object that has the attachment's name, whatever the pool's is."""
        assert {} == plan_networks([], published=PUBLISHED).slice_pools

    def test_multiple_nads_same_network_name(self) -> None:
        found = plan_networks([self.first, self.second], published=PUBLISHED)
        assert {"test 10.0.0.0/8": (10, ("default/test1", "default/test2"))} == tables(found)
        assert PUBLISHED == found.slice_pools

    def test_multiple_nads_same_network_name_delete_one_nad(self) -> None:
        assert PUBLISHED == plan_networks([self.second], published=PUBLISHED).slice_pools

    def test_two_networks_range_and_slice_mismatch(self) -> None:
        """Theirs stops both, for ever; here the second alone."""
        other = attachment("test2", network_name="test", range="10.0.0.0/8", node_slice_size="/8")
        found = plan_networks([self.first, other], published=PUBLISHED)
        assert (["default/test2"], PUBLISHED) == ([each.refused for each in found.refusals], found.slice_pools)


class TestRefusals:
    def refused(self, *attachments: ParsedNad, published: dict[str, SliceTableKey] | None = None) -> tuple[str, str]:
        found = plan_networks(attachments, published=published)
        (refusal,) = found.refusals
        assert refusal.refused not in [each for plan in found.plans for each in plan.attachments]
        assert set(refusal.attachments) <= {each.key for each in attachments}
        return refusal.refused, refusal.reason

    def test_overlapping_unequal_ranges_of_one_network_name_both(self) -> None:
        wide = attachment("wide", created="2026-01-01", range="10.0.0.0/8", node_slice_size="/24")
        narrow = attachment("narrow", created="2026-01-02", range="10.1.0.0/16", node_slice_size="/24")
        other = attachment("other", created="2026-01-03", range="11.0.0.0/8", node_slice_size="/24")
        found = plan_networks([narrow, other, wide])
        assert {"10.0.0.0/8", "11.0.0.0/8"} == tables(found).keys(), "the others go on"
        (refusal,) = found.refusals
        assert ("default/wide", "default/narrow") == refusal.attachments
        assert refusal.reason == (
            "default/narrow and default/wide share addresses but not the range (10.1.0.0/16, 10.0.0.0/8): "
            "make them equal, or set another network_name"
        )

    def test_one_that_runs_is_not_stopped_by_an_older_one_that_was_changed(self) -> None:
        changed = attachment("changed", created="2026-01-01", range="10.0.0.0/8", node_slice_size="/24")
        runs = attachment("runs", created="2026-01-02", range="10.1.0.0/16", node_slice_size="/24")
        assert "default/changed" == self.refused(changed, runs, published={"runs": key("10.1.0.0/16")})[0]

    def test_one_range_cannot_have_two_sizes(self) -> None:
        one = attachment("one", range="10.0.0.0/8", node_slice_size="/10")
        two = attachment("two", range="10.0.0.0/8", node_slice_size="/8")
        refused, reason = self.refused(one, two)
        assert "default/two" == refused
        assert "share addresses but not node_slice_size (/8, /10)" in reason

    @pytest.mark.parametrize("range_", ["10.0.0.0/8", "10.1.0.0/16"])
    def test_a_range_is_not_both_cut_and_shared(self, range_: str) -> None:
        """Nobody would know what the other gives."""
        one = attachment("one", range="10.0.0.0/8", node_slice_size="/24")
        two = attachment("two", range=range_)
        assert "share addresses but not" in self.refused(one, two)[1]

    def test_shared_ranges_may_overlap(self) -> None:
        """Reservations keep them apart."""
        attachments = [attachment(each, range=each) for each in ("10.0.0.0/8", "10.0.0.0/16")]
        assert NetworkPlan() == plan_networks(attachments)

    @pytest.mark.parametrize(
        ("ipam", "reason"),
        [
            ({"range": "10.0.0.0/24", "node_slice_size": "/22"}, "node_slice_size '/22': does not divide"),
            ({"range": "10.0.0.0/24", "node_slice_size": "x"}, "node_slice_size 'x': not a prefix length"),
            ({"range": "10.0.0.0/24", "node_slice_size": "/26", "exclude": ["x"]}, "exclude 'x': not an"),
            ({"range": "10.0.0.0/24", "node_slice_size": "/26", "network_name": "A"}, "network_name 'A': cannot be"),
            (
                {"ipRanges": [{"range": "10.0.0.0/8"}, {"range": "10.1.0.0/16"}], "node_slice_size": "/24"},
                "ipRanges '10.0.0.0/8, 10.1.0.0/16': overlap",
            ),
            (
                {"ipRanges": [{"range": "10.0.0.0/8"}, {"range": "11.0.0.0/8", "node_slice_size": "/24"}]},
                "node_slice_size '': is missing for 10.0.0.0/8, and other ranges have one",
            ),
        ],
    )
    def test_one_that_cannot_work_is_refused_alone(self, ipam: dict[str, Any], reason: str) -> None:
        good = attachment("good", range="20.0.0.0/8", node_slice_size="/24")
        found = plan_networks([attachment("bad", **ipam), good])
        assert {"20.0.0.0/8"} == tables(found).keys()
        assert ("default/bad",) == found.refusals[0].attachments
        assert reason in found.refusals[0].reason

    def test_once_the_first_is_gone_the_second_is_served(self) -> None:
        narrow = attachment("narrow", range="10.1.0.0/16", node_slice_size="/24")
        assert {"10.1.0.0/16"} == tables(plan_networks([narrow], published={"wide": key("10.0.0.0/8")})).keys()

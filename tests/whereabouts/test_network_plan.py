"""NADs, and the slice tables that they need."""

import json
from typing import Any

import pytest

from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.nad import ParsedNad, parse_nad, suggest_slice_size
from podpool.whereabouts.network_plan import NetworkPlan, SliceTableKey, plan_networks
from tests.whereabouts.builders import config, nad, nad_object, network


def key(range_: str, network_name: str = "") -> SliceTableKey:
    return SliceTableKey(network_name, parse_prefix(range_))


def tables(found: NetworkPlan) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {f"{plan.key.network} {plan.key.range}".strip(): (plan.layout.length, plan.nads) for plan in found.tables}


class TestParseNad:
    def test_a_nad_of_podpool_is_parsed(self) -> None:
        read = parse_nad(nad_object("blue", network(range="10.0.0.0/8", node_slice_size="/24"), namespace="shop"))
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
    def test_98_nads_of_other_plugins_are_skipped(self, text: str) -> None:
        """They cause no Event and block no other NAD; in Whereabouts one host-local NAD does."""
        assert parse_nad(nad_object("other", text)) is None

    def test_invalid_json_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="^configuration "):
            parse_nad(nad_object("bad", "{"))

    def test_a_configuration_without_name_has_the_name_of_the_nad(self) -> None:
        """Whereabouts requests a NodeSlicePool without a name."""
        plugin = json.loads(network(range="10.0.0.0/8"))
        del plugin["name"]
        for text in (json.dumps(plugin), json.dumps({"plugins": [plugin]})):
            read = parse_nad(nad_object("blue", text))
            assert read is not None
            assert "blue" == read.pool_name

    def test_a_nad_of_the_node_pool_is_skipped_whatever_the_flat_file_contains(self) -> None:
        """As on the nodes, where such a Pod gets an address of the node's pool."""
        own = json.dumps({"name": "own", "type": "ptp", "ipam": {"type": "podpool"}})
        assert parse_nad(nad_object("own", own), flat='{"range": "10.0.0.0/8", "node_slice_size": "/24"}') is None

    def test_the_flat_file_is_merged_as_on_the_nodes(self) -> None:
        read = parse_nad(nad_object("blue", network(range="10.0.0.0/8")), flat='{"node_slice_size": "/24"}')
        assert read is not None
        assert read.config.sliced

    def test_a_plugin_list_has_its_own_name(self) -> None:
        plugin = json.loads(network(range="10.0.0.0/8"))
        read = parse_nad(nad_object("blue", json.dumps({"name": "listed", "plugins": [plugin]})))
        assert read is not None
        assert "listed" == read.pool_name


class TestSuggestSliceSize:
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
    def test_it_suffices_for_twice_the_nodes_if_possible(self, range_: str, nodes: int, size: str) -> None:
        (range_config,) = config(range=range_).ranges
        assert size == suggest_slice_size(range_config, nodes=nodes)
        read = config(range=range_, node_slice_size=size).ranges[0]
        assert nodes <= read.layout.count

    def test_a_range_that_is_too_small_is_rejected(self) -> None:
        (range_config,) = config(range="10.0.0.0/24").ranges
        with pytest.raises(InvalidInput, match="^range '10.0.0.0/24': cannot be divided into 65 slices: use a"):
            suggest_slice_size(range_config, nodes=65)


class TestSliceTables:
    def test_nads_of_one_network_share_a_table(self) -> None:
        found = plan_networks(
            [
                nad("a/one", network_name="blue", range="10.0.0.0/8", node_slice_size="/24"),
                nad("b/two", network_name="blue", range="10.0.0.9/8", node_slice_size="24"),
            ]
        )
        assert {"blue 10.0.0.0/8": (24, ("a/one", "b/two"))} == tables(found)
        assert {"blue": key("10.0.0.0/8", "blue")} == found.slice_pools
        assert () == found.rejections

    def test_unnamed_networks_of_one_range_share_a_table_and_each_has_a_nodeslicepool(self) -> None:
        """So a node has the same slice in both. Whereabouts assigns it to two nodes."""
        found = plan_networks([nad(each, range="10.0.0.0/8", node_slice_size="/24") for each in ("one", "two")])
        assert {"10.0.0.0/8": (24, ("default/one", "default/two"))} == tables(found)
        assert {"one": key("10.0.0.0/8"), "two": key("10.0.0.0/8")} == found.slice_pools

    def test_unnamed_networks_of_different_ranges_are_independent(self) -> None:
        """In Whereabouts they block each other."""
        found = plan_networks(
            [
                nad("one", range="10.0.0.0/8", node_slice_size="/24"),
                nad("two", range="11.0.0.0/8", node_slice_size="/22"),
                nad("three", range="12.0.0.0/8"),
            ]
        )
        assert {"10.0.0.0/8": (24, ("default/one",)), "11.0.0.0/8": (22, ("default/two",))} == tables(found)
        assert () == found.rejections

    def test_named_networks_may_have_the_same_addresses(self) -> None:
        found = plan_networks(
            [
                nad(each, network_name=each, range="10.0.0.0/8", node_slice_size=size)
                for each, size in (("red", "/24"), ("blue", "/22"))
            ]
        )
        assert {"red 10.0.0.0/8": (24, ("default/red",)), "blue 10.0.0.0/8": (22, ("default/blue",))} == tables(found)

    def test_each_range_of_a_network_has_a_table_and_a_nodeslicepool(self) -> None:
        found = plan_networks(
            [nad("dual", ipRanges=[{"range": "10.0.0.0/8"}, {"range": "fd00::/64"}], node_slice_size="/24")]
        )
        assert {"10.0.0.0/8": (24, ("default/dual",)), "fd00::/64": (120, ("default/dual",))} == tables(found)
        assert {"dual": key("10.0.0.0/8"), "dual-fd00---64": key("fd00::/64")} == found.slice_pools

    def test_a_published_nodeslicepool_keeps_its_range(self) -> None:
        """A range is added before the first one of a network: the existing object does not change."""
        nads = [nad("dual", ipRanges=[{"range": "fd00::/64"}, {"range": "10.0.0.0/8"}], node_slice_size="/120")]
        found = plan_networks(nads, published={"dual": key("10.0.0.0/8")})
        assert {"dual": key("10.0.0.0/8"), "dual-fd00---64": key("fd00::/64")} == found.slice_pools
        found = plan_networks(nads, published={"dual": key("11.0.0.0/8")})
        assert {"dual": key("fd00::/64"), "dual-10.0.0.0-8": key("10.0.0.0/8")} == found.slice_pools

    def test_an_unnamed_network_inside_a_subnet_of_the_ledger_is_rejected(self) -> None:
        """The primary network of Pods has those addresses. A network name says that it is another network."""
        nads = [
            nad("inside", range="10.0.4.0/24", node_slice_size="/26"),
            nad("around", range="10.0.0.0/8"),
            nad("named", network_name="red", range="10.0.4.0/24", node_slice_size="/26"),
            nad("beside", range="10.1.0.0/16", node_slice_size="/24"),
        ]
        subnets = {"pods": [parse_prefix("10.0.0.0/16")], "more": [parse_prefix("fd00::/64")]}
        found = plan_networks(nads[:1] + nads[2:], subnets=subnets)
        assert {"red 10.0.4.0/24", "10.1.0.0/16"} == set(tables(found))
        (rejection,) = found.rejections
        assert "10.0.4.0/24 overlaps 10.0.0.0/16 of subnet pods in the ledger" in rejection.reason
        assert () == found.refused_ranges
        shared = plan_networks(nads[1:2], subnets=subnets)
        assert (parse_prefix("10.0.0.0/8"),) == shared.refused_ranges
        assert not shared.rejections[0].sliced

    def test_the_range_spec_of_each_nad_is_kept(self) -> None:
        found = plan_networks(
            [
                nad("one", range="10.0.0.0/24", exclude=["10.0.0.0/25"], node_slice_size="/26"),
                nad("two", range="10.0.0.1-10.0.0.9/24", node_slice_size="/26"),
            ]
        )
        (plan,) = found.tables
        assert ["10.0.0.128-10.0.0.254", "10.0.0.1-10.0.0.9"] == [
            str(each) for one in plan.range_specs for each in one.members.ranges
        ]


PUBLISHED = {"test": key("10.0.0.0/8", "test")}


class TestAsWhereabouts:
    """The tests of Whereabouts' controller that concern NADs."""

    first = nad("test1", network_name="test", range="10.0.0.0/8", node_slice_size="/10")
    second = nad("test2", network_name="test", range="10.0.0.0/8", node_slice_size="/10")

    def test_do_nothing(self) -> None:
        assert NetworkPlan() == plan_networks([])

    def test_nad_delete(self) -> None:
        """Whereabouts deletes the object with the name of the NAD, which may not be that of the pool."""
        assert {} == plan_networks([], published=PUBLISHED).slice_pools

    def test_multiple_nads_same_network_name(self) -> None:
        found = plan_networks([self.first, self.second], published=PUBLISHED)
        assert {"test 10.0.0.0/8": (10, ("default/test1", "default/test2"))} == tables(found)
        assert PUBLISHED == found.slice_pools

    def test_multiple_nads_same_network_name_delete_one_nad(self) -> None:
        assert PUBLISHED == plan_networks([self.second], published=PUBLISHED).slice_pools

    def test_two_networks_range_and_slice_mismatch(self) -> None:
        """Whereabouts stops both for ever; podpool rejects the second only."""
        other = nad("test2", network_name="test", range="10.0.0.0/8", node_slice_size="/8")
        found = plan_networks([self.first, other], published=PUBLISHED)
        assert (["default/test2"], PUBLISHED) == ([each.rejected for each in found.rejections], found.slice_pools)


class TestRejections:
    def rejected(self, *nads: ParsedNad, published: dict[str, SliceTableKey] | None = None) -> tuple[str, str]:
        found = plan_networks(nads, published=published)
        (rejection,) = found.rejections
        assert rejection.rejected not in [each for plan in found.tables for each in plan.nads]
        assert set(rejection.nads) <= {each.key for each in nads}
        return rejection.rejected, rejection.reason

    def test_a_rejection_for_overlapping_ranges_names_both_nads(self) -> None:
        wide = nad("wide", created="2026-01-01", range="10.0.0.0/8", node_slice_size="/24")
        narrow = nad("narrow", created="2026-01-02", range="10.1.0.0/16", node_slice_size="/24")
        other = nad("other", created="2026-01-03", range="11.0.0.0/8", node_slice_size="/24")
        found = plan_networks([narrow, other, wide])
        assert {"10.0.0.0/8", "11.0.0.0/8"} == tables(found).keys(), "the others go on"
        (rejection,) = found.rejections
        assert ("default/wide", "default/narrow") == rejection.nads
        assert rejection.reason == (
            "default/narrow and default/wide share addresses but not the range (10.1.0.0/16, 10.0.0.0/8): "
            "make them equal, or set another network_name"
        )

    def test_a_published_nad_takes_precedence_over_an_older_one(self) -> None:
        changed = nad("changed", created="2026-01-01", range="10.0.0.0/8", node_slice_size="/24")
        runs = nad("runs", created="2026-01-02", range="10.1.0.0/16", node_slice_size="/24")
        assert "default/changed" == self.rejected(changed, runs, published={"runs": key("10.1.0.0/16")})[0]

    def test_one_range_has_one_slice_size(self) -> None:
        one = nad("one", range="10.0.0.0/8", node_slice_size="/10")
        two = nad("two", range="10.0.0.0/8", node_slice_size="/8")
        rejected, reason = self.rejected(one, two)
        assert "default/two" == rejected
        assert "share addresses but not node_slice_size (/8, /10)" in reason

    @pytest.mark.parametrize("range_", ["10.0.0.0/8", "10.1.0.0/16"])
    def test_a_range_is_not_both_sliced_and_shared(self, range_: str) -> None:
        """Neither side knows what the other allocates."""
        one = nad("one", range="10.0.0.0/8", node_slice_size="/24")
        two = nad("two", range=range_)
        assert "share addresses but not" in self.rejected(one, two)[1]

    def test_shared_ranges_may_overlap(self) -> None:
        """Reservations keep them apart."""
        nads = [nad(each, range=each) for each in ("10.0.0.0/8", "10.0.0.0/16")]
        assert NetworkPlan() == plan_networks(nads)

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
    def test_an_invalid_nad_is_rejected_alone(self, ipam: dict[str, Any], reason: str) -> None:
        good = nad("good", range="20.0.0.0/8", node_slice_size="/24")
        found = plan_networks([nad("bad", **ipam), good])
        assert {"20.0.0.0/8"} == tables(found).keys()
        assert ("default/bad",) == found.rejections[0].nads
        assert reason in found.rejections[0].reason

    def test_after_the_first_is_deleted_the_second_is_accepted(self) -> None:
        narrow = nad("narrow", range="10.1.0.0/16", node_slice_size="/24")
        assert {"10.1.0.0/16"} == tables(plan_networks([narrow], published={"wide": key("10.0.0.0/8")})).keys()

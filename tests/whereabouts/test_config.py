"""Parsing of IPAM configurations, and errors of invalid ones.

Numbers in test names are cases of Whereabouts: from its own tests, or observed by running it.
"""

import json
from typing import Any

import msgspec
import pytest

from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_json import read_struct
from podpool.whereabouts.config import IpamConfig, LeaderElectionConfig, RangeConfig
from podpool.whereabouts.config_merge import MAX_UNKNOWN_KEYS, DnsConfig, RawIpamConfig
from tests.whereabouts.builders import config, network, read_config


def bounds(range_: RangeConfig) -> str:
    return str(range_.spec.bounds)


def ranges(read: IpamConfig) -> list[str]:
    return [str(each.prefix) for each in read.ranges]


class TestRanges:
    def test_1_a_range_with_bounds(self) -> None:
        read = config(range="192.168.1.5-192.168.1.25/24", gateway="192.168.10.1")
        assert ["192.168.1.0/24"] == ranges(read)
        assert ("192.168.1.5", "192.168.1.25") == (str(read.ranges[0].start), str(read.ranges[0].end))
        assert "192.168.10.1" == str(read.gateway)
        assert LeaderElectionConfig(duration=1500, renew=1000, retry=500) == read.leader

    @pytest.mark.parametrize("text", ["00192.00168.1.5-000000192.168.1.25/24", "192.168.1.5-192.168.1.25/24"])
    def test_9_leading_zeros_are_decimal(self, text: str) -> None:
        read = config(range=text)
        assert ["192.168.1.0/24"] == ranges(read)
        assert "192.168.1.5-192.168.1.25" == bounds(read.ranges[0])

    def test_10_a_range_without_start_begins_at_its_first_usable_address(self) -> None:
        """Whereabouts sets the network address as start, and ignores it later as unusable."""
        read = config(range="00192.00168.1.0/24")
        assert ["192.168.1.0/24"] == ranges(read)
        assert "192.168.1.1-192.168.1.254" == bounds(read.ranges[0])

    def test_18_an_end_before_the_start_is_ignored(self) -> None:
        assert "10.0.0.20-10.0.0.254" == bounds(config(range="10.0.0.20-10.0.0.5/24").ranges[0])

    @pytest.mark.parametrize("key", ["range_start", "range_end"])
    def test_20_an_invalid_bound_beside_range_is_ignored(self, key: str) -> None:
        invalid: dict[str, Any] = {key: "bogus"}
        read = config(range="10.0.0.0/24", **invalid)
        assert "10.0.0.1-10.0.0.254" == bounds(read.ranges[0])

    def test_bounds_beside_range_may_have_leading_zeros(self) -> None:
        read = config(range="10.0.0.0/24", range_start="010.0.0.5", range_end="10.0.0.009")
        assert "10.0.0.5-10.0.0.9" == bounds(read.ranges[0])

    @pytest.mark.parametrize("value", ["bogus", "010.0.0.5"])
    @pytest.mark.parametrize("key", ["range_start", "range_end"])
    def test_21_a_bound_in_ip_ranges_is_strict(self, key: str, value: str) -> None:
        with pytest.raises(InvalidInput, match=f"^ipRanges {key} '{value}': not an IPv4 or IPv6 address"):
            config(ipRanges=[{"range": "10.0.0.0/24", key: value}])

    def test_an_empty_bound_in_ip_ranges_is_ignored(self) -> None:
        assert "10.0.0.1-10.0.0.254" == bounds(config(ipRanges=[{"range": "10.0.0.0/24", "range_end": ""}]).ranges[0])

    def test_22_range_comes_before_ip_ranges(self) -> None:
        read = config(range="abcd::1/64", ipRanges=[{"range": "192.168.10.1/24"}])
        assert ["abcd::/64", "192.168.10.0/24"] == ranges(read)

    def test_each_of_ip_ranges_has_its_own_bounds_and_exclusions(self) -> None:
        listed = [
            {"range": "10.0.0.0/24", "range_start": "10.0.0.9", "range_end": "10.0.0.20", "exclude": ["10.0.0.9/32"]},
            {"range": "fd00::/64"},
        ]
        first, second = config(ipRanges=listed, exclude=["10.0.0.10"]).ranges
        assert ["10.0.0.10-10.0.0.20"] == [str(each) for each in first.spec.members.ranges]
        assert ["fd00::1-fd00::ffff:ffff:ffff:fffe"] == [str(each) for each in second.spec.members.ranges]

    def test_a_configuration_without_ranges_is_valid(self) -> None:
        assert [] == ranges(config())

    @pytest.mark.parametrize(("text", "size"), [("10.0.0.5/32", "/30"), ("fd00::/127", "/126")])
    def test_a_range_without_usable_address_fails_only_on_allocation(self, text: str, size: str) -> None:
        (range_,) = config(range=text).ranges
        with pytest.raises(InvalidInput, match=f"has no usable address: use a prefix of {size} or shorter"):
            _ = range_.spec.bounds

    @pytest.mark.parametrize("text", ["192.168.0.1/123", "100::2::1", "010.0.0.1"])
    def test_60_an_invalid_exclusion_fails_only_on_allocation(self, text: str) -> None:
        (range_,) = config(range="10.0.0.0/24", exclude=[text]).ranges
        with pytest.raises(InvalidInput, match=f"^exclude '{text}': "):
            _ = range_.spec

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("192.168.2.0", "not in CIDR notation: write ADDRESS/LENGTH"),
            ("foo", "not in CIDR notation: write ADDRESS/LENGTH"),
            ("foo-10.0.0.5/24", "the start 'foo' is not an IPv4 or IPv6 address"),
            ("10.0.0.1-foo/24", "the end 'foo/24': 'foo' is not an IPv4 or IPv6 address"),
            ("10.0.0.5 - 10.0.0.20/24", "the start '10.0.0.5 ' is not an IPv4 or IPv6 address"),
            ("192.168.1.5-192.168.2.25/28", "the start 192.168.1.5 is not in 192.168.2.16/28"),
        ],
    )
    @pytest.mark.parametrize("listed", [False, True])
    def test_13_16_17_an_invalid_range_is_rejected(self, text: str, reason: str, *, listed: bool) -> None:
        with pytest.raises(InvalidInput) as caught:
            config(**({"ipRanges": [{"range": text}]} if listed else {"range": text}))
        assert f"range {text!r}: {reason}" == str(caught.value)

    def test_an_empty_range_in_ip_ranges_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="^range '': not in CIDR notation"):
            config(ipRanges=[{}])


class TestFlatFile:
    @pytest.mark.parametrize("flat", [None, {}])
    def test_2_32_the_flat_file_is_optional(self, flat: dict[str, Any] | None) -> None:
        """Whereabouts requires the file, and a kubeconfig in one of the two. The agent has its own connection."""
        assert ["10.0.0.0/24"] == ranges(config(flat, range="10.0.0.0/24", kubernetes={}))

    @pytest.mark.parametrize("inline", [True, False])
    def test_4_5_the_flat_file_does_not_set_the_overlap_check(self, *, inline: bool) -> None:
        read = config({"enable_overlapping_ranges": not inline}, enable_overlapping_ranges=inline)
        assert inline == read.overlap_checked

    def test_overlap_is_checked_by_default(self) -> None:
        read = config({"enable_overlapping_ranges": False})
        assert (True, False) == (read.overlap_checked, read.overlap_explicit)
        assert config(enable_overlapping_ranges=True).overlap_explicit

    def test_it_fills_empty_keys(self) -> None:
        flat = {
            "range": "10.9.0.0/24",
            "gateway": "10.9.0.1",
            "addresses": [{"address": "10.8.0.1/24"}],
            "sleep_for_race": 3,
            "network_name": "blue",
            "leader_retry_period": 700,
            "dns": {"nameservers": ["10.0.0.53"], "domain": "flat"},
        }
        read = config(flat, range="", sleep_for_race=0, dns={"domain": "inline"})
        assert ["10.9.0.0/24"] == ranges(read)
        assert ("10.9.0.1", ["10.8.0.1/24"]) == (str(read.gateway), [str(each) for each in read.addresses])
        assert (3, "blue", 700) == (read.sleep_for_race, read.network_name, read.leader.retry)
        assert DnsConfig(nameservers=("10.0.0.53",), domain="inline") == read.dns

    def test_inline_keys_take_precedence(self) -> None:
        flat = {"range": "10.9.0.0/24", "exclude": ["10.0.0.2"], "network_name": "flat"}
        read = config(flat, range="10.0.0.0/24", exclude=["10.0.0.1"], network_name="inline")
        assert ["10.0.0.0/24"] == ranges(read)
        assert ("10.0.0.1",) == read.ranges[0].exclude, "lists are not joined"
        assert "inline" == read.network_name

    def test_24_its_exclusions_apply_to_range_only(self) -> None:
        read = config({"exclude": ["10.9.0.0/30"]}, range="10.9.0.0/24", ipRanges=[{"range": "10.8.0.0/24"}])
        assert [("10.9.0.0/30",), ()] == [each.exclude for each in read.ranges]

    @pytest.mark.parametrize("text", ["", "{", "[]", "5"])
    def test_an_invalid_flat_file_is_rejected(self, text: str) -> None:
        with pytest.raises(InvalidInput, match="^flat file "):
            read_config(network(range="10.0.0.0/24"), flat=text)

    def test_a_type_error_names_the_flat_file(self) -> None:
        with pytest.raises(InvalidInput, match="^flat file.range '.not shown.': has the wrong type: expected str"):
            config({"range": 5})

    @pytest.mark.parametrize(
        "flat",
        [
            {"range": "secret"},
            {"range": ["secret"]},
            {"gateway": "secret"},
            {"routes": [{"dst": "secret"}]},
            {"addresses": [{"address": "secret"}]},
            {"dns": {"nameservers": "secret"}},
        ],
    )
    def test_an_error_does_not_show_its_content(self, flat: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match="^flat file") as caught:
            config(flat)
        assert "secret" not in str(caught.value)

    def test_an_error_of_the_configuration_itself_shows_its_value(self) -> None:
        with pytest.raises(InvalidInput, match="^gateway 'zz'"):
            config({"range": "10.0.0.0/24"}, gateway="zz")


class TestKeys:
    def test_6_a_plugin_list_is_read(self) -> None:
        plugin = json.loads(network(range="192.168.1.5-192.168.1.25/24", gateway="192.168.10.1"))
        plugin["name"] = ""
        read = read_config(json.dumps({"cniVersion": "0.3.1", "name": "listed", "plugins": [plugin]}))
        assert "192.168.1.5-192.168.1.25" == bounds(read.ranges[0])
        assert "listed" == read.name, "Whereabouts drops the name of the list"

    def test_the_plugin_of_a_list_that_uses_podpool_is_read(self) -> None:
        """Whereabouts reads only the first."""
        plugins = [{"type": "tuning"}, {"type": "macvlan", "ipam": {"type": "podpool", "range": "10.0.0.0/24"}}]
        assert ["10.0.0.0/24"] == ranges(read_config(json.dumps({"name": "n", "plugins": plugins})))

    @pytest.mark.parametrize("kind", ["whereabouts", "podpool"])
    def test_both_ipam_types_are_served(self, kind: str) -> None:
        assert ["10.0.0.0/24"] == ranges(config(type=kind, range="10.0.0.0/24"))

    def test_8_a_missing_ipam_section_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match='^ipam None: is missing: add "ipam": '):
            read_config('{"name": "n", "type": "macvlan"}')

    @pytest.mark.parametrize("kind", ["host-local", ""])
    def test_another_ipam_type_is_rejected(self, kind: str) -> None:
        with pytest.raises(
            InvalidInput, match=f"^ipam.type '{kind}': is another plugin: use 'whereabouts' or 'podpool'"
        ):
            config(type=kind)

    def test_12_the_cron_expression_is_read(self) -> None:
        """And not used: orphan GC runs continuously, not on a schedule."""
        read = read_struct({"reconciler_cron_expression": "30 4 * * *"}, RawIpamConfig)
        assert "30 4 * * *" == read.reconciler_cron_expression

    @pytest.mark.parametrize("text", ['{"ipam": {asdf}}', "", "{", '"x"', "5", b"\xff"])
    def test_14_invalid_json_is_rejected(self, text: str | bytes) -> None:
        with pytest.raises(InvalidInput, match="^configuration "):
            read_config(text)

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ({"range": 5}, "ipam.range 5: has the wrong type: expected str, got int"),
            ({"leader_lease_duration": "1500"}, "ipam.leader_lease_duration '1500': has the wrong type: expected int"),
            ({"exclude": "10.0.0.1"}, "ipam.exclude '10.0.0.1': has the wrong type: expected array, got str"),
            ({"exclude": [5]}, r"ipam.exclude\[0\] \[5\]: has the wrong type: expected str, got int"),
            ({"ipRanges": [{"range": 5}]}, r"ipam.ipRanges\[0\].range 5: has the wrong type: expected str"),
            ({"kubernetes": {"kubeconfig": 1}}, "ipam.kubernetes.kubeconfig 1: has the wrong type"),
            ({"enable_overlapping_ranges": "yes"}, "ipam.enable_overlapping_ranges 'yes': has the wrong type"),
            ({"dns": {"nameservers": "x"}}, "ipam.dns.nameservers 'x': has the wrong type"),
        ],
    )
    def test_29_30_a_type_error_contains_the_path_of_the_key(self, keys: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInput, match=f"^{message}"):
            config(**keys)

    def test_keys_are_case_insensitive_and_null_means_absent(self) -> None:
        text = """{"Name": "n", "IPAM": {"Type": "whereabouts", "RANGE": "10.1.0.0/24", "range": "10.0.0.0/24",
                   "ipranges": [{"Range": "10.2.0.0/24", "EXCLUDE": null}], "gateway": null, "unknown": [1]}}"""
        read = read_config(text)
        assert ["10.0.0.0/24", "10.2.0.0/24"] == ranges(read), "the last spelling wins"
        assert ("n", None) == (read.name, read.gateway)

    def test_unknown_and_obsolete_keys_are_skipped(self) -> None:
        obsolete: dict[str, Any] = {
            "datastore": "etcd",
            "etcd_host": 5,
            "etcd_username": None,
            "k8s_api_root": "x",
            "PodName": "y",
        }
        read = config(range="10.0.0.0/24", **obsolete)
        assert ("PodName", "k8s_api_root") == read.unknown_keys
        assert config(range="10.0.0.0/24") == msgspec.structs.replace(read, unknown_keys=())

    def test_unknown_keys_are_reported_some_of_them_if_many(self) -> None:
        ranges = [{"range": "10.0.0.0/24", "enable_l3": True}]
        assert ("enable_l3", "ipRanges.enable_l3") == config(enable_l3=True, ipRanges=ranges).unknown_keys
        keys: dict[str, Any] = {f"{n:03}{'k' * 100}": n for n in range(100)}
        many = config(**keys).unknown_keys
        assert MAX_UNKNOWN_KEYS == len(many)
        assert 40 == max(map(len, many))

    def test_exclude_gateway_excludes_it_from_every_range_that_has_it(self) -> None:
        pools = [{"range": "10.0.0.0/16", "exclude": ["10.0.0.9"]}, {"range": "fd00::/64"}]
        read = config(range="10.0.0.0/24", ipRanges=pools, gateway="10.0.0.1", exclude_gateway=True)
        assert [("10.0.0.1",), ("10.0.0.9", "10.0.0.1"), ()] == [each.exclude for each in read.ranges]
        assert 1 + 0x0A000000 not in read.ranges[0].spec.members
        assert () == read.unknown_keys

    @pytest.mark.parametrize("keys", [{"exclude_gateway": False}, {"exclude_gateway": "yes"}, {}, {"gateway": ""}])
    def test_without_it_the_gateway_is_an_address_as_any_other(self, keys: dict[str, Any]) -> None:
        read = config(**{"range": "10.0.0.0/24", "gateway": "10.0.0.1", "exclude_gateway": not keys, **keys})
        expected = ("10.0.0.1",) if not keys else ()
        assert expected == read.ranges[0].exclude

    def test_an_empty_version_is_the_oldest(self) -> None:
        """Multus and libcni write the key also when a NAD does not have it."""
        assert ["10.0.0.0/24"] == ranges(read_config(network("", range="10.0.0.0/24")))

    def test_a_configuration_is_bounded(self) -> None:
        with pytest.raises(InvalidInput, match="^configuration .*: has [0-9]+ bytes: the limit is 65536$"):
            config(range="10.0.0.0/24", exclude=["10.0.0.1"] * 10_000)

    @pytest.mark.parametrize("times", [{"leader_retry_period": 1}, {"leader_lease_duration": 10**9}])
    def test_leader_times_that_burden_other_nodes_are_rejected_on_use(self, times: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match="leader_retry_period must be at least 20"):
            config(**times).leader.validated()

    def test_invalid_leader_election_times_are_rejected_on_use(self) -> None:
        """Whereabouts panics on them."""
        read = config(leader_lease_duration=0, leader_renew_deadline=1000, leader_retry_period=1000)
        with pytest.raises(InvalidInput, match="^leader times '1500, 1000, 1000': leader_lease_duration must exceed"):
            read.leader.validated()
        assert LeaderElectionConfig() == config().leader.validated()
        with pytest.raises(InvalidInput, match="'1000, 1000, 500'"):
            config(leader_lease_duration=1000).leader.validated()

    def test_routes_and_dns_are_passed_on(self) -> None:
        routes = [{"dst": "0.0.0.0/0"}, {"Dst": "fd00::5/8", "gw": "fd00::1", "mtu": 1400}]
        read = config(routes=routes, dns={"nameservers": ["10.0.0.53"], "search": ["a", "b"], "options": ["x"]})
        assert ({"dst": "0.0.0.0/0"}, {"dst": "fd00::5/8", "gw": "fd00::1", "mtu": 1400}) == read.routes
        assert DnsConfig(nameservers=("10.0.0.53",), search=("a", "b"), options=("x",)) == read.dns

    @pytest.mark.parametrize(
        ("route", "field"), [({}, "dst"), ({"dst": "default"}, "dst"), ({"dst": "10.0.0.0/8", "gw": "x"}, "gw")]
    )
    def test_an_invalid_route_is_rejected(self, route: dict[str, str], field: str) -> None:
        with pytest.raises(InvalidInput, match=rf"^routes\[0\].{field} "):
            config(routes=[route])

    @pytest.mark.parametrize(
        ("flag", "read"), [(True, True), (False, False), ("yes", False), (1, False), (None, False)]
    )
    def test_fast_ipam_may_have_any_type(self, flag: object, *, read: bool) -> None:
        assert read == config(fast_ipam=flag).fast_ipam

    def test_fast_ipam_alone_does_not_enable_slices(self) -> None:
        assert not config(range="10.0.0.0/24", fast_ipam=True).sliced

    def test_the_example_of_the_node_slice_proposal_is_accepted(self) -> None:
        read = config(range="192.168.2.225/8", fast_ipam=True, node_slice_size="/22")
        assert (True, True, ["192.0.0.0/8"]) == (read.sliced, read.fast_ipam, ranges(read))
        assert "192.0.4.0/22" == str(read.ranges[0].layout.slice(1))


class TestSliceSize:
    @pytest.mark.parametrize("size", ["/24", "24"])
    def test_the_slash_is_optional(self, size: str) -> None:
        assert 24 == config(range="10.0.0.0/8", node_slice_size=size).ranges[0].layout.length

    def test_slices_of_both_families_have_as_many_addresses(self) -> None:
        read = config(
            range="10.0.0.0/8", ipRanges=[{"range": "fd00::/64"}, {"range": "11.0.0.0/8"}], node_slice_size="/24"
        )
        assert [24, 120, 24] == [each.layout.length for each in read.ranges]

    def test_a_range_may_have_its_own_size(self) -> None:
        listed = [{"range": "10.0.0.0/16", "node_slice_size": "/24"}, {"range": "fd00::/48", "node_slice_size": "64"}]
        read = config(ipRanges=listed)
        assert read.sliced
        assert [24, 64] == [each.layout.length for each in read.ranges]

    @pytest.mark.parametrize(
        ("range_", "size", "reason"),
        [
            ("10.0.0.0/24", "/22", "does not divide 10.0.0.0/24: use /24 to /32"),
            ("10.0.0.0/8", "/33", "does not divide 10.0.0.0/8: use /8 to /32"),
            ("10.0.0.0/8", "x", "not a prefix length: write it as /24"),
            ("10.0.0.0/24", "/31", "leaves no usable address: use /30 or less"),
            ("fd00::/64", "/127", "leaves no usable address: use /126 or less"),
        ],
    )
    def test_an_invalid_size_fails_only_when_slices_are_planned(self, range_: str, size: str, reason: str) -> None:
        (parsed,) = config(range=range_, node_slice_size=size).ranges
        with pytest.raises(InvalidInput) as caught:
            _ = parsed.layout
        assert f"node_slice_size {size!r}: {reason}" == str(caught.value)

    def test_a_size_without_counterpart_in_the_other_family_is_rejected(self) -> None:
        read = config(range="fd00::/64", ipRanges=[{"range": "10.0.0.0/8"}], node_slice_size="/80")
        with pytest.raises(InvalidInput, match="does not divide 10.0.0.0/8"):
            _ = read.ranges[1].layout


def test_read_struct_uses_the_encoded_names() -> None:
    assert ({"range": "a"},) == read_struct({"IPRANGES": [{"range": "a"}]}, RawIpamConfig).ip_ranges

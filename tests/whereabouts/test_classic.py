"""Addresses from a range that all nodes share. Settings as in `test_config`."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.api.whereabouts import IPPoolSpec, ReservationSpec
from podpool.core.addresses import Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.range_spec import RangeSpec as Allowed
from podpool.core.ranges import parse_prefix
from podpool.lab.apiserver.patches import PatchError, json_patch
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.ippool import AllocationChange, allocation_patch, parse_ippool
from podpool.whereabouts.shared_range import (
    LARGEST_OBJECT,
    MANAGED,
    PoolTooLarge,
    RangeFull,
    allocate,
    allocations_of,
    assign,
    blocks,
    needs_reservation,
    reservation_matches,
)
from tests.whereabouts.builders import allowed, config, entry, owner, spec


def chosen(pool: IPPoolSpec, able: Allowed, *owners: PodInterface) -> list[AllocationChange]:
    """Everybody's address, when there is one for everybody."""
    found = allocate(pool, able, owners)
    changes = [each for each in found if isinstance(each, AllocationChange)]
    assert len(owners) == len(changes)
    return changes


def applied(pool: IPPoolSpec, *changes: AllocationChange) -> IPPoolSpec:
    """What the API server makes of a patch."""
    after = json_patch({"spec": msgspec.to_builtins(pool)}, allocation_patch(changes))
    return msgspec.convert(after["spec"], IPPoolSpec)


class TestLowestFree:
    @pytest.mark.parametrize(
        ("range_", "first"),
        [
            ("192.168.1.1/24", "192.168.1.1"),
            ("caa5::0/112", "caa5::1"),
            ("::1/126", "::1"),
            ("fd::1/116", "fd::1"),
            ("100::2:1/126", "100::2:1"),
            ("2001::1/116", "2001::1"),
            ("192.168.1.11-192.168.1.23/24", "192.168.1.11"),
            (
                "2001:db8:480:603d:0304:0403:000:0000-2001:db8:480:603d:0304:0403:0000:0004/64",
                "2001:db8:480:603d:304:403::",
            ),
            ("fd00:0:0:10:0:0:3:1-fd00:0:0:10:0:0:3:6/64", "fd00:0:0:10::3:1"),
        ],
    )
    def test_58_72_to_76_the_first_is_the_lowest_usable(self, range_: str, first: str) -> None:
        able = allowed(range_)
        change = assign(spec(str(able.prefix)), able, owner("a"))
        assert parse_address(first) == change.address
        again = assign(applied(spec(str(able.prefix)), change), able, owner("b"))
        assert change.address.plus(1) == again.address

    @pytest.mark.parametrize("range_", ["192.168.1.0/24", "2001::1/116", "fd::1/116"])
    def test_72_after_a_release_the_same_comes_again(self, range_: str) -> None:
        able = allowed(range_)
        pool = spec(str(able.prefix))
        first = assign(pool, able, owner("a"))
        pool = applied(pool, first)
        pool = applied(pool, *allocations_of({"p": pool}, container="cid-a", ifname="net1")["p"])
        assert {} == pool.allocations
        assert first.address == assign(pool, able, owner("b")).address

    def test_73_twelve_pods_get_twelve_in_a_row(self) -> None:
        able = allowed("192.168.1.11-192.168.1.23/24")
        changes = chosen(spec("192.168.1.0/24"), able, *(owner(f"p{each}") for each in range(12)))
        assert [f"192.168.1.{each}" for each in range(11, 23)] == [str(each.address) for each in changes]
        assert [str(each) for each in range(11, 23)] == [each.key for each in changes]

    @pytest.mark.parametrize(
        ("range_", "exclude", "first"),
        [
            ("100::2:1/125", ("100::2:1/126",), "100::2:4"),
            ("100::2:1/125", ("100::2:1",), "100::2:2"),
            ("2001:db8::/30", ("2001:db8::0/32",), "2001:db9::"),
            (
                "192.168.0.0/28",
                ("192.168.0.0/30", "192.168.0.6/31", "192.168.0.8/31", "192.168.0.4/30"),
                "192.168.0.10",
            ),
            (
                "192.168.0.0/28",
                ("192.168.0.14/31", "192.168.0.8/31", "192.168.0.6/31", "192.168.0.0/29"),
                "192.168.0.10",
            ),
            ("192.168.1.0/24", ("192.168.1.0/28", "192.168.1.16/28"), "192.168.1.32"),
            ("2001::1/116", ("2001::0/128", "2001::1/128", "2001::2/128"), "2001::3"),
            ("caa5::0/112", ("caa5::0/113",), "caa5::8000"),
        ],
    )
    def test_61_62_77_78_what_is_excluded_is_passed_over(
        self, range_: str, exclude: tuple[str, ...], first: str
    ) -> None:
        able = allowed(range_, exclude=exclude)
        assert first == str(assign(spec(str(able.prefix)), able, owner("a")).address)

    @pytest.mark.parametrize(("taken", "expected"), [([], 1), ([1, 2, 3], 4), ([1, 2, 5], 3)])
    def test_65_gaps_are_filled(self, taken: list[int], expected: int) -> None:
        pool = spec("192.168.0.0/28", **{f"at{each}": entry(f"p{each}") for each in taken})
        able = allowed("192.168.0.0/28", start="192.168.0.1", end="192.168.0.6")
        assert f"192.168.0.{expected}" == str(assign(pool, able, owner("new")).address)

    @pytest.mark.parametrize(
        ("start", "used", "expected"),
        [("10.0.0.254", "254", "10.0.0.255"), ("10.0.0.255", "255", "10.0.1.0")],
    )
    def test_66_addresses_that_end_in_0_and_255_are_given(self, start: str, used: str, expected: str) -> None:
        pool = spec("10.0.0.0/23", **{f"at{used}": entry("p")})
        assert expected == str(assign(pool, allowed("10.0.0.0/23", start=start), owner("new")).address)

    def test_64_a_start_at_the_network_address_is_the_first_usable(self) -> None:
        able = allowed("192.168.0.0/29", start="192.168.0.0", end="192.168.0.8")
        assert "192.168.0.1" == str(assign(spec("192.168.0.0/29"), able, owner("a")).address)

    def test_the_gateway_is_given_like_any_other(self) -> None:
        """As in Whereabouts, where users count on it or exclude it."""
        read = config(range="10.0.0.0/24", gateway="10.0.0.1")
        change = assign(spec("10.0.0.0/24"), read.ranges[0].allocation, owner("a"))
        assert read.gateway == change.address

    def test_82_the_ninth_of_eight_is_refused_in_words(self) -> None:
        able = allowed("192.168.1.0/24", start="192.168.1.5", end="192.168.1.12")
        pool = spec("192.168.1.0/24")
        changes = chosen(pool, able, *(owner(f"p{each}") for each in range(8)))
        assert [5, 12] == [int(changes[at].key) for at in (0, -1)]
        with pytest.raises(RangeFull) as caught:
            assign(applied(pool, *changes), able, owner("ninth"))
        assert str(caught.value) == (
            "no address of 192.168.1.5-192.168.1.12 of 192.168.1.0/24 is free: 8 have an owner, "
            "0 are reserved through other ranges; delete Pods or widen the range"
        )

    def test_68_a_range_that_is_excluded_as_a_whole_has_nothing(self) -> None:
        able = allowed("10.0.0.0/24", exclude=("10.0.0.0/24",))
        with pytest.raises(RangeFull, match="254 are excluded"):
            assign(spec("10.0.0.0/24"), able, owner("a"))

    @pytest.mark.parametrize("range_", ["10.0.0.0/31", "10.0.0.0/32", "fd00::/127"])
    def test_40_a_network_too_small_is_refused(self, range_: str) -> None:
        with pytest.raises(InvalidInput, match="has no usable address"):
            assign(spec(range_), allowed(range_), owner("a"))

    @pytest.mark.parametrize(
        ("ipam", "expected"),
        [
            (
                {"ipRanges": [{"range": "192.168.10.1/24"}, {"range": "abcd::1/64"}]},
                ["192.168.10.1/24", "abcd::1/64"],
            ),
            ({"ipRanges": [{"range": "192.168.10.1/24"}], "range": "abcd::1/64"}, ["abcd::1/64", "192.168.10.1/24"]),
        ],
        ids=["80", "81"],
    )
    def test_80_81_a_pod_gets_one_of_each_range_in_order(self, ipam: dict[str, Any], expected: list[str]) -> None:
        read = config(**ipam)
        chosen = [assign(spec(str(each.prefix)), each.allocation, owner("a")).address for each in read.ranges]
        assert expected == [str(each) for each in read.given(chosen)]

    @given(st.sets(st.integers(1, 62)), st.sets(st.integers(1, 62)), st.integers(1, 70))
    def test_it_is_the_lowest_that_nobody_has(self, taken: set[int], reserved: set[int], count: int) -> None:
        pool = spec("10.0.0.0/26", **{f"at{each}": entry(f"p{each}") for each in taken})
        held = {parse_address(f"10.0.0.{each}"): ReservationSpec(podref="default/other") for each in reserved}
        left = [each for each in range(1, 63) if each not in taken | reserved]
        owners = [owner(f"new{each}") for each in range(count)]
        found = allocate(pool, allowed("10.0.0.0/26"), owners, reserved=held)
        assert left[:count] == [int(each.key) for each in found if isinstance(each, AllocationChange)]
        refused = [each for each in found if isinstance(each, RangeFull)]
        assert max(count - len(left), 0) == len(refused), "the others are served"
        assert all((len(taken), len(reserved)) == (each.taken, each.reserved) for each in refused)


class TestSameAgain:
    def test_the_same_sandbox_gets_the_same_and_nothing_is_written(self) -> None:
        """Whereabouts sends a patch that changes nothing."""
        pool = spec("10.0.0.0/24", at7=entry("a"), at9=entry("b"))
        change = assign(pool, allowed("10.0.0.0/24"), owner("a"))
        assert "10.0.0.7" == str(change.address)
        assert [] == allocation_patch([change], version="5")

    def test_a_new_sandbox_of_the_pod_takes_the_address_over(self) -> None:
        pool = spec("10.0.0.0/24", at7=entry("a"))
        change = assign(pool, allowed("10.0.0.0/24"), owner("a", container="cid-2"))
        assert {"7": entry("a", container="cid-2")} == applied(pool, change).allocations

    def test_another_interface_of_the_pod_gets_another(self) -> None:
        pool = spec("10.0.0.0/24", at1=entry("a"))
        assert "10.0.0.2" == str(assign(pool, allowed("10.0.0.0/24"), owner("a", ifname="net2")).address)

    def test_also_one_that_is_excluded_by_now(self) -> None:
        pool = spec("10.0.0.0/24", at7=entry("a"))
        able = allowed("10.0.0.0/24", exclude=("10.0.0.7",))
        assert "10.0.0.7" == str(assign(pool, able, owner("a")).address)

    def test_of_two_entries_that_of_the_sandbox_counts_else_the_lowest(self) -> None:
        pool = spec("10.0.0.0/24", at9=entry("a", container="x"), at3=entry("a", container="y"))
        able = allowed("10.0.0.0/24")
        assert "10.0.0.9" == str(assign(pool, able, owner("a", container="x")).address)
        assert "10.0.0.3" == str(assign(pool, able, owner("a", container="z")).address)

    def test_two_sandboxes_of_one_pod_at_once_share_one_entry(self) -> None:
        pool = spec("10.0.0.0/24")
        asking = [owner("a", container="x"), owner("a", container="y")]
        one, other = chosen(pool, allowed("10.0.0.0/24"), *asking)
        assert one.address == other.address
        assert 1 == len(applied(pool, one, other).allocations)


class TestPatches:
    def test_they_are_those_of_whereabouts(self) -> None:
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": "5"}
        new = assign(
            spec("10.1.0.0/24"), allowed("10.1.0.0/24"), PodInterface(podref="ns/p1", container="CID", ifname="net1")
        )
        value = {"id": "CID", "ifname": "net1", "podref": "ns/p1"}
        assert [
            guard,
            {"op": "test", "path": "/spec/allocations/1", "value": None},
            {"op": "add", "path": "/spec/allocations/1", "value": value},
        ] == allocation_patch([new], version="5")

    def test_they_fit_only_the_entry_that_was_seen(self) -> None:
        pool, able = spec("10.0.0.0/24"), allowed("10.0.0.0/24")
        mine = assign(pool, able, owner("mine"))
        theirs = applied(pool, assign(pool, able, owner("theirs")))
        with pytest.raises(PatchError):
            applied(theirs, mine)
        released = allocations_of({"p": theirs}, container="cid-theirs", ifname="net1")["p"]
        again = applied(theirs, assign(theirs, able, owner("theirs", container="cid-2")))
        with pytest.raises(PatchError):
            applied(again, *released)

    def test_a_key_that_others_wrote_is_quoted(self) -> None:
        change = AllocationChange(key="~/", address=parse_address("10.0.0.1"), before=entry("a"), after=None)
        assert "/spec/allocations/~0~1" == change.operations()[-1]["path"]


class TestReservations:
    def test_84_an_address_reserved_through_another_range_is_passed_over(self) -> None:
        wide = assign(spec("2001::2:3:0/124"), allowed("2001::2:3:0/124"), owner("a"))
        held = {wide.address: ReservationSpec(podref="default/a", ifname="net1")}
        narrow = assign(spec("2001::2:3:0/126"), allowed("2001::2:3:0/126"), owner("b"), reserved=held)
        assert ("2001::2:3:1", "2001::2:3:2") == (str(wide.address), str(narrow.address))

    def test_85_without_the_check_two_ranges_give_the_same(self) -> None:
        read = config(range="192.168.33.0/24", enable_overlapping_ranges=False)
        assert not needs_reservation(read, read.ranges[0].prefix, [parse_prefix("192.168.33.0/28")])
        both = [assign(spec(each), allowed(each), owner("a")) for each in ("192.168.33.0/24", "192.168.33.0/28")]
        assert ["192.168.33.1", "192.168.33.1"] == [str(each.address) for each in both]

    def test_a_pods_own_reservation_is_used_before_a_new_address(self) -> None:
        """Left by an ADD that was cut short."""
        held = {parse_address("10.0.0.9"): ReservationSpec(podref="default/a", ifname="net1")}
        assert "10.0.0.9" == str(assign(spec("10.0.0.0/24"), allowed("10.0.0.0/24"), owner("a"), reserved=held).address)

    def test_which_costs_the_next_one_nothing(self) -> None:
        held = {parse_address("10.0.0.9"): ReservationSpec(podref="default/a", ifname="net1")}
        found = allocate(spec("10.0.0.0/24"), allowed("10.0.0.0/24"), [owner("a"), owner("b")], reserved=held)
        assert ["9", "1"] == [each.key for each in found if isinstance(each, AllocationChange)]

    def test_one_of_the_other_family_keeps_nobody_from_the_same_number(self) -> None:
        held = {parse_address("::a00:1"): ReservationSpec(podref="default/b")}
        assert "10.0.0.1" == str(assign(spec("10.0.0.0/24"), allowed("10.0.0.0/24"), owner("a"), reserved=held).address)

    def test_but_not_where_the_entry_is_anothers(self) -> None:
        held = {parse_address("10.0.0.1"): ReservationSpec(podref="default/a", ifname="net1")}
        pool = spec("10.0.0.0/24", at1=entry("b"))
        assert "10.0.0.2" == str(assign(pool, allowed("10.0.0.0/24"), owner("a"), reserved=held).address)

    @pytest.mark.parametrize(
        ("podref", "ifname", "blocked"),
        [
            ("default/a", "net1", False),
            ("default/a", "", False),
            ("default/a", "net2", True),
            ("default/b", "net1", True),
        ],
    )
    def test_another_pods_or_interfaces_blocks_and_stays(self, podref: str, ifname: str, *, blocked: bool) -> None:
        """Whereabouts compares the Pod alone, and deletes whatever has the address' name."""
        reservation = ReservationSpec(podref=podref, ifname=ifname)
        assert blocked == blocks(reservation, owner("a"))
        assert blocked != reservation_matches(reservation, entry("a"))

    @pytest.mark.parametrize(
        ("ipam", "others", "needed"),
        [
            ({}, [], False),
            ({}, ["10.0.0.0/24"], False),
            ({}, ["10.0.1.0/24", "fd00::/64"], False),
            ({}, ["10.0.0.0/16"], True),
            ({"enable_overlapping_ranges": True}, [], True),
            ({"enable_overlapping_ranges": False}, ["10.0.0.0/16"], False),
        ],
    )
    def test_they_are_made_where_ranges_overlap_or_on_demand(
        self, ipam: dict[str, Any], others: list[str], *, needed: bool
    ) -> None:
        read = config(range="10.0.0.0/24", **ipam)
        assert needed == needs_reservation(read, read.ranges[0].prefix, [parse_prefix(each) for each in others])


class TestRelease:
    def test_86_it_goes_on_past_a_range_that_has_nothing(self) -> None:
        """Whereabouts stops at the first, and leaks the rest."""
        pools = {
            "empty": spec("10.0.0.0/24"),
            "one": spec("10.1.0.0/24", at4=entry("a"), at5=entry("b")),
            "two": spec("fd00::/64", at9=entry("a")),
        }
        found = allocations_of(pools, container="cid-a", ifname="net1")
        assert {"one": ["10.1.0.4"], "two": ["fd00::9"]} == {
            name: [str(each.address) for each in changes] for name, changes in found.items()
        }
        assert {"5": entry("b")} == applied(pools["one"], *found["one"]).allocations

    def test_it_takes_neither_another_interface_nor_another_sandbox(self) -> None:
        pools = {"p": spec("10.0.0.0/24", at1=entry("a", ifname="net2"), at2=entry("a", container="new"))}
        assert {} == allocations_of(pools, container="cid-a", ifname="net1")


class TestFarOffsets:
    """Whereabouts ignores and then erases keys of 2^63 and more, and cuts off what is above 64 bits."""

    @pytest.mark.parametrize(
        ("range_", "start", "key"),
        [
            ("fd00::/64", "fd00::8000:0:0:1", str((1 << 63) + 1)),
            ("fd00::/64", "fd00::ffff:ffff:ffff:fffe", str((1 << 64) - 2)),
            ("fd00::/48", "fd00:0:0:1::5", str((1 << 64) + 5)),
            ("::/0", "8000::5", str((1 << 127) + 5)),
        ],
    )
    def test_they_are_written_read_and_released(self, range_: str, start: str, key: str) -> None:
        able = allowed(range_, start=start)
        pool = spec(range_)
        change = assign(pool, able, owner("a"))
        assert (start, key) == (str(change.address), change.key)
        pool = applied(pool, change)
        assert parse_address(start) == parse_ippool(pool).listed[0].address
        assert change.address == assign(pool, able, owner("a")).address
        assert {} == applied(pool, *allocations_of({"p": pool}, container="cid-a", ifname="net1")["p"]).allocations

    @given(st.integers(0, 128), st.data())
    def test_keys_lead_there_and_back(self, length: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, (1 << (128 - length)) - 1))
        (read,) = parse_ippool(spec(f"::/{length}", **{f"at{offset}": entry("a")})).listed
        assert offset == read.address.value
        assert Family.V6 is read.address.family


class TestStrangeEntries:
    def test_what_leads_nowhere_is_told_and_left_alone(self) -> None:
        strange = {f"at{key}": entry(key or "empty") for key in ("", "x", "-1", "256", "9" * 50, "1.5")}
        pool = spec("10.0.0.0/24", at255=entry("last"), **strange)
        read = parse_ippool(pool)
        assert ["255"] == [each.key for each in read.listed]
        assert {"", "x", "-1", "256", "9" * 50, "1.5"} == set(read.outside)
        change = assign(pool, allowed("10.0.0.0/24"), owner("new"))
        assert pool.allocations.items() <= applied(pool, change).allocations.items()

    def test_keys_count_from_the_address_as_written(self) -> None:
        """Older pools have host bits in their range; nothing below them can be written down."""
        pool = spec("10.0.0.9/24", at1=entry("a"))
        assert "10.0.0.10" == str(parse_ippool(pool).listed[0].address)
        change = assign(pool, allowed("10.0.0.0/24"), owner("b"))
        assert ("10.0.0.9", "0") == (str(change.address), change.key)

    def test_a_pool_without_a_range_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="^spec.range '': not in CIDR notation"):
            parse_ippool(IPPoolSpec())


def test_a_pool_that_outgrows_its_object_is_refused_with_the_cure() -> None:
    names = [f"a-deployment-of-some-length-{number:05}" for number in range(9_000)]
    entries = {f"at{at}": entry(name, container="c" * 64) for at, name in enumerate(names[:7_000], 1)}
    pool, able = spec("10.0.0.0/16", **entries), allowed("10.0.0.0/16")
    assert "10.0.27.89" == str(assign(pool, able, owner("one-more")).address)
    found = allocate(pool, able, [owner(name, container="c" * 64) for name in names])
    refused = [each for each in found if isinstance(each, PoolTooLarge)]
    assert [*found[-len(refused) :]] == refused, "who has one, and the first that come, are served"
    assert str(refused[0]) == (
        "the IPPool of 10.0.0.0/16 has 7000 entries, as many as fit into one object: "
        "use node_slice_size, or smaller ranges"
    )
    full = applied(pool, *(each for each in found if isinstance(each, AllocationChange)))
    size = len(msgspec.json.encode(full.allocations)) + MANAGED * len(full.allocations)
    assert LARGEST_OBJECT - 300 < size <= LARGEST_OBJECT < 3 << 19, "etcd's limit"
    with pytest.raises(PoolTooLarge):
        assign(full, able, owner(names[-1], container="c" * 64))

"""Allocation in shared ranges. Numbers in test names are cases of Whereabouts, as in `test_config`."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.api.whereabouts import IPPoolSpec, ReservationSpec
from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.range_spec import RangeSpec
from podpool.core.ranges import parse_prefix
from podpool.lab.apiserver.patches import PatchError, json_patch
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.ippool import AllocationChange, allocation_patch, parse_ippool
from podpool.whereabouts.shared_range import (
    MANAGED_FIELDS_BYTES,
    MAX_OBJECT_BYTES,
    PoolTooLarge,
    RangeFull,
    allocate,
    belongs_to,
    blocks,
    needs_reservation,
    removals,
)
from tests.whereabouts.builders import config, entry, owner, range_spec, spec


def allocate_each(pool: IPPoolSpec, able: RangeSpec, *owners: PodInterface) -> list[AllocationChange]:
    """Return the change of each owner; all must get an address."""
    found = allocate(pool, able, owners)
    changes = [each for each in found if isinstance(each, AllocationChange)]
    assert len(owners) == len(changes)
    return changes


def allocate_one(
    pool: IPPoolSpec,
    able: RangeSpec,
    owner: PodInterface,
    *,
    reserved: Mapping[Address, ReservationSpec] | None = None,
) -> AllocationChange:
    (change,) = allocate(pool, able, [owner], reserved=reserved)
    if isinstance(change, PodpoolError):
        raise change
    return change


def applied(pool: IPPoolSpec, *changes: AllocationChange) -> IPPoolSpec:
    """Apply a patch as the API server does."""
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
    def test_58_72_to_76_the_lowest_usable_address_is_allocated(self, range_: str, first: str) -> None:
        able = range_spec(range_)
        change = allocate_one(spec(str(able.prefix)), able, owner("a"))
        assert parse_address(first) == change.address
        again = allocate_one(applied(spec(str(able.prefix)), change), able, owner("b"))
        assert change.address.value + 1 == again.address.value

    @pytest.mark.parametrize("range_", ["192.168.1.0/24", "2001::1/116", "fd::1/116"])
    def test_72_a_released_address_is_allocated_again(self, range_: str) -> None:
        able = range_spec(range_)
        pool = spec(str(able.prefix))
        first = allocate_one(pool, able, owner("a"))
        pool = applied(pool, first)
        pool = applied(pool, *removals(pool, container_id="cid-a", ifname="net1"))
        assert {} == pool.allocations
        assert first.address == allocate_one(pool, able, owner("b")).address

    def test_73_twelve_pods_get_consecutive_addresses(self) -> None:
        able = range_spec("192.168.1.11-192.168.1.23/24")
        changes = allocate_each(spec("192.168.1.0/24"), able, *(owner(f"p{each}") for each in range(12)))
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
    def test_61_62_77_78_excluded_addresses_are_skipped(
        self, range_: str, exclude: tuple[str, ...], first: str
    ) -> None:
        able = range_spec(range_, exclude=exclude)
        assert first == str(allocate_one(spec(str(able.prefix)), able, owner("a")).address)

    @pytest.mark.parametrize(("taken", "expected"), [([], 1), ([1, 2, 3], 4), ([1, 2, 5], 3)])
    def test_65_gaps_are_filled(self, taken: list[int], expected: int) -> None:
        pool = spec("192.168.0.0/28", **{f"at{each}": entry(f"p{each}") for each in taken})
        able = range_spec("192.168.0.0/28", start="192.168.0.1", end="192.168.0.6")
        assert f"192.168.0.{expected}" == str(allocate_one(pool, able, owner("new")).address)

    @pytest.mark.parametrize(
        ("start", "used", "expected"),
        [("10.0.0.254", "254", "10.0.0.255"), ("10.0.0.255", "255", "10.0.1.0")],
    )
    def test_66_addresses_that_end_in_0_and_255_are_allocated(self, start: str, used: str, expected: str) -> None:
        pool = spec("10.0.0.0/23", **{f"at{used}": entry("p")})
        assert expected == str(allocate_one(pool, range_spec("10.0.0.0/23", start=start), owner("new")).address)

    def test_64_a_start_at_the_network_address_is_the_first_usable(self) -> None:
        able = range_spec("192.168.0.0/29", start="192.168.0.0", end="192.168.0.8")
        assert "192.168.0.1" == str(allocate_one(spec("192.168.0.0/29"), able, owner("a")).address)

    def test_the_gateway_is_not_special(self) -> None:
        """As in Whereabouts, where users rely on it or exclude it."""
        read = config(range="10.0.0.0/24", gateway="10.0.0.1")
        change = allocate_one(spec("10.0.0.0/24"), read.ranges[0].spec, owner("a"))
        assert read.gateway == change.address

    def test_82_a_full_range_is_reported(self) -> None:
        able = range_spec("192.168.1.0/24", start="192.168.1.5", end="192.168.1.12")
        pool = spec("192.168.1.0/24")
        changes = allocate_each(pool, able, *(owner(f"p{each}") for each in range(8)))
        assert [5, 12] == [int(changes[at].key) for at in (0, -1)]
        with pytest.raises(RangeFull) as caught:
            allocate_one(applied(pool, *changes), able, owner("ninth"))
        assert str(caught.value) == (
            "no address of 192.168.1.5-192.168.1.12 of 192.168.1.0/24 is free: 8 are allocated, "
            "0 are reserved through other ranges; delete Pods or widen the range"
        )

    def test_68_a_range_that_is_wholly_excluded_is_full(self) -> None:
        able = range_spec("10.0.0.0/24", exclude=("10.0.0.0/24",))
        with pytest.raises(RangeFull, match="254 are excluded"):
            allocate_one(spec("10.0.0.0/24"), able, owner("a"))

    @pytest.mark.parametrize("range_", ["10.0.0.0/31", "10.0.0.0/32", "fd00::/127"])
    def test_40_a_network_without_usable_address_is_rejected(self, range_: str) -> None:
        with pytest.raises(InvalidInput, match="has no usable address"):
            allocate_one(spec(range_), range_spec(range_), owner("a"))

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
    def test_80_81_a_pod_gets_one_address_per_range_in_order(self, ipam: dict[str, Any], expected: list[str]) -> None:
        read = config(**ipam)
        allocated = [allocate_one(spec(str(each.prefix)), each.spec, owner("a")).address for each in read.ranges]
        assert expected == [str(each) for each in read.interface_addresses(allocated)]

    @given(st.sets(st.integers(1, 62)), st.sets(st.integers(1, 62)), st.integers(1, 70))
    def test_the_lowest_free_addresses_are_allocated(self, taken: set[int], reserved: set[int], count: int) -> None:
        pool = spec("10.0.0.0/26", **{f"at{each}": entry(f"p{each}") for each in taken})
        held = {parse_address(f"10.0.0.{each}"): ReservationSpec(podref="default/other") for each in reserved}
        left = [each for each in range(1, 63) if each not in taken | reserved]
        owners = [owner(f"new{each}") for each in range(count)]
        found = allocate(pool, range_spec("10.0.0.0/26"), owners, reserved=held)
        assert left[:count] == [int(each.key) for each in found if isinstance(each, AllocationChange)]
        refused = [each for each in found if isinstance(each, RangeFull)]
        assert max(count - len(left), 0) == len(refused), "the others get an address"
        assert all((len(taken), len(reserved)) == (each.allocated, each.reserved) for each in refused)


class TestIdempotence:
    def test_the_same_sandbox_gets_the_same_address_without_a_write(self) -> None:
        """Whereabouts sends a patch that changes nothing."""
        pool = spec("10.0.0.0/24", at7=entry("a"), at9=entry("b"))
        change = allocate_one(pool, range_spec("10.0.0.0/24"), owner("a"))
        assert "10.0.0.7" == str(change.address)
        assert [] == allocation_patch([change], version="5")

    def test_a_new_sandbox_of_a_pod_takes_over_the_address(self) -> None:
        pool = spec("10.0.0.0/24", at7=entry("a"))
        change = allocate_one(pool, range_spec("10.0.0.0/24"), owner("a", container_id="cid-2"))
        assert {"7": entry("a", container_id="cid-2")} == applied(pool, change).allocations

    def test_another_interface_of_a_pod_gets_another_address(self) -> None:
        pool = spec("10.0.0.0/24", at1=entry("a"))
        assert "10.0.0.2" == str(allocate_one(pool, range_spec("10.0.0.0/24"), owner("a", ifname="net2")).address)

    def test_an_allocated_address_is_kept_when_it_becomes_excluded(self) -> None:
        pool = spec("10.0.0.0/24", at7=entry("a"))
        able = range_spec("10.0.0.0/24", exclude=("10.0.0.7",))
        assert "10.0.0.7" == str(allocate_one(pool, able, owner("a")).address)

    def test_of_two_allocations_that_of_the_sandbox_is_used_else_the_lowest(self) -> None:
        pool = spec("10.0.0.0/24", at9=entry("a", container_id="x"), at3=entry("a", container_id="y"))
        able = range_spec("10.0.0.0/24")
        assert "10.0.0.9" == str(allocate_one(pool, able, owner("a", container_id="x")).address)
        assert "10.0.0.3" == str(allocate_one(pool, able, owner("a", container_id="z")).address)

    def test_two_sandboxes_of_one_pod_share_one_allocation(self) -> None:
        pool = spec("10.0.0.0/24")
        owners = [owner("a", container_id="x"), owner("a", container_id="y")]
        one, other = allocate_each(pool, range_spec("10.0.0.0/24"), *owners)
        assert one.address == other.address
        assert 1 == len(applied(pool, one, other).allocations)


class TestPatches:
    def test_patches_equal_those_of_whereabouts(self) -> None:
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": "5"}
        new = allocate_one(
            spec("10.1.0.0/24"),
            range_spec("10.1.0.0/24"),
            PodInterface(podref="ns/p1", container_id="CID", ifname="net1"),
        )
        value = {"id": "CID", "ifname": "net1", "podref": "ns/p1"}
        assert [
            test,
            {"op": "test", "path": "/spec/allocations/1", "value": None},
            {"op": "add", "path": "/spec/allocations/1", "value": value},
        ] == allocation_patch([new], version="5")

    def test_a_patch_applies_only_to_the_entry_it_was_made_for(self) -> None:
        pool, able = spec("10.0.0.0/24"), range_spec("10.0.0.0/24")
        mine = allocate_one(pool, able, owner("mine"))
        others = applied(pool, allocate_one(pool, able, owner("other")))
        with pytest.raises(PatchError):
            applied(others, mine)
        released = removals(others, container_id="cid-other", ifname="net1")
        again = applied(others, allocate_one(others, able, owner("other", container_id="cid-2")))
        with pytest.raises(PatchError):
            applied(again, *released)

    def test_keys_are_escaped(self) -> None:
        change = AllocationChange(key="~/", address=parse_address("10.0.0.1"), before=entry("a"), after=None)
        assert "/spec/allocations/~0~1" == change.operations()[-1]["path"]


class TestReservations:
    def test_84_an_address_reserved_through_another_range_is_skipped(self) -> None:
        wide = allocate_one(spec("2001::2:3:0/124"), range_spec("2001::2:3:0/124"), owner("a"))
        held = {wide.address: ReservationSpec(podref="default/a", ifname="net1")}
        narrow = allocate_one(spec("2001::2:3:0/126"), range_spec("2001::2:3:0/126"), owner("b"), reserved=held)
        assert ("2001::2:3:1", "2001::2:3:2") == (str(wide.address), str(narrow.address))

    def test_85_without_overlap_check_two_ranges_allocate_the_same_address(self) -> None:
        read = config(range="192.168.33.0/24", enable_overlapping_ranges=False)
        assert not needs_reservation(read, read.ranges[0].prefix, [parse_prefix("192.168.33.0/28")])
        both = [
            allocate_one(spec(each), range_spec(each), owner("a")) for each in ("192.168.33.0/24", "192.168.33.0/28")
        ]
        assert ["192.168.33.1", "192.168.33.1"] == [str(each.address) for each in both]

    def test_a_pods_own_reservation_is_used_first(self) -> None:
        """It is left by an interrupted ADD."""
        held = {parse_address("10.0.0.9"): ReservationSpec(podref="default/a", ifname="net1")}
        assert "10.0.0.9" == str(
            allocate_one(spec("10.0.0.0/24"), range_spec("10.0.0.0/24"), owner("a"), reserved=held).address
        )

    def test_a_pods_own_reservation_does_not_affect_others(self) -> None:
        held = {parse_address("10.0.0.9"): ReservationSpec(podref="default/a", ifname="net1")}
        found = allocate(spec("10.0.0.0/24"), range_spec("10.0.0.0/24"), [owner("a"), owner("b")], reserved=held)
        assert ["9", "1"] == [each.key for each in found if isinstance(each, AllocationChange)]

    def test_a_reservation_of_the_other_family_is_ignored(self) -> None:
        held = {parse_address("::a00:1"): ReservationSpec(podref="default/b")}
        assert "10.0.0.1" == str(
            allocate_one(spec("10.0.0.0/24"), range_spec("10.0.0.0/24"), owner("a"), reserved=held).address
        )

    def test_a_pods_own_reservation_is_not_used_if_another_has_the_address(self) -> None:
        held = {parse_address("10.0.0.1"): ReservationSpec(podref="default/a", ifname="net1")}
        pool = spec("10.0.0.0/24", at1=entry("b"))
        assert "10.0.0.2" == str(allocate_one(pool, range_spec("10.0.0.0/24"), owner("a"), reserved=held).address)

    @pytest.mark.parametrize(
        ("podref", "ifname", "blocked"),
        [
            ("default/a", "net1", False),
            ("default/a", "", False),
            ("default/a", "net2", True),
            ("default/b", "net1", True),
        ],
    )
    def test_a_reservation_of_another_owner_blocks_and_is_kept(
        self, podref: str, ifname: str, *, blocked: bool
    ) -> None:
        """Whereabouts compares only the Pod, and deletes any reservation of the address."""
        reservation = ReservationSpec(podref=podref, ifname=ifname)
        assert blocked == blocks(reservation, owner("a"))
        assert blocked != belongs_to(reservation, entry("a"))

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
    def test_reservations_are_needed_for_overlapping_ranges_or_if_configured(
        self, ipam: dict[str, Any], others: list[str], *, needed: bool
    ) -> None:
        read = config(range="10.0.0.0/24", **ipam)
        assert needed == needs_reservation(read, read.ranges[0].prefix, [parse_prefix(each) for each in others])


class TestRelease:
    @pytest.mark.parametrize(
        ("pool", "expected"),
        [
            (spec("10.0.0.0/24"), []),
            (spec("10.1.0.0/24", at4=entry("a"), at5=entry("b")), ["10.1.0.4"]),
            (spec("fd00::/64", at9=entry("a")), ["fd00::9"]),
            (spec("10.0.0.0/24", at1=entry("a", ifname="net2"), at2=entry("a", container_id="new")), []),
        ],
    )
    def test_86_the_allocations_of_the_interface_are_removed(self, pool: IPPoolSpec, expected: list[str]) -> None:
        """Whereabouts stops at the first range without an allocation, and leaks the rest."""
        assert expected == [str(each.address) for each in removals(pool, container_id="cid-a", ifname="net1")]


class TestLargeOffsets:
    """Whereabouts ignores and then erases keys of 2^63 and more, and truncates offsets to 64 bits."""

    @pytest.mark.parametrize(
        ("range_", "start", "key"),
        [
            ("fd00::/64", "fd00::8000:0:0:1", str((1 << 63) + 1)),
            ("fd00::/64", "fd00::ffff:ffff:ffff:fffe", str((1 << 64) - 2)),
            ("fd00::/48", "fd00:0:0:1::5", str((1 << 64) + 5)),
            ("::/0", "8000::5", str((1 << 127) + 5)),
        ],
    )
    def test_large_offsets_are_written_read_and_released(self, range_: str, start: str, key: str) -> None:
        able = range_spec(range_, start=start)
        pool = spec(range_)
        change = allocate_one(pool, able, owner("a"))
        assert (start, key) == (str(change.address), change.key)
        pool = applied(pool, change)
        assert parse_address(start) == parse_ippool(pool).entries[0].address
        assert change.address == allocate_one(pool, able, owner("a")).address
        assert {} == applied(pool, *removals(pool, container_id="cid-a", ifname="net1")).allocations

    @given(st.integers(0, 128), st.data())
    def test_keys_are_offsets(self, length: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, (1 << (128 - length)) - 1))
        (read,) = parse_ippool(spec(f"::/{length}", **{f"at{offset}": entry("a")})).entries
        assert offset == read.address.value
        assert Family.V6 is read.address.family


class TestInvalidEntries:
    def test_invalid_keys_are_reported_and_left_in_place(self) -> None:
        strange = {f"at{key}": entry(key or "empty") for key in ("", "x", "-1", "256", "9" * 50, "1.5")}
        pool = spec("10.0.0.0/24", at255=entry("last"), **strange)
        read = parse_ippool(pool)
        assert ["255"] == [each.key for each in read.entries]
        assert {"", "x", "-1", "256", "9" * 50, "1.5"} == set(read.invalid_keys)
        change = allocate_one(pool, range_spec("10.0.0.0/24"), owner("new"))
        assert pool.allocations.items() <= applied(pool, change).allocations.items()

    def test_keys_are_offsets_from_the_address_as_written(self) -> None:
        """Older pools have host bits in their range. Addresses below have no key."""
        pool = spec("10.0.0.9/24", at1=entry("a"))
        assert "10.0.0.10" == str(parse_ippool(pool).entries[0].address)
        change = allocate_one(pool, range_spec("10.0.0.0/24"), owner("b"))
        assert ("10.0.0.9", "0") == (str(change.address), change.key)

    def test_a_pool_without_a_range_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="^spec.range '': not in CIDR notation"):
            parse_ippool(IPPoolSpec())


def test_a_pool_that_exceeds_the_object_size_is_reported() -> None:
    names = [f"a-deployment-of-some-length-{number:05}" for number in range(9_000)]
    entries = {f"at{at}": entry(name, container_id="c" * 64) for at, name in enumerate(names[:7_000], 1)}
    pool, able = spec("10.0.0.0/16", **entries), range_spec("10.0.0.0/16")
    assert "10.0.27.89" == str(allocate_one(pool, able, owner("one-more")).address)
    found = allocate(pool, able, [owner(name, container_id="c" * 64) for name in names])
    refused = [each for each in found if isinstance(each, PoolTooLarge)]
    assert [*found[-len(refused) :]] == refused, "existing owners and the first new ones get an address"
    assert str(refused[0]) == (
        "the IPPool of 10.0.0.0/16 has 7000 allocations, as many as fit into one object: "
        "use node_slice_size, or smaller ranges"
    )
    full = applied(pool, *(each for each in found if isinstance(each, AllocationChange)))
    size = len(msgspec.json.encode(full.allocations)) + MANAGED_FIELDS_BYTES * len(full.allocations)
    assert MAX_OBJECT_BYTES - 300 < size <= MAX_OBJECT_BYTES < 3 << 19, "etcd's limit"
    with pytest.raises(PoolTooLarge):
        allocate_one(full, able, owner(names[-1], container_id="c" * 64))

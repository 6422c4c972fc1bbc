"""What is said about a cluster before it is adopted; and whose its pools are."""

import msgspec
import pytest

from podpool.api.builtin import AddressedPod, NetworkAnnotations
from podpool.api.whereabouts import Allocation
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.ippool_owner import KnownNames, identify_pool, slices_in_use
from podpool.whereabouts.migration_report import MigrationInputs, MigrationReport, Problem, build_migration_report
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_assignment import HeldSlice
from tests.whereabouts.builders import attachment, entry, pod, pool, reservation, spec

RANGE = attachment("blue", range="10.0.0.0/24")


def told(found: MigrationReport, trouble: Problem) -> list[str]:
    assert {each.trouble for each in found.findings} <= {trouble}, "nothing else is wrong"
    return [f"{each.where}: {each.told}" for each in found.of(trouble)]


def test_a_cluster_in_order_is_counted_and_nothing_is_said() -> None:
    found = build_migration_report(
        MigrationInputs(
            pools=[
                pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"), at2=entry("b"))),
                pool("red-node1-10.1.0.0-26", spec("10.1.0.0/26", at5=entry("a", ifname="net2"))),
            ],
            reservations=[reservation("10.0.0.1", "default/a"), reservation("red-10.1.0.5", "default/a")],
            pods=[pod("a", blue="10.0.0.1", red="10.1.0.5"), pod("b")],
            attachments=[RANGE, attachment("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")],
            nodes=["node1"],
        )
    )
    assert MigrationReport(pools=2, entries=3, reservations=2) == found


class TestDuplicates:
    def test_an_address_with_two_owners_in_overlapping_pools(self) -> None:
        found = build_migration_report(
            MigrationInputs(
                pools=[
                    pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"))),
                    pool("10.0.0.0-28", spec("10.0.0.0/28", at1=entry("b"))),
                ],
                pods=[pod("a"), pod("b")],
                attachments=[RANGE, attachment("narrow", range="10.0.0.0/28")],
            )
        )
        (duplicate,) = told(found, Problem.DUPLICATE)
        assert duplicate == (
            "ippool/10.0.0.0-24: 10.0.0.1 has 2 owners: 10.0.0.1 of default/a net1 in ippool/10.0.0.0-24; "
            "10.0.0.1 of default/b net1 in ippool/10.0.0.0-28"
        )

    def test_ranges_that_are_to_overlap_have_addresses_of_their_own(self) -> None:
        """Where `enable_overlapping_ranges` is false, each pool's address is another, and needs its own entry."""
        found = build_migration_report(
            MigrationInputs(
                pools=[
                    pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"))),
                    pool("10.0.0.0-28", spec("10.0.0.0/28", at1=entry("b"), at2=entry("c"))),
                ],
                pods=[pod("a"), pod("b"), pod("c"), pod("d", wide="10.0.0.2")],
                attachments=[
                    attachment("wide", range="10.0.0.0/24", enable_overlapping_ranges=False),
                    attachment("narrow", range="10.0.0.0/28", enable_overlapping_ranges=False),
                ],
            )
        )
        assert ["pod/default/d: 10.0.0.2 on net1 (default/wide) has no entry in any pool"] == told(
            found, Problem.UNRECORDED
        )

    def test_another_network_has_addresses_of_its_own(self) -> None:
        found = build_migration_report(
            MigrationInputs(
                pools=[
                    pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"))),
                    pool("red-10.0.0.0-24", spec("10.0.0.0/24", at1=entry("b"))),
                ],
                pods=[pod("a"), pod("b")],
                attachments=[RANGE, attachment("red", network_name="red", range="10.0.0.0/24")],
            )
        )
        assert [] == told(found, Problem.DUPLICATE)


class TestLeaks:
    @pytest.mark.parametrize(
        ("pods", "why"),
        [
            ([], "there is no such Pod"),
            ([pod("a", phase="Succeeded")], "the Pod has succeeded"),
            ([pod("a", phase="Failed")], "the Pod has failed"),
            ([pod("a", other="10.9.0.1")], "the Pod does not have this address"),
        ],
    )
    def test_an_address_that_no_pod_has(self, pods: list[AddressedPod], why: str) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a")))
        found = build_migration_report(MigrationInputs(pools=[one], pods=pods, attachments=[RANGE]))
        expected = f"ippool/10.0.0.0-24: 10.0.0.1 of default/a net1 in ippool/10.0.0.0-24: {why}"
        assert [expected] == told(found, Problem.LEAK)

    def test_an_entry_of_nobody(self) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=Allocation()))
        (leak,) = told(build_migration_report(MigrationInputs(pools=[one], attachments=[RANGE])), Problem.LEAK)
        assert "10.0.0.1 of nobody in" in leak

    def test_a_pod_that_shows_nothing_yet_is_believed(self) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a")))
        for shown in (pod("a", phase="Pending"), _garbled(pod("a"))):
            assert [] == told(
                build_migration_report(MigrationInputs(pools=[one], pods=[shown], attachments=[RANGE])), Problem.LEAK
            )


def _garbled(broken: AddressedPod) -> AddressedPod:
    garbled = msgspec.structs.replace(broken.metadata, annotations=NetworkAnnotations(status="{"))
    return msgspec.structs.replace(broken, metadata=garbled)


class TestShared:
    def test_entries_of_a_shared_pool_under_a_range_that_is_cut(self) -> None:
        cut = attachment("red", network_name="red", range="10.0.0.0/24", node_slice_size="/26")
        pools = [
            pool("red-10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"), at70=entry("b"))),
            pool("red-node1-10.0.0.128-26", spec("10.0.0.128/26", at1=entry("c")), node="node1", network_name="red"),
            pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("d"))),
        ]
        pods = [pod(each) for each in "abcd"]
        found = build_migration_report(
            MigrationInputs(pools=pools, pods=pods, attachments=[cut, RANGE], nodes=["node1"])
        )
        (shared,) = told(found, Problem.SHARED)
        assert shared.startswith("ippool/red-10.0.0.0-24: 2 of its addresses are of a range that is cut: slices with")


class TestOutside:
    def test_a_key_that_leads_out_of_the_pools_range(self) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at256=entry("a"), atx=entry("b")))
        found = build_migration_report(MigrationInputs(pools=[one], pods=[pod("a"), pod("b")], attachments=[RANGE]))
        assert [
            "ippool/10.0.0.0-24: entry '256' of default/a net1 leads out of 10.0.0.0/24",
            "ippool/10.0.0.0-24: entry 'x' of default/b net1 leads out of 10.0.0.0/24",
        ] == told(found, Problem.OUTSIDE)

    def test_an_address_that_no_configuration_allows_any_more(self) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"), at200=entry("b"), at7=entry("c")))
        attachments = [
            attachment("low", range="10.0.0.1-10.0.0.9/24", exclude=["10.0.0.7"]),
            attachment("unreadable", range="10.0.0.0/24", exclude=["x"]),
        ]
        pods = [pod("a"), pod("b"), pod("c")]
        found = told(
            build_migration_report(MigrationInputs(pools=[one], pods=pods, attachments=attachments)), Problem.OUTSIDE
        )
        assert ["10.0.0.7 of default/c", "10.0.0.200 of default/b"] == [
            each.split(": ")[1].split(" net1 ")[0] for each in found
        ]
        assert found[0].endswith("is outside of what default/low, default/unreadable may give")


class TestUnknownPools:
    @pytest.mark.parametrize(
        ("name", "range_"), [("whatever", "nonsense"), ("10.0.0.0-24", "10.0.0.0/25"), ("other", "10.0.0.0/24")]
    )
    def test_one_that_cannot_be_read(self, name: str, range_: str) -> None:
        found = build_migration_report(MigrationInputs(pools=[pool(name, spec(range_))], attachments=[RANGE]))
        assert [f"ippool/{name}: range {range_!r} or the name cannot be read"] == told(found, Problem.UNKNOWN)

    @pytest.mark.parametrize("name", ["11.0.0.0-24", "red-11.0.0.0-24", "node1-11.0.0.0-24"])
    def test_one_that_nobody_asks_for(self, name: str) -> None:
        found = build_migration_report(
            MigrationInputs(pools=[pool(name, spec("11.0.0.0/24"))], attachments=[RANGE], nodes=["node1"])
        )
        assert [f"ippool/{name}: no network attachment asks for its range"] == told(found, Problem.UNKNOWN)


class TestReservations:
    one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a")))

    def test_one_without_an_entry(self) -> None:
        objects = MigrationInputs(
            pools=[self.one],
            pods=[pod("a")],
            attachments=[RANGE],
            reservations=[reservation("10.0.0.9", "default/a"), reservation("10.0.0.1", "default/z")],
        )
        assert [
            "10.0.0.9: kept for default/a, which has no entry",
            "10.0.0.1: kept for default/z, which has no entry: the entry is of default/a",
        ] == [
            each.removeprefix("overlappingrangeipreservation/")
            for each in told(build_migration_report(objects), Problem.LONE_RESERVATION)
        ]


class TestUnrecorded:
    def test_a_running_pods_address_without_an_entry(self) -> None:
        """It would be given to another."""
        found = build_migration_report(
            MigrationInputs(
                pools=[pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a")))],
                pods=[pod("a", blue="10.0.0.1"), pod("b", blue="10.0.0.2"), pod("c", phase="Failed", blue="10.0.0.3")],
                attachments=[RANGE],
            )
        )
        assert ["pod/default/b: 10.0.0.2 on net1 (default/blue) has no entry in any pool"] == told(
            found, Problem.UNRECORDED
        )

    def test_addresses_beside_the_range_and_networks_of_others_have_none(self) -> None:
        found = build_migration_report(
            MigrationInputs(pods=[pod("a", blue="10.9.0.1", other="10.0.0.2")], attachments=[RANGE])
        )
        assert [] == told(found, Problem.UNRECORDED)


class TestPlaces:
    known = KnownNames(nodes=["node1", "node2"], networks=["red"])

    def test_annotations_count_more_than_names(self) -> None:
        noted = pool("red-node1-10.0.0.0-26", spec("10.0.0.0/26"), node="1-10.0.0.0", network_name="red-node")
        expected = PoolIdentifier(range=parse_prefix("10.0.0.0/26"), network="red-node", node="1-10.0.0.0")
        assert expected == identify_pool(noted, self.known)

    def test_slices_with_entries_or_a_holder_are_in_use(self) -> None:
        pools = [
            pool("red-node1-10.0.0.0-26", spec("10.0.0.0/26", at1=entry("a"))),
            pool("red-node2-10.0.0.64-26", spec("10.0.0.64/26"), node="node2", network_name="red"),
            pool("node2-10.0.0.128-26", spec("10.0.0.128/26"), node="node2"),
            pool("node1-10.0.0.192-26", spec("10.0.0.192/26"), node="node1"),
            pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"))),
        ]
        leased = ["red-node2-10.0.0.64-26", "node1-10.0.0.192-26", "10.0.0.0-24"]
        assert {
            "red": (
                HeldSlice(parse_prefix("10.0.0.0/26"), "node1", ""),
                HeldSlice(parse_prefix("10.0.0.64/26"), "node2", "uid-node2"),
            ),
            "": (HeldSlice(parse_prefix("10.0.0.192/26"), "node1", "uid-node1"),),
        } == slices_in_use(pools, leased=leased, known=self.known)


def test_a_finding_is_a_line() -> None:
    found = build_migration_report(MigrationInputs(reservations=[reservation("10.0.0.1", "")]))
    assert (
        "reservation without entry: overlappingrangeipreservation/10.0.0.1: kept for nobody, which has no entry"
        == str(found.findings[0])
    )

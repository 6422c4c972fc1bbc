"""The report before a migration from Whereabouts, and the owners of pools."""

import msgspec
import pytest

from podpool.api.builtin import AddressedPod, NetworkAnnotations
from podpool.api.whereabouts import Allocation
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.adoption_findings import MigrationInputs, MigrationReport, Problem, build_migration_report
from podpool.whereabouts.ippool_identity import KnownNames, identify_pool, slices_in_use
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_assignment import HeldSlice
from tests.whereabouts.builders import entry, nad, pod, pool, reservation, spec

RANGE = nad("blue", range="10.0.0.0/24")


def messages(found: MigrationReport, problem: Problem) -> list[str]:
    assert {each.problem for each in found.findings} <= {problem}, "no other findings"
    return [f"{each.where}: {each.message}" for each in found.of(problem)]


def test_a_consistent_cluster_has_no_findings() -> None:
    found = build_migration_report(
        MigrationInputs(
            pools=[
                pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"), at2=entry("b"))),
                pool("red-node1-10.1.0.0-26", spec("10.1.0.0/26", at5=entry("a", ifname="net2"))),
            ],
            reservations=[reservation("10.0.0.1", "default/a"), reservation("red-10.1.0.5", "default/a")],
            pods=[pod("a", blue="10.0.0.1", red="10.1.0.5"), pod("b")],
            nads=[RANGE, nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")],
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
                nads=[RANGE, nad("narrow", range="10.0.0.0/28")],
            )
        )
        (duplicate,) = messages(found, Problem.DUPLICATE)
        assert duplicate == (
            "ippool/10.0.0.0-24: 10.0.0.1 has 2 owners: 10.0.0.1 of default/a net1 in ippool/10.0.0.0-24; "
            "10.0.0.1 of default/b net1 in ippool/10.0.0.0-28"
        )

    def test_without_overlap_check_each_range_has_its_own_addresses(self) -> None:
        """With `enable_overlapping_ranges: false` an address has one owner per pool."""
        found = build_migration_report(
            MigrationInputs(
                pools=[
                    pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"))),
                    pool("10.0.0.0-28", spec("10.0.0.0/28", at1=entry("b"), at2=entry("c"))),
                ],
                pods=[pod("a"), pod("b"), pod("c"), pod("d", wide="10.0.0.2")],
                nads=[
                    nad("wide", range="10.0.0.0/24", enable_overlapping_ranges=False),
                    nad("narrow", range="10.0.0.0/28", enable_overlapping_ranges=False),
                ],
            )
        )
        assert ["pod/default/d: 10.0.0.2 on net1 (default/wide) has no entry in any pool"] == messages(
            found, Problem.UNRECORDED
        )

    def test_another_network_has_its_own_addresses(self) -> None:
        found = build_migration_report(
            MigrationInputs(
                pools=[
                    pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"))),
                    pool("red-10.0.0.0-24", spec("10.0.0.0/24", at1=entry("b"))),
                ],
                pods=[pod("a"), pod("b")],
                nads=[RANGE, nad("red", network_name="red", range="10.0.0.0/24")],
            )
        )
        assert [] == messages(found, Problem.DUPLICATE)


class TestLeaks:
    @pytest.mark.parametrize(
        ("pods", "why"),
        [
            ([], "the Pod does not exist"),
            ([pod("a", phase="Succeeded")], "the Pod has succeeded"),
            ([pod("a", phase="Failed")], "the Pod has failed"),
            ([pod("a", other="10.9.0.1")], "the Pod does not have this address"),
        ],
    )
    def test_an_allocation_whose_pod_does_not_have_the_address(self, pods: list[AddressedPod], why: str) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a")))
        found = build_migration_report(MigrationInputs(pools=[one], pods=pods, nads=[RANGE]))
        expected = f"ippool/10.0.0.0-24: 10.0.0.1 of default/a net1 in ippool/10.0.0.0-24: {why}"
        assert [expected] == messages(found, Problem.LEAK)

    def test_an_allocation_without_a_pod(self) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=Allocation()))
        (leak,) = messages(build_migration_report(MigrationInputs(pools=[one], nads=[RANGE])), Problem.LEAK)
        assert "10.0.0.1 of no Pod in" in leak

    def test_a_pod_without_network_status_is_not_a_leak(self) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a")))
        for reported in (pod("a", phase="Pending"), _garbled(pod("a"))):
            assert [] == messages(
                build_migration_report(MigrationInputs(pools=[one], pods=[reported], nads=[RANGE])), Problem.LEAK
            )


def _garbled(broken: AddressedPod) -> AddressedPod:
    garbled = msgspec.structs.replace(broken.metadata, annotations=NetworkAnnotations(status="{"))
    return msgspec.structs.replace(broken, metadata=garbled)


class TestSharedInSlicedRange:
    def test_allocations_of_a_shared_pool_in_a_sliced_range(self) -> None:
        sliced = nad("red", network_name="red", range="10.0.0.0/24", node_slice_size="/26")
        pools = [
            pool("red-10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"), at70=entry("b"))),
            pool("red-node1-10.0.0.128-26", spec("10.0.0.128/26", at1=entry("c")), node="node1", network_name="red"),
            pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("d"))),
        ]
        pods = [pod(each) for each in "abcd"]
        found = build_migration_report(MigrationInputs(pools=pools, pods=pods, nads=[sliced, RANGE], nodes=["node1"]))
        (shared,) = messages(found, Problem.SHARED)
        assert shared.startswith("ippool/red-10.0.0.0-24: 2 of its addresses are in a sliced range: the slices that")


class TestInsufficientSlices:
    def test_fewer_slices_than_nodes(self) -> None:
        sliced = nad("red", network_name="red", range="10.0.0.0/24", node_slice_size="/26", exclude=["10.0.0.0/26"])
        nodes = [f"node{number}" for number in range(4)]
        (short,) = messages(build_migration_report(MigrationInputs(nads=[sliced], nodes=nodes)), Problem.INSUFFICIENT)
        remedy = "use a larger range, such as 10.0.0.0/23, or node_slice_size /27"
        assert short.startswith(
            f"net-attach-def/default/red: 10.0.0.0/24 has 3 slices of /26 for 4 nodes, 1 get none: {remedy}"
        )
        assert () == build_migration_report(MigrationInputs(nads=[sliced], nodes=nodes[:3])).findings


class TestOutside:
    def test_a_key_outside_the_range_of_the_pool(self) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at256=entry("a"), atx=entry("b")))
        found = build_migration_report(MigrationInputs(pools=[one], pods=[pod("a"), pod("b")], nads=[RANGE]))
        assert [
            "ippool/10.0.0.0-24: entry '256' of default/a net1 is outside 10.0.0.0/24",
            "ippool/10.0.0.0-24: entry 'x' of default/b net1 is outside 10.0.0.0/24",
        ] == messages(found, Problem.OUTSIDE)

    def test_an_address_that_no_configuration_allows(self) -> None:
        one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"), at200=entry("b"), at7=entry("c")))
        nads = [
            nad("low", range="10.0.0.1-10.0.0.9/24", exclude=["10.0.0.7"]),
            nad("unreadable", range="10.0.0.0/24", exclude=["x"]),
        ]
        pods = [pod("a"), pod("b"), pod("c")]
        found = messages(build_migration_report(MigrationInputs(pools=[one], pods=pods, nads=nads)), Problem.OUTSIDE)
        assert ["10.0.0.7 of default/c", "10.0.0.200 of default/b"] == [
            each.split(": ")[1].split(" net1 ")[0] for each in found
        ]
        assert found[0].endswith("is outside what default/low, default/unreadable may allocate")


class TestUnknownPools:
    @pytest.mark.parametrize(
        ("name", "range_"), [("whatever", "nonsense"), ("10.0.0.0-24", "10.0.0.0/25"), ("other", "10.0.0.0/24")]
    )
    def test_a_pool_that_cannot_be_read(self, name: str, range_: str) -> None:
        found = build_migration_report(MigrationInputs(pools=[pool(name, spec(range_))], nads=[RANGE]))
        assert [f"ippool/{name}: range {range_!r} or the name cannot be read"] == messages(found, Problem.UNKNOWN)

    @pytest.mark.parametrize("name", ["11.0.0.0-24", "red-11.0.0.0-24", "node1-11.0.0.0-24"])
    def test_a_pool_without_a_nad(self, name: str) -> None:
        found = build_migration_report(
            MigrationInputs(pools=[pool(name, spec("11.0.0.0/24"))], nads=[RANGE], nodes=["node1"])
        )
        assert [f"ippool/{name}: no NetworkAttachmentDefinition uses its range"] == messages(found, Problem.UNKNOWN)


class TestReservations:
    one = pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a")))

    def test_a_reservation_without_an_allocation(self) -> None:
        inputs = MigrationInputs(
            pools=[self.one],
            pods=[pod("a")],
            nads=[RANGE],
            reservations=[reservation("10.0.0.9", "default/a"), reservation("10.0.0.1", "default/z")],
        )
        assert [
            "10.0.0.9: reserved for default/a, which has no entry",
            "10.0.0.1: reserved for default/z, which has no entry: the entry is of default/a",
        ] == [
            each.removeprefix("overlappingrangeipreservation/")
            for each in messages(build_migration_report(inputs), Problem.LONE_RESERVATION)
        ]


class TestUnrecorded:
    def test_an_address_of_a_running_pod_without_an_allocation(self) -> None:
        """It could be allocated to another Pod."""
        found = build_migration_report(
            MigrationInputs(
                pools=[pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a")))],
                pods=[pod("a", blue="10.0.0.1"), pod("b", blue="10.0.0.2"), pod("c", phase="Failed", blue="10.0.0.3")],
                nads=[RANGE],
            )
        )
        assert ["pod/default/b: 10.0.0.2 on net1 (default/blue) has no entry in any pool"] == messages(
            found, Problem.UNRECORDED
        )

    def test_static_addresses_and_other_networks_need_no_allocation(self) -> None:
        found = build_migration_report(
            MigrationInputs(pods=[pod("a", blue="10.9.0.1", other="10.0.0.2")], nads=[RANGE])
        )
        assert [] == messages(found, Problem.UNRECORDED)


class TestPoolOwners:
    known = KnownNames(nodes=["node1", "node2"], networks=["red"])

    def test_annotations_take_precedence_over_names(self) -> None:
        annotated = pool("red-node1-10.0.0.0-26", spec("10.0.0.0/26"), node="1-10.0.0.0", network_name="red-node")
        expected = PoolIdentifier(range=parse_prefix("10.0.0.0/26"), network="red-node", node="1-10.0.0.0")
        assert expected == identify_pool(annotated, self.known)

    def test_slices_with_allocations_are_in_use(self) -> None:
        pools = [
            pool("red-node1-10.0.0.0-26", spec("10.0.0.0/26", at1=entry("a"))),
            pool("red-node2-10.0.0.64-26", spec("10.0.0.64/26", at1=entry("b")), node="node2", network_name="red"),
            pool("node2-10.0.0.128-26", spec("10.0.0.128/26"), node="node2"),
            pool("node1-10.0.0.192-26", spec("10.0.0.192/26", at1=entry("c")), node="node1"),
            pool("10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"))),
        ]
        assert {
            "red": (
                HeldSlice(parse_prefix("10.0.0.0/26"), "node1", ""),
                HeldSlice(parse_prefix("10.0.0.64/26"), "node2", "uid-node2"),
            ),
            "": (HeldSlice(parse_prefix("10.0.0.192/26"), "node1", "uid-node1"),),
        } == slices_in_use(pools, known=self.known)


def test_a_finding_is_one_line() -> None:
    found = build_migration_report(MigrationInputs(reservations=[reservation("10.0.0.1", "")]))
    assert (
        "reservation without entry: overlappingrangeipreservation/10.0.0.1: reserved for no Pod, which has no entry"
        == str(found.findings[0])
    )

"""Orphan GC of shared ranges. Numbers in test names are cases of Whereabouts, as in `test_config`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.api.whereabouts import Allocation, IPPool, IPPoolSpec
from podpool.core.two_observations import OBSERVATION_INTERVAL
from podpool.whereabouts.ippool import allocation_patch
from podpool.whereabouts.orphan_gc import (
    GcSnapshot,
    ObservedPod,
    OrphanedEntry,
    orphaned_entries,
    orphaned_reservations,
)
from tests.whereabouts.builders import entry, pool, reservation, spec

LATER = OBSERVATION_INTERVAL
ALIVE = ObservedPod()
FINISHED = ObservedPod(finished=True)


def snapshot(
    at: float,
    *pools: IPPool,
    pods: dict[str, ObservedPod] | None = None,
    reserved: dict[str, str] | None = None,
) -> GcSnapshot:
    return GcSnapshot(
        at=at,
        pools={each.metadata.name: each for each in pools},
        pods={f"default/{name}": each for name, each in (pods or {}).items()},
        reservations={name: reservation(name, podref) for name, podref in (reserved or {}).items()},
    )


def addresses(found: tuple[OrphanedEntry, ...]) -> list[str]:
    return [f"{each.pool} {each.change.address}" for each in found]


shared = pool("10.10.10.0-24", spec("10.10.10.0/24", at1=entry("a"), at2=entry("b")))


class TestSharedPools:
    def test_90_96_an_allocation_of_a_deleted_pod_is_released(self) -> None:
        found = orphaned_entries(snapshot(0, shared, pods={"b": ALIVE}), snapshot(LATER, shared, pods={"b": ALIVE}))
        assert ["10.10.10.0-24 10.10.10.1"] == addresses(found)

    def test_97_without_its_nad_too(self) -> None:
        """Whereabouts looks up the range in the NAD, and skips the allocation without it."""
        assert 2 == len(orphaned_entries(snapshot(0, shared), snapshot(LATER, shared)))

    def test_the_patch_tests_the_container_id(self) -> None:
        found = orphaned_entries(snapshot(0, shared, pods={"b": ALIVE}), snapshot(LATER, shared, pods={"b": ALIVE}))
        assert [
            {"op": "test", "path": "/spec/allocations/1/id", "value": "cid-a"},
            {"op": "remove", "path": "/spec/allocations/1"},
        ] == allocation_patch(each.change for each in found)

    def test_snapshots_less_than_a_minute_apart_release_nothing(self) -> None:
        assert () == orphaned_entries(snapshot(0, shared), snapshot(LATER - 0.1, shared))

    @pytest.mark.parametrize(("first", "second"), [(ALIVE, None), (None, ALIVE), (ALIVE, FINISHED), (FINISHED, ALIVE)])
    def test_a_pod_in_either_snapshot_keeps_its_allocation(
        self, first: ObservedPod | None, second: ObservedPod | None
    ) -> None:
        seen = [{"b": ALIVE, **({"a": each} if each else {})} for each in (first, second)]
        assert () == orphaned_entries(snapshot(0, shared, pods=seen[0]), snapshot(LATER, shared, pods=seen[1]))

    @pytest.mark.parametrize(("first", "second"), [(FINISHED, FINISHED), (FINISHED, None), (None, FINISHED)])
    def test_an_allocation_of_a_finished_pod_is_released(
        self, first: ObservedPod | None, second: ObservedPod | None
    ) -> None:
        """Whereabouts keeps it until the Pod is deleted."""
        seen = [{"b": ALIVE, **({"a": each} if each else {})} for each in (first, second)]
        found = orphaned_entries(snapshot(0, shared, pods=seen[0]), snapshot(LATER, shared, pods=seen[1]))
        assert ["10.10.10.0-24 10.10.10.1"] == addresses(found)

    def test_94_a_pending_pod_keeps_its_allocation(self) -> None:
        """Whereabouts releases it, because the Pod has no address in its status yet."""
        pending = {"a": ObservedPod(), "b": ALIVE}
        assert () == orphaned_entries(snapshot(0, shared, pods=pending), snapshot(LATER, shared, pods=pending))

    @pytest.mark.parametrize(
        "before",
        [
            spec("10.10.10.0/24"),
            spec("10.10.10.0/24", at1=entry("a", container_id="other")),
            spec("10.10.10.0/24", at1=entry("a", ifname="net2")),
        ],
    )
    def test_a_new_or_changed_allocation_is_kept(self, before: IPPoolSpec) -> None:
        after = spec("10.10.10.0/24", at1=entry("a"))
        assert () == orphaned_entries(*(snapshot(at, pool("p", each)) for at, each in ((0, before), (LATER, after))))

    def test_allocations_of_a_recreated_pool_are_kept(self) -> None:
        recreated = pool("10.10.10.0-24", shared.spec, uid="another")
        assert () == orphaned_entries(snapshot(0, shared), snapshot(LATER, recreated))
        assert () == orphaned_entries(snapshot(0), snapshot(LATER, shared))

    def test_an_allocation_without_a_pod_is_kept(self) -> None:
        nameless = pool("p", spec("10.0.0.0/24", at1=Allocation(id="x")))
        assert () == orphaned_entries(snapshot(0, nameless), snapshot(LATER, nameless))

    def test_an_invalid_pool_is_skipped(self) -> None:
        bad = pool("bad", spec("nonsense", at1=entry("gone")))
        assert () == orphaned_entries(snapshot(0, bad), snapshot(LATER, bad))

    def test_large_ipv6_offsets_are_released(self) -> None:
        far = pool("fd00---64", spec("fd00::/64", **{f"at{1 << 63}": entry("gone")}))
        assert ["fd00---64 fd00::8000:0:0:0"] == addresses(orphaned_entries(snapshot(0, far), snapshot(LATER, far)))


class TestSlices:
    mine = pool("node1-10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"), at2=entry("b")), node="node1")

    def test_allocations_in_a_slice_are_left_to_the_agent(self) -> None:
        """The IPPool may lag behind the agent's journal."""
        assert () == orphaned_entries(snapshot(0, self.mine), snapshot(LATER, self.mine))

    def test_slices_of_third_party_plugins_are_collected(self) -> None:
        third_party = pool("node1-10.0.0.0-24", self.mine.spec)
        assert 2 == len(orphaned_entries(snapshot(0, third_party), snapshot(LATER, third_party)))


class TestOldSandboxes:
    """92: Whereabouts releases a second allocation of a running Pod, by the addresses in the Pod's status."""

    def test_allocations_of_former_sandboxes_of_a_running_pod_are_kept(self) -> None:
        twice = spec("10.0.0.0/24", at1=entry("a", container_id="new"), at2=entry("a", container_id="old"))
        snapshots = [snapshot(at, pool("10.0.0.0-24", twice), pods={"a": ALIVE}) for at in (0, LATER)]
        assert () == orphaned_entries(*snapshots)


class TestReservations:
    def test_93_reservations_of_deleted_pods_are_deleted(self) -> None:
        reserved = {"10.0.0.1": "default/a", "fd00--1": "default/b", "10.0.0.3": "default/gone"}
        snapshots = [snapshot(at, pods={"a": ALIVE, "b": ALIVE}, reserved=reserved) for at in (0, LATER)]
        assert ["10.0.0.3"] == [each.metadata.name for each in orphaned_reservations(*snapshots)]

    @pytest.mark.parametrize("name", ["tenant-10.10.10.1", "2001--0", "tenant-fd00--1"])
    def test_a_reservation_of_a_running_pod_is_kept_whatever_its_name(self, name: str) -> None:
        """Whereabouts deletes all of a named network, and those of addresses that end in `::`."""
        snapshots = [snapshot(at, pods={"a": ALIVE}, reserved={name: "default/a"}) for at in (0, LATER)]
        assert () == orphaned_reservations(*snapshots)

    def test_a_new_changed_or_just_observed_reservation_is_kept(self) -> None:
        one, other = {"10.0.0.1": "default/gone"}, {"10.0.0.1": "default/other"}
        assert () == orphaned_reservations(snapshot(0), snapshot(LATER, reserved=one))
        assert () == orphaned_reservations(snapshot(0, reserved=other), snapshot(LATER, reserved=one))
        assert () == orphaned_reservations(snapshot(0, reserved=one), snapshot(LATER - 1, reserved=one))


observed_pod = st.builds(ObservedPod, finished=st.booleans())
observed_pods = st.fixed_dictionaries({}, optional=dict.fromkeys("ab", observed_pod))


@given(observed_pods, observed_pods, st.floats(0, 200))
def test_no_allocation_of_a_running_pod_is_released(
    before: dict[str, ObservedPod], after: dict[str, ObservedPod], seconds: float
) -> None:
    first, second = (snapshot(at, shared, pods=pods) for at, pods in ((0, before), (seconds, after)))
    for each in orphaned_entries(first, second):
        assert each.change.before is not None
        name = each.change.before.podref.removeprefix("default/")
        assert seconds >= LATER
        assert all(name not in pods or pods[name].finished for pods in (before, after))

"""What nobody needs any more. Settings as in `test_config`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.api.whereabouts import Allocation, IPPool, IPPoolSpec
from podpool.whereabouts.ippool import allocation_patch
from podpool.whereabouts.orphan_gc import (
    MIN_INTERVAL,
    GcSnapshot,
    ObservedPod,
    OrphanedEntry,
    orphaned_entries,
    orphaned_reservations,
)
from tests.whereabouts.builders import entry, pool, reservation, spec

ALIVE = ObservedPod()
FINISHED = ObservedPod(finished=True)


def look(
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


class TestShared:
    def test_90_96_an_entry_of_a_pod_that_is_gone_is_released(self) -> None:
        found = orphaned_entries(look(0, shared, pods={"b": ALIVE}), look(MIN_INTERVAL, shared, pods={"b": ALIVE}))
        assert ["10.10.10.0-24 10.10.10.1"] == addresses(found)

    def test_97_whether_or_not_its_attachment_is_still_there(self) -> None:
        """Theirs looks the range up in the attachment, and gives up without it: attachments play no part here."""
        assert 2 == len(orphaned_entries(look(0, shared), look(MIN_INTERVAL, shared)))

    def test_the_patch_tests_the_entrys_id(self) -> None:
        found = orphaned_entries(look(0, shared, pods={"b": ALIVE}), look(MIN_INTERVAL, shared, pods={"b": ALIVE}))
        assert [
            {"op": "test", "path": "/spec/allocations/1/id", "value": "cid-a"},
            {"op": "remove", "path": "/spec/allocations/1"},
        ] == allocation_patch(each.change for each in found)

    def test_two_looks_too_close_to_each_other_show_nothing(self) -> None:
        assert () == orphaned_entries(look(0, shared), look(MIN_INTERVAL - 0.1, shared))

    @pytest.mark.parametrize(("first", "second"), [(ALIVE, None), (None, ALIVE), (ALIVE, FINISHED), (FINISHED, ALIVE)])
    def test_a_pod_that_was_there_once_keeps_its_entry(
        self, first: ObservedPod | None, second: ObservedPod | None
    ) -> None:
        seen = [{"b": ALIVE, **({"a": each} if each else {})} for each in (first, second)]
        assert () == orphaned_entries(look(0, shared, pods=seen[0]), look(MIN_INTERVAL, shared, pods=seen[1]))

    @pytest.mark.parametrize(("first", "second"), [(FINISHED, FINISHED), (FINISHED, None), (None, FINISHED)])
    def test_a_pod_that_finished_needs_none(self, first: ObservedPod | None, second: ObservedPod | None) -> None:
        """Theirs keeps it until the Pod is deleted."""
        seen = [{"b": ALIVE, **({"a": each} if each else {})} for each in (first, second)]
        found = orphaned_entries(look(0, shared, pods=seen[0]), look(MIN_INTERVAL, shared, pods=seen[1]))
        assert ["10.10.10.0-24 10.10.10.1"] == addresses(found)

    def test_94_a_pod_that_is_pending_keeps_its_entry(self) -> None:
        """Theirs takes it, because the Pod does not show an address yet."""
        pending = {"a": ObservedPod(), "b": ALIVE}
        assert () == orphaned_entries(look(0, shared, pods=pending), look(MIN_INTERVAL, shared, pods=pending))

    @pytest.mark.parametrize(
        "before",
        [
            spec("10.10.10.0/24"),
            spec("10.10.10.0/24", at1=entry("a", container="other")),
            spec("10.10.10.0/24", at1=entry("a", ifname="net2")),
        ],
    )
    def test_an_entry_that_is_new_or_changed_is_looked_at_once_more(self, before: IPPoolSpec) -> None:
        after = spec("10.10.10.0/24", at1=entry("a"))
        assert () == orphaned_entries(*(look(at, pool("p", each)) for at, each in ((0, before), (MIN_INTERVAL, after))))

    def test_so_is_a_pool_that_was_made_anew(self) -> None:
        anew = pool("10.10.10.0-24", shared.spec, uid="another")
        assert () == orphaned_entries(look(0, shared), look(MIN_INTERVAL, anew))
        assert () == orphaned_entries(look(0), look(MIN_INTERVAL, shared))

    def test_an_entry_without_a_pod_is_nobodys_to_judge(self) -> None:
        nameless = pool("p", spec("10.0.0.0/24", at1=Allocation(id="x")))
        assert () == orphaned_entries(look(0, nameless), look(MIN_INTERVAL, nameless))

    def test_a_pool_that_cannot_be_read_is_left_alone(self) -> None:
        bad = pool("bad", spec("nonsense", at1=entry("gone")))
        assert () == orphaned_entries(look(0, bad), look(MIN_INTERVAL, bad))

    def test_far_ipv6_entries_are_released_too(self) -> None:
        far = pool("fd00---64", spec("fd00::/64", **{f"at{1 << 63}": entry("gone")}))
        assert ["fd00---64 fd00::8000:0:0:0"] == addresses(orphaned_entries(look(0, far), look(MIN_INTERVAL, far)))


class TestSlices:
    mine = pool("node1-10.0.0.0-24", spec("10.0.0.0/24", at1=entry("a"), at2=entry("b")), node="node1")

    def test_the_controller_does_not_judge_a_nodes_slice(self) -> None:
        """What the API server shows of it may lag behind the agent's journal."""
        assert () == orphaned_entries(look(0, self.mine), look(MIN_INTERVAL, self.mine))

    def test_a_foreign_plugins_slice_does_not_lag(self) -> None:
        foreign = pool("node1-10.0.0.0-24", self.mine.spec)
        assert 2 == len(orphaned_entries(look(0, foreign), look(MIN_INTERVAL, foreign)))


class TestOldSandboxes:
    """92: theirs orphaned_entries a living Pod's second entry from anywhere, by what the Pod shows of its addresses."""

    def test_they_are_nobodys_to_judge_from_afar(self) -> None:
        twice = spec("10.0.0.0/24", at1=entry("a", container="new"), at2=entry("a", container="old"))
        looks = [look(at, pool("10.0.0.0-24", twice), pods={"a": ALIVE}) for at in (0, MIN_INTERVAL)]
        assert () == orphaned_entries(*looks)


class TestReservations:
    def test_93_those_of_pods_that_are_gone_go(self) -> None:
        reserved = {"10.0.0.1": "default/a", "fd00--1": "default/b", "10.0.0.3": "default/gone"}
        looks = [look(at, pods={"a": ALIVE, "b": ALIVE}, reserved=reserved) for at in (0, MIN_INTERVAL)]
        assert ["10.0.0.3"] == [each.metadata.name for each in orphaned_reservations(*looks)]

    @pytest.mark.parametrize("name", ["tenant-10.10.10.1", "2001--0", "tenant-fd00--1"])
    def test_none_of_a_live_pod_whatever_its_name(self, name: str) -> None:
        """Theirs deletes every one of a named network, and of an address that ends in `::`."""
        looks = [look(at, pods={"a": ALIVE}, reserved={name: "default/a"}) for at in (0, MIN_INTERVAL)]
        assert () == orphaned_reservations(*looks)

    def test_none_that_is_new_or_changed_or_was_seen_a_moment_ago(self) -> None:
        one, other = {"10.0.0.1": "default/gone"}, {"10.0.0.1": "default/other"}
        assert () == orphaned_reservations(look(0), look(MIN_INTERVAL, reserved=one))
        assert () == orphaned_reservations(look(0, reserved=other), look(MIN_INTERVAL, reserved=one))
        assert () == orphaned_reservations(look(0, reserved=one), look(MIN_INTERVAL - 1, reserved=one))


seen_pod = st.builds(ObservedPod, finished=st.booleans())
pods_seen = st.fixed_dictionaries({}, optional=dict.fromkeys("ab", seen_pod))


@given(pods_seen, pods_seen, st.floats(0, 200))
def test_nothing_of_a_live_pod_is_released(
    before: dict[str, ObservedPod], after: dict[str, ObservedPod], seconds: float
) -> None:
    first, second = (look(at, shared, pods=pods) for at, pods in ((0, before), (seconds, after)))
    for each in orphaned_entries(first, second):
        assert each.change.before is not None
        name = each.change.before.podref.removeprefix("default/")
        assert seconds >= MIN_INTERVAL
        assert all(name not in pods or pods[name].finished for pods in (before, after))

"""The node's pool: transitions of grants by records."""

import msgspec
import pytest

from podpool.agent.grant_table import TRANSITIONS, GrantState, InvalidTransition
from podpool.agent.pool import Pool
from podpool.agent.records import (
    AnyRecord,
    Assigned,
    CooldownForced,
    GrantAssignment,
    LostGrantsCleared,
    NCAccepted,
    NCAdopted,
    PoolGrant,
    ReleasePending,
    Snapshot,
    Started,
    Stopped,
    Unassigned,
)
from podpool.api.azure import NetworkContainer
from podpool.cni.protocol import Attachment
from podpool.core.cooldown_levels import CooldownInForce
from tests.agent.nc_samples import NC, grants, status

COOLDOWN = 30.0
A, B, C = (Attachment(container_id=each, ifname="eth0") for each in "abc")


def started(*, boot_id: str = "boot-1", at: float = 0.0, damaged: bool = False) -> Started:
    return Started(boot_id=boot_id, boot=at, wall=1000.0 + at, damaged=damaged)


def release(*grant_ids: str) -> ReleasePending:
    return ReleasePending(grants=grant_ids, version=1, boot_id="boot-1")


def accepted(nc: NetworkContainer, *, at: float = 0.0) -> NCAccepted:
    return NCAccepted(nc=nc, at=at)


def pool_of(*numbers: int) -> Pool:
    return after(Pool(), started(), NCAdopted(nc=NC), accepted(status(1, grants(*numbers))))


def after(pool: Pool, *records: AnyRecord) -> Pool:
    for record in records:
        pool.apply(record)
    return pool


def assign(
    pool: Pool, attachment: Attachment, *, now: float = 0.0, cooldown: float = COOLDOWN, shortest: float | None = None
) -> str | None:
    least = cooldown if shortest is None else shortest
    grant = pool.next_available(now=now, cooldown=CooldownInForce(level=cooldown, retention=cooldown, shortest=least))
    if grant:
        pool.apply(Assigned(grant=grant.id, attachment=attachment))
    return grant.id if grant else None


class TestAssign:
    def test_first_in_first_out(self) -> None:
        pool = pool_of(1, 2)
        pool.apply(accepted(status(2, grants(1, 2, 3)), at=5.0))
        assert ["g1", "g2", "g3", None] == [
            assign(pool, Attachment(container_id=c, ifname="eth0"), now=9.0) for c in "abcd"
        ]

    def test_the_order_in_a_snapshot_does_not_shorten_a_cooldown(self) -> None:
        uses = {"g1": 50.0, "g2": 10.0, "g3": 30.0}
        used = tuple(PoolGrant(id=each, address="10.0.0.9", since=at, used=True) for each, at in uses.items())
        pool = after(Pool(), Snapshot(boot_id="boot-1", adopted_nc=NC, nc=status(1, grants(1, 2, 3)), used=used))
        assert ["g3", "g1"] == [each.id for each in pool.cooling_down(now=45.0, cooldown=COOLDOWN)]
        assert 60.0 == pool.next_cooled_down(now=45.0, cooldown=COOLDOWN)
        assert ["g2", "g3", None] == [assign(pool, each, now=60.0) for each in (A, B, C)]

    def test_a_used_address_cools_down_before_it_is_assigned_again(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        pool.apply(Unassigned(grant="g1", at=10.0))
        assert None is assign(pool, B, now=39.9)
        assert GrantState.COOLING_DOWN is pool.state_of("g1", now=39.9, cooldown=COOLDOWN)
        assert 40.0 == pool.next_cooled_down(now=39.9, cooldown=COOLDOWN)
        assert "g1" == assign(pool, B, now=40.0)

    def test_the_cooldown_in_force_decides(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        pool.apply(Unassigned(grant="g1", at=10.0))
        assert "g1" == assign(pool, B, now=15.0, cooldown=5.0)

    def test_without_another_the_one_used_longest_ago_is_assigned_after_the_shortest_cooldown(self) -> None:
        pool = pool_of(1, 2)
        assign(pool, A)
        assign(pool, B)
        after(pool, Unassigned(grant="g2", at=10.0), Unassigned(grant="g1", at=11.0))
        assert None is assign(pool, C, now=14.9, cooldown=130.0, shortest=5.0)
        assert "g2" == assign(pool, C, now=16.0, cooldown=130.0, shortest=5.0)

    def test_an_unused_address_comes_before_one_that_cools_down(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        pool.apply(Unassigned(grant="g1", at=10.0))
        pool.apply(accepted(status(2, grants(1, 2)), at=100.0))
        assert "g2" == assign(pool, B, now=101.0, cooldown=130.0, shortest=5.0)

    def test_the_longest_available_is_assigned_first_used_or_not(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        pool.apply(Unassigned(grant="g1", at=10.0))
        pool.apply(accepted(status(2, grants(1, 2)), at=41.0))
        assert "g1" == assign(pool, B, now=50.0)
        assert "g2" == assign(pool, C, now=50.0)

    def test_a_new_sandbox_of_the_same_pod_is_another_attachment(self) -> None:
        pool = pool_of(1, 2)
        assign(pool, A)
        assign(pool, B)
        pool.apply(Unassigned(grant="g1", at=1.0))
        assert () == pool.assignments_of(A)
        (assignment,) = pool.assignments_of(B)
        assert "g2" == assignment.grant.id


class TestTransitions:
    def test_the_table_has_every_state_and_pending_release_is_final(self) -> None:
        assert set(GrantState) == set(TRANSITIONS)
        assert not TRANSITIONS[GrantState.PENDING_RELEASE]

    def test_a_grant_goes_through_its_states(self) -> None:
        pool, states = pool_of(1), []
        for record in (Assigned(grant="g1", attachment=A), Unassigned(grant="g1", at=0.0), release("g1")):
            pool.apply(record)
            states.append(pool.state_of("g1", now=0.0, cooldown=COOLDOWN))
        assert [GrantState.ASSIGNED, GrantState.COOLING_DOWN, GrantState.PENDING_RELEASE] == states
        assert None is pool.state_of("unknown", now=0.0, cooldown=COOLDOWN)

    def test_a_grant_that_is_not_programmed_is_pending_programming(self) -> None:
        pool = after(
            Pool(lambda _nc, version: version == 0), started(), NCAdopted(nc=NC), accepted(status(1, grants(1)))
        )
        assert GrantState.PENDING_PROGRAMMING is pool.state_of("g1", now=0.0, cooldown=COOLDOWN)

    def test_other_transitions_are_refused(self) -> None:
        pool = after(pool_of(1), release("g1"))
        with pytest.raises(InvalidTransition, match="g1 is PendingRelease and cannot become Assigned"):
            pool.grants.assign([GrantAssignment(grant=pool.pending_release["g1"], attachment=A)])


class TestStatus:
    def test_only_the_own_nc_is_accepted(self) -> None:
        assert not pool_of(1).accepts(status(9, grants(1, 2), nc="nc-2"))

    def test_lower_and_equal_versions_are_not_accepted(self) -> None:
        pool = after(pool_of(1), accepted(status(5, grants(1, 2))))
        assert not pool.accepts(status(4, grants(1)))
        assert not pool.accepts(status(5, grants(1, 2)))
        assert pool.accepts(status(6, grants(1)))

    def test_at_one_version_the_answer_may_change_but_not_the_grants(self) -> None:
        pool = pool_of(1)
        short = status(1, grants(1, 2), answer="NCUpdateSubnetFullError")
        assert pool.accepts(short)
        pool.apply(accepted(short))
        assert "NCUpdateSubnetFullError" == (pool.nc and pool.nc.status)
        assert not pool.holds("g2")

    def test_an_invalid_address_is_unusable_and_the_others_are_not(self) -> None:
        listed = {**grants(1), "bad": "10.0.0.999", "other-family": "fd00::1", "twin": "10.0.1.1"}
        pool = after(Pool(), started(), NCAdopted(nc=NC), accepted(status(1, listed)))
        assert {"bad", "other-family", "twin"} == set(pool.unusable)
        assert "g1" == assign(pool, A)
        assert None is assign(pool, B)

    def test_an_assigned_grant_that_the_status_omits_is_revoked_and_never_assigned_again(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        pool.apply(accepted(status(2, {})))
        (assignment,) = pool.assignments_of(A)
        assert assignment.revoked
        pool.apply(Unassigned(grant="g1", at=5.0))
        assert None is assign(pool, B, now=1000.0)

    def test_revoked_and_listed_again_it_is_pending_release_after_its_use(self) -> None:
        pool = after(pool_of(1))
        assign(pool, A)
        after(pool, accepted(status(2, {})), accepted(status(3, grants(1))), Unassigned(grant="g1", at=5.0))
        assert ["g1"] == list(pool.pending_release)

    def test_an_address_in_use_is_not_assigned_under_another_grant_id(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        pool.apply(accepted(status(2, {"new": "10.0.1.1"})))
        assert None is assign(pool, B)
        pool.apply(Unassigned(grant="g1", at=10.0))
        assert None is assign(pool, B, now=39.0)
        assert "new" == assign(pool, B, now=40.0)

    def test_an_address_that_left_while_cooling_down_cools_down_under_its_new_grant_id(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        after(
            pool,
            Unassigned(grant="g1", at=10.0),
            accepted(status(2, {})),
            accepted(status(3, {"n": "10.0.1.1"}), at=12.0),
        )
        assert None is assign(pool, B, now=39.0)
        assert "n" == assign(pool, B, now=40.0)

    def test_a_former_nc_is_closed_and_its_grants_are_not_assigned(self) -> None:
        pool = pool_of(1, 2)
        assign(pool, A)
        pool.apply(NCAdopted(nc="nc-2"))
        assert {NC} == pool.closed_ncs
        assert None is assign(pool, B)
        (assignment,) = pool.assignments_of(A)
        assert assignment.revoked
        assert pool.accepts(status(0, grants(7), nc="nc-2"))


class TestRelease:
    def test_never_used_are_released_first_then_longest_cooled_down_and_cooling_down_never(self) -> None:
        pool = pool_of(1, 2, 3, 4)
        for attachment in (A, B, C):
            assign(pool, attachment)
        after(pool, *(Unassigned(grant=each, at=at) for each, at in (("g2", 10.0), ("g1", 20.0), ("g3", 90.0))))
        assert ["g4", "g2", "g1"] == [each.id for each in pool.releasable(now=100.0, cooldown=COOLDOWN)]

    def test_of_two_families_the_larger_is_released_first_until_they_are_even(self) -> None:
        mixed = {**grants(1, 2), **{f"six-{number}": f"fd00::{number}" for number in range(1, 5)}}
        both = msgspec.structs.replace(status(1, mixed), subnet_address_space_v6="fd00::/64")
        pool = after(Pool(), started(), NCAdopted(nc=NC), accepted(both))
        released = [each.id for each in pool.releasable(now=100.0, cooldown=COOLDOWN)]
        assert ["six-4", "six-3"] == released[:2]
        assert [{"six-2", "g2"}, {"six-1", "g1"}] == [set(released[2:4]), set(released[4:])]

    def test_pending_release_is_final_and_leaves_only_on_a_newer_status_without_it(self) -> None:
        pool = after(pool_of(1, 2), release("g1"))
        assert "g2" == assign(pool, A)
        assert None is assign(pool, B)
        pool.apply(accepted(status(1, {}, answer="NCUpdateFailed")))
        pool.apply(accepted(status(2, grants(1, 2))))
        assert ["g1"] == list(pool.pending_release)
        pool.apply(accepted(status(3, grants(2))))
        assert [] == list(pool.pending_release)

    def test_a_grant_in_use_released_by_a_third_party_is_pending_release_after_its_use(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        after(pool, release("g1"), Unassigned(grant="g1", at=1.0))
        assert ["g1"] == list(pool.pending_release)
        assert None is assign(pool, B, now=1000.0)

    def test_the_most_recently_used_pending_release_defines_how_long_all_have_cooled_down(self) -> None:
        pool = pool_of(1, 2, 3)
        assign(pool, A)
        assign(pool, B)
        after(pool, Unassigned(grant="g1", at=10.0), Unassigned(grant="g2", at=20.0), release("g3"))
        assert None is pool.pending_release_cooled(now=60.0)
        pool.apply(release("g1", "g2"))
        assert 40.0 == pool.pending_release_cooled(now=60.0)

    def test_recently_used_includes_addresses_that_left_the_node(self) -> None:
        pool = pool_of(1, 2)
        assign(pool, A)
        after(pool, Unassigned(grant="g1", at=10.0), release("g1"), accepted(status(2, grants(2)), at=20.0))
        assert [10.0] == pool.recent_uses(now=39.0, cooldown=COOLDOWN)
        assert [] == pool.recent_uses(now=40.0, cooldown=COOLDOWN)


class TestRestart:
    def test_a_restart_in_the_same_boot_changes_nothing(self) -> None:
        pool = pool_of(1, 2)
        assign(pool, A)
        pool.apply(started(at=7.0))
        assert pool.assignments_of(A)
        assert "g2" == assign(pool, B, now=7.0)

    def test_a_reboot_unassigns_all_and_starts_their_cooldown(self) -> None:
        pool = pool_of(1, 2)
        assign(pool, A)
        after(pool, Stopped(), started(boot_id="boot-2", at=3.0))
        assert () == pool.assignments_of(A)
        assert "g2" == assign(pool, B, now=3.0)
        assert None is assign(pool, C, now=32.9)
        assert "g1" == assign(pool, C, now=33.0)

    @pytest.mark.parametrize("clean", [False, True])
    def test_only_what_was_in_use_is_demand_after_a_reboot(self, clean: bool) -> None:
        """Idle addresses that cool down in case of unrecorded use must not make the node request others."""
        pool = pool_of(1, 2, 3)
        assign(pool, A)
        assign(pool, B)
        after(pool, Unassigned(grant="g2", at=1.0), *([Stopped()] if clean else []), started(boot_id="boot-2", at=3.0))
        assert 1 == sum(not each.use_assumed for each in pool.cooling_down(now=3.0, cooldown=COOLDOWN))

    def test_pending_release_and_version_survive_a_reboot(self) -> None:
        pool = after(pool_of(1, 2), release("g1"), started(boot_id="boot-2"))
        assert ["g1"] == list(pool.pending_release)
        assert 1 == pool.version

    def test_without_a_clean_shutdown_every_address_cools_down_once(self) -> None:
        pool = after(pool_of(1, 2), started(boot_id="boot-2", at=3.0))
        assert None is assign(pool, A, now=32.9)
        assert "g1" == assign(pool, A, now=33.0)

    def test_and_so_does_what_a_later_status_adds(self) -> None:
        """The lost tail may have accepted a status and assigned an address of it."""
        pool = after(pool_of(1), started(boot_id="boot-2", at=3.0), accepted(status(2, grants(1, 2)), at=20.0))
        assert None is assign(pool, A, now=32.9)
        assert ["g1", "g2"] == [assign(pool, A, now=33.0), assign(pool, B, now=33.0)]

    def test_a_clean_shutdown_counts_only_for_the_next_start(self) -> None:
        pool = after(pool_of(1), Stopped(), started(at=5.0), started(boot_id="boot-2", at=3.0))
        assert None is assign(pool, A, now=3.0)

    @pytest.mark.parametrize("before", [(), (started(at=5.0, damaged=True),)])
    def test_a_forced_cooldown_covers_all_free_addresses_and_keeps_assignments(
        self, before: tuple[AnyRecord, ...]
    ) -> None:
        pool = pool_of(1, 2)
        assign(pool, A)
        after(pool, *before, CooldownForced(at=9.0))
        assert pool.assignments_of(A)
        assert None is assign(pool, B, now=38.9)
        assert "g2" == assign(pool, B, now=39.0)

    def test_a_forced_cooldown_covers_addresses_that_left_before(self) -> None:
        """The lost tail may have listed and assigned them again."""
        pool = pool_of(1)
        assign(pool, A)
        after(
            pool,
            Unassigned(grant="g1", at=1.0),
            accepted(status(2, {})),
            CooldownForced(at=9.0),
            accepted(status(3, {"n": "10.0.1.1"}), at=12.0),
        )
        assert None is assign(pool, B, now=38.9)
        assert "n" == assign(pool, B, now=39.0)

    def test_lost_grants_are_neither_assigned_nor_released_until_cleared_and_cooled_down(self) -> None:
        pool = after(pool_of(1, 2), CooldownForced(at=1.0, lost=("g1", "g2")))
        assert None is assign(pool, A, now=1000.0)
        assert [] == list(pool.releasable(now=1000.0, cooldown=30.0))
        pool.apply(LostGrantsCleared(grants=("g2",), at=1000.0))
        assert None is assign(pool, A, now=1029.9)
        assert "g2" == assign(pool, A, now=1030.0)
        assert ["g1"] == [each.id for each in pool.unassigned_lost()]

    def test_a_lost_grant_with_a_recorded_user_stays_lost_after_that_user(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        pool.apply(CooldownForced(at=1.0, lost=("g1",)))
        assert [] == list(pool.unassigned_lost())
        pool.apply(Unassigned(grant="g1", at=2.0))
        assert None is assign(pool, B, now=1000.0)
        assert ["g1"] == [each.id for each in pool.unassigned_lost()]

    def test_a_damaged_journal_is_incomplete_until_a_forced_cooldown_or_a_reboot(self) -> None:
        for end in (CooldownForced(at=2.0), Started(boot_id="boot-2", boot=0.0, wall=0.0)):
            pool = after(pool_of(1), Started(boot_id=pool_of(1).boot_id, boot=1.0, wall=1.0, damaged=True))
            assert after(Pool(), pool.snapshot()).incomplete
            assert None is assign(pool, A, now=1000.0)
            assert [] == list(pool.releasable(now=1000.0, cooldown=30.0))
            pool.apply(Started(boot_id=pool.boot_id, boot=1.5, wall=1.5))
            assert pool.incomplete
            assert not after(pool, end).incomplete

    def test_so_is_an_nc_with_possible_unrecorded_use(self) -> None:
        pool = after(pool_of(1), NCAdopted(nc="another", incomplete=True), started(at=1.0))
        assert pool.incomplete
        assert not after(pool, CooldownForced(at=2.0)).incomplete

    def test_a_snapshot_keeps_lost_grants_and_a_reboot_clears_them(self) -> None:
        pool = after(Pool(), after(pool_of(1), CooldownForced(at=1.0, lost=("g1",))).snapshot())
        assert {"g1"} == pool.lost
        assert "g1" == assign(after(pool, started(boot_id="boot-2", at=3.0)), A, now=33.0)

    def test_lost_grants_of_an_nc_that_is_listed_later_stay_lost(self) -> None:
        pool = after(pool_of(), CooldownForced(at=1.0, lost=("g1", "b1")), accepted(status(2, grants(1))))
        pool.apply(accepted(status(1, {"b1": "10.0.2.1"}, nc="nc-2")))
        assert {"g1", "b1"} == {each.id for each in pool.unassigned_lost()}
        pool.apply(accepted(status(3, {})))
        assert {"b1"} == pool.lost

    def test_a_snapshot_restores_unusable_grants(self) -> None:
        pool = pool_of(1)
        assign(pool, A)
        pool.apply(accepted(status(2, {"new": "10.0.1.1"})))
        again = after(Pool(), pool.snapshot())
        assert ["new"] == list(again.unusable)
        assert pool.snapshot() == again.snapshot()

    def test_on_the_first_start_nothing_cools_down(self) -> None:
        assert "g1" == assign(pool_of(1), A)

"""The node's grants, and who has which."""

import msgspec
import pytest

from podpool.agent.pool import Pool
from podpool.agent.records import (
    Accepted,
    Adopted,
    AnyRecord,
    Assigned,
    Doubted,
    Named,
    Owner,
    Recalled,
    Released,
    Started,
    Stopped,
)
from podpool.api.azure import NetworkContainer
from tests.agent.statuses import CONTAINER, grants, status

REST = 30.0
A, B, C = (Owner(container_id=each, ifname="eth0") for each in "abc")


def started(*, boot_id: str = "boot-1", at: float = 0.0, damaged: bool = False) -> Started:
    return Started(boot_id=boot_id, boot=at, wall=1000.0 + at, damaged=damaged)


def named(*names: str) -> Named:
    return Named(grants=names, version=1, boot_id="boot-1")


def accepted(told: NetworkContainer, *, at: float = 0.0) -> Accepted:
    return Accepted(container=told, at=at)


def pool_of(*numbers: int) -> Pool:
    return after(Pool(), started(), Adopted(container=CONTAINER), accepted(status(1, grants(*numbers))))


def after(pool: Pool, *records: AnyRecord) -> Pool:
    for record in records:
        pool.apply(record)
    return pool


def take(pool: Pool, owner: Owner, *, now: float = 0.0, rest: float = REST) -> str | None:
    free = pool.next_free(now=now, rest=rest)
    if free:
        pool.apply(Assigned(grant=free.id, owner=owner))
    return free.id if free else None


class TestGiving:
    def test_first_in_first_out(self) -> None:
        pool = pool_of(1, 2)
        pool.apply(accepted(status(2, grants(1, 2, 3)), at=5.0))
        assert ["g1", "g2", "g3", None] == [take(pool, Owner(container_id=c, ifname="eth0"), now=9.0) for c in "abcd"]

    def test_an_address_that_was_used_rests_before_it_is_given_again(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        pool.apply(Released(grant="g1", at=10.0))
        assert None is take(pool, B, now=39.9)
        assert 1 == pool.resting(now=39.9, rest=REST)
        assert 40.0 == pool.rested_next(now=39.9, rest=REST)
        assert "g1" == take(pool, B, now=40.0)

    def test_the_cooldown_in_force_decides(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        pool.apply(Released(grant="g1", at=10.0))
        assert "g1" == take(pool, B, now=15.0, rest=5.0)

    def test_free_for_longest_comes_first_used_or_not(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        pool.apply(Released(grant="g1", at=10.0))
        pool.apply(accepted(status(2, grants(1, 2)), at=41.0))
        assert "g1" == take(pool, B, now=50.0)
        assert "g2" == take(pool, C, now=50.0)

    def test_a_new_sandbox_of_the_same_pod_is_another_owner(self) -> None:
        pool = pool_of(1, 2)
        take(pool, A)
        take(pool, B)
        pool.apply(Released(grant="g1", at=1.0))
        assert () == pool.holdings_of(A)
        (held,) = pool.holdings_of(B)
        assert "g2" == held.grant.id


class TestStatuses:
    def test_only_the_own_container_is_believed(self) -> None:
        assert not pool_of(1).accepts(status(9, grants(1, 2), container="nc-2"))

    def test_a_lower_version_is_ignored_and_the_same_has_no_news(self) -> None:
        pool = after(pool_of(1), accepted(status(5, grants(1, 2))))
        assert not pool.accepts(status(4, grants(1)))
        assert not pool.accepts(status(5, grants(1, 2)))
        assert pool.accepts(status(6, grants(1)))

    def test_at_one_version_the_answer_may_change_but_not_the_grants(self) -> None:
        pool = pool_of(1)
        short = status(1, grants(1, 2), answer="NCUpdateSubnetFullError")
        assert pool.accepts(short)
        pool.apply(accepted(short))
        assert "NCUpdateSubnetFullError" == (pool.container and pool.container.status)
        assert not pool.knows("g2")

    def test_a_bad_address_is_left_out_and_the_others_are_not(self) -> None:
        told = {**grants(1), "bad": "10.0.0.999", "other-family": "fd00::1", "twin": "10.0.1.1"}
        pool = after(Pool(), started(), Adopted(container=CONTAINER), accepted(status(1, told)))
        assert {"bad", "other-family", "twin"} == set(pool.left_out)
        assert "g1" == take(pool, A)
        assert None is take(pool, B)

    def test_an_assigned_grant_that_the_status_drops_is_kept_and_never_given_again(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        pool.apply(accepted(status(2, {})))
        (held,) = pool.holdings_of(A)
        assert held.dropped
        pool.apply(Released(grant="g1", at=5.0))
        assert None is take(pool, B, now=1000.0)

    def test_dropped_and_listed_again_it_goes_back_after_its_release(self) -> None:
        pool = after(pool_of(1))
        take(pool, A)
        after(pool, accepted(status(2, {})), accepted(status(3, grants(1))), Released(grant="g1", at=5.0))
        assert ["g1"] == list(pool.named)

    def test_an_address_in_use_is_not_given_under_another_name(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        pool.apply(accepted(status(2, {"new": "10.0.1.1"})))
        assert None is take(pool, B)
        pool.apply(Released(grant="g1", at=10.0))
        assert None is take(pool, B, now=39.0)
        assert "new" == take(pool, B, now=40.0)

    def test_an_address_that_left_while_it_rested_goes_on_resting_under_its_new_name(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        after(
            pool,
            Released(grant="g1", at=10.0),
            accepted(status(2, {})),
            accepted(status(3, {"n": "10.0.1.1"}), at=12.0),
        )
        assert None is take(pool, B, now=39.0)
        assert "n" == take(pool, B, now=40.0)

    def test_a_container_that_was_given_up_is_closed_and_leaves_nothing_to_give(self) -> None:
        pool = pool_of(1, 2)
        take(pool, A)
        pool.apply(Adopted(container="nc-2"))
        assert {CONTAINER} == pool.closed
        assert None is take(pool, B)
        (held,) = pool.holdings_of(A)
        assert held.dropped
        assert pool.accepts(status(0, grants(7), container="nc-2"))


class TestNames:
    def test_never_used_go_first_then_longest_rested_and_resting_ones_never(self) -> None:
        pool = pool_of(1, 2, 3, 4)
        for owner in (A, B, C):
            take(pool, owner)
        after(pool, *(Released(grant=each, at=at) for each, at in (("g2", 10.0), ("g1", 20.0), ("g3", 90.0))))
        assert ["g4", "g2", "g1"] == [each.id for each in pool.releasable(now=100.0, rest=REST)]

    def test_of_two_families_the_one_with_more_goes_first_until_they_are_even(self) -> None:
        mixed = {**grants(1, 2), **{f"six-{number}": f"fd00::{number}" for number in range(1, 5)}}
        both = msgspec.structs.replace(status(1, mixed), subnet_address_space_v6="fd00::/64")
        pool = after(Pool(), started(), Adopted(container=CONTAINER), accepted(both))
        named = [each.id for each in pool.releasable(now=100.0, rest=REST)]
        assert ["six-4", "six-3"] == named[:2]
        assert [{"six-2", "g2"}, {"six-1", "g1"}] == [set(named[2:4]), set(named[4:])]

    def test_a_name_never_returns_and_is_dropped_only_on_a_newer_status_without_it(self) -> None:
        pool = after(pool_of(1, 2), named("g1"))
        assert "g2" == take(pool, A)
        assert None is take(pool, B)
        pool.apply(accepted(status(1, {}, answer="NCUpdateFailed")))
        pool.apply(accepted(status(2, grants(1, 2))))
        assert ["g1"] == list(pool.named)
        pool.apply(accepted(status(3, grants(2))))
        assert [] == list(pool.named)

    def test_a_grant_in_use_that_somebody_named_goes_back_when_its_pod_is_done(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        after(pool, named("g1"), Released(grant="g1", at=1.0))
        assert ["g1"] == list(pool.named)
        assert None is take(pool, B, now=1000.0)

    def test_the_most_recently_used_name_tells_for_how_long_all_have_rested(self) -> None:
        pool = pool_of(1, 2, 3)
        take(pool, A)
        take(pool, B)
        after(pool, Released(grant="g1", at=10.0), Released(grant="g2", at=20.0), named("g3"))
        assert None is pool.named_for(now=60.0)
        pool.apply(named("g1", "g2"))
        assert 40.0 == pool.named_for(now=60.0)

    def test_lately_used_counts_what_was_given_back_too(self) -> None:
        pool = pool_of(1, 2)
        take(pool, A)
        after(pool, Released(grant="g1", at=10.0), named("g1"), accepted(status(2, grants(2)), at=20.0))
        assert 1 == pool.used_lately(now=39.0, cooldown=REST)
        assert 0 == pool.used_lately(now=40.0, cooldown=REST)


class TestReboots:
    def test_a_restart_in_the_same_boot_changes_nothing(self) -> None:
        pool = pool_of(1, 2)
        take(pool, A)
        pool.apply(started(at=7.0))
        assert pool.holdings_of(A)
        assert "g2" == take(pool, B, now=7.0)

    def test_a_reboot_voids_assignments_which_rest_from_then_on(self) -> None:
        pool = pool_of(1, 2)
        take(pool, A)
        after(pool, Stopped(), started(boot_id="boot-2", at=3.0))
        assert () == pool.holdings_of(A)
        assert "g2" == take(pool, B, now=3.0)
        assert None is take(pool, C, now=32.9)
        assert "g1" == take(pool, C, now=33.0)

    @pytest.mark.parametrize("clean", [False, True])
    def test_only_what_was_in_use_is_demand_after_a_reboot(self, clean: bool) -> None:
        """Idle addresses that rest in doubt must not make the node ask for others in their place."""
        pool = pool_of(1, 2, 3)
        take(pool, A)
        take(pool, B)
        after(pool, Released(grant="g2", at=1.0), *([Stopped()] if clean else []), started(boot_id="boot-2", at=3.0))
        assert 1 == pool.resting(now=3.0, rest=REST)

    def test_names_and_version_outlive_a_reboot(self) -> None:
        pool = after(pool_of(1, 2), named("g1"), started(boot_id="boot-2"))
        assert ["g1"] == list(pool.named)
        assert 1 == pool.version

    def test_without_a_clean_stop_every_address_rests_once(self) -> None:
        pool = after(pool_of(1, 2), started(boot_id="boot-2", at=3.0))
        assert None is take(pool, A, now=32.9)
        assert "g1" == take(pool, A, now=33.0)

    def test_and_so_does_what_a_later_status_brings(self) -> None:
        """The lost tail may have taken in a status, and given an address of it."""
        pool = after(pool_of(1), started(boot_id="boot-2", at=3.0), accepted(status(2, grants(1, 2)), at=20.0))
        assert None is take(pool, A, now=32.9)
        assert ["g1", "g2"] == [take(pool, A, now=33.0), take(pool, B, now=33.0)]

    def test_a_clean_stop_counts_only_for_the_next_start(self) -> None:
        pool = after(pool_of(1), Stopped(), started(at=5.0), started(boot_id="boot-2", at=3.0))
        assert None is take(pool, A, now=3.0)

    @pytest.mark.parametrize("before", [(), (started(at=5.0, damaged=True),)])
    def test_in_doubt_all_rest_and_what_is_in_use_stays(self, before: tuple[AnyRecord, ...]) -> None:
        pool = pool_of(1, 2)
        take(pool, A)
        after(pool, *before, Doubted(at=9.0))
        assert pool.holdings_of(A)
        assert None is take(pool, B, now=38.9)
        assert "g2" == take(pool, B, now=39.0)

    def test_what_is_forgotten_is_neither_given_nor_named_until_it_is_recalled_and_has_rested(self) -> None:
        pool = after(pool_of(1, 2), Doubted(at=1.0, forgotten=("g1", "g2")))
        assert None is take(pool, A, now=1000.0)
        assert [] == list(pool.releasable(now=1000.0, rest=30.0))
        pool.apply(Recalled(grants=("g2",), at=1000.0))
        assert None is take(pool, A, now=1029.9)
        assert "g2" == take(pool, A, now=1030.0)
        assert ["g1"] == [each.id for each in pool.lost()]

    def test_what_a_sandbox_has_by_what_is_left_of_a_journal_may_be_anothers_when_it_ends(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        pool.apply(Doubted(at=1.0, forgotten=("g1",)))
        assert [] == list(pool.lost())
        pool.apply(Released(grant="g1", at=2.0))
        assert None is take(pool, B, now=1000.0)
        assert ["g1"] == [each.id for each in pool.lost()]

    def test_a_damaged_journal_is_suspect_until_it_is_doubted_or_the_machine_reboots(self) -> None:
        for end in (Doubted(at=2.0), Started(boot_id="boot-2", boot=0.0, wall=0.0)):
            pool = after(pool_of(1), Started(boot_id=pool_of(1).boot_id, boot=1.0, wall=1.0, damaged=True))
            assert after(Pool(), pool.snapshot()).suspect
            assert None is take(pool, A, now=1000.0)
            assert [] == list(pool.releasable(now=1000.0, rest=30.0))
            pool.apply(Started(boot_id=pool.boot_id, boot=1.5, wall=1.5))
            assert pool.suspect
            assert not after(pool, end).suspect

    def test_a_container_of_which_more_may_have_been_given_is_suspect_until_then_too(self) -> None:
        pool = after(pool_of(1), Adopted(container="another", suspect=True), started(at=1.0))
        assert pool.suspect
        assert not after(pool, Doubted(at=2.0)).suspect

    def test_a_snapshot_keeps_what_is_forgotten_and_a_reboot_ends_it(self) -> None:
        pool = after(Pool(), after(pool_of(1), Doubted(at=1.0, forgotten=("g1",))).snapshot())
        assert {"g1"} == pool.forgotten
        assert "g1" == take(after(pool, started(boot_id="boot-2", at=3.0)), A, now=33.0)

    def test_what_is_forgotten_of_a_container_that_is_shown_later_stays_so(self) -> None:
        pool = after(pool_of(), Doubted(at=1.0, forgotten=("g1", "b1")), accepted(status(2, grants(1))))
        pool.apply(accepted(status(1, {"b1": "10.0.2.1"}, container="beside")))
        assert {"g1", "b1"} == {each.id for each in pool.lost()}
        pool.apply(accepted(status(3, {})))
        assert {"b1"} == pool.forgotten

    def test_a_snapshot_brings_back_what_was_left_out(self) -> None:
        pool = pool_of(1)
        take(pool, A)
        pool.apply(accepted(status(2, {"new": "10.0.1.1"})))
        again = after(Pool(), pool.snapshot())
        assert ["new"] == list(again.left_out)
        assert pool.snapshot() == again.snapshot()

    def test_the_first_start_of_all_has_nothing_to_rest(self) -> None:
        assert "g1" == take(pool_of(1), A)

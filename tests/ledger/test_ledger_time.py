"""Clocks that are set: nothing ends sooner or later, whether the ledger runs, restarts or moves meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger.domain.rows import LedgerTimeRow
from podpool.ledger.domain.service import LedgerSettings
from podpool.ledger.messages import NetworkContainerState
from tests.ledger.harness import Leader, LedgerHarness, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")

MINUTE, DAY = 60.0, 86_400.0
STEPS = [MINUTE, DAY, 31 * DAY, -MINUTE, -DAY, -31 * DAY]
STARTS = ["running", "restarted", "rebooted"]

steps = pytest.mark.parametrize("step", STEPS)
starts = pytest.mark.parametrize("start", STARTS)


def set_clock(harness: LedgerHarness, step: float, *, start: str) -> LedgerHarness:
    """Set the clock of a ledger that runs, or that starts again afterwards; a reboot restarts the boot clock."""
    harness.clock.wall_error += step
    if start == "rebooted":
        harness.clock.booted_at = harness.clock.now
    if start == "running":
        harness.advance(0.0)
        return harness
    return harness.restore(harness.store.image())


@steps
@starts
def test_cooldown_neither_ends_sooner_nor_later(step: float, start: str) -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/29", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=30.0)
    leader = Leader(harness)
    state = leader.node(wanted=5)
    harness.advance(61.0)  # the time is stored
    leader.reconcile_one(item(state=state, released=ids(state)))
    harness = set_clock(harness, step, start=start)
    assert 0 == granted(leader.move_to(harness), state)
    harness.advance(29.0)
    assert 0 == granted(leader, state)
    harness.advance(62.0 if start == "rebooted" else 2.0)
    assert 5 == granted(leader, state)


def granted(leader: Leader, state: NetworkContainerState) -> int:
    return len(leader.reconcile_one(item(state=state, wanted=5)).grants)


@steps
@starts
def test_end_of_a_cooldown_notifies_waiting_ncs(step: float, start: str) -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/29", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=30.0)
    leader = Leader(harness)
    hog, guest = leader.node("hog", wanted=4), leader.node("guest")
    leader.reconcile_one(item("hog", hog, released=ids(hog)))
    leader.reconcile_one(item("guest", guest, wanted=2))
    harness = set_clock(harness, step, start=start)
    for _ in range(91):
        harness.advance(1.0)
    assert (guest.nc_id,) == leader.move_to(harness).reconcile(item("hog", hog)).servable


@pytest.mark.parametrize("step", [DAY, 31 * DAY])
@starts
def test_circuit_breaker_is_not_released(step: float, start: str) -> None:
    harness = LedgerHarness(settings=LedgerSettings(breaker=BreakerSettings(hold_seconds=DAY)))
    harness.subnet()
    leader = Leader(harness)
    states = [leader.node(f"n{number}") for number in range(8)]
    lost = [item(f"n{number}", state, node_gone=True) for number, state in enumerate(states)]
    assert all(result.error for result in leader.reconcile(*lost).results)
    harness = set_clock(harness, step, start=start)
    assert all(result.error for result in leader.move_to(harness).reconcile(*lost).results)
    harness.advance(DAY + 60.0)
    assert not any(result.error for result in leader.reconcile(*lost).results)


@steps
@starts
def test_history_is_kept_for_its_time(step: float, start: str) -> None:
    harness = LedgerHarness(settings=LedgerSettings(history_retention=30 * DAY))
    harness.subnet()
    leader = Leader(harness)
    state = leader.node(wanted=1)
    leader.reconcile_one(item(state=state, released=ids(state)))
    run(harness.ledger.maintain_history())
    harness = set_clock(harness, step, start=start)
    assert 2 == kept(harness)
    harness.advance(29 * DAY)
    assert 2 == kept(harness)
    harness.advance(2 * DAY)
    assert 1 == kept(harness), "the primary is still held"


def kept(harness: LedgerHarness) -> int:
    run(harness.ledger.maintain_history())
    return len(run(harness.client.history(node="n1")).periods)


@steps
@starts
def test_history_shows_the_wall_clock_of_each_time(step: float, start: str) -> None:
    harness = LedgerHarness()
    harness.subnet()
    leader = Leader(harness)
    before = harness.state().timestamp
    state = leader.node("n1")
    harness.advance(61.0)
    harness = set_clock(harness, step, start=start)
    leader.move_to(harness)
    after = harness.state().timestamp
    leader.node("n2")
    found = [run(harness.client.history(node=node)).periods[0].since for node in ("n1", "n2")]
    assert [before, after] == found
    assert [state.primary] == [period.address for period in run(harness.client.history(node="n1", at=before)).periods]


def test_time_passes_while_the_ledger_does_not_run() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/29", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=30.0)
    leader = Leader(harness)
    state = leader.node(wanted=5)
    leader.reconcile_one(item(state=state, released=ids(state)))
    harness.clock.now += 31.0
    assert 5 == granted(leader.move_to(harness.restore(harness.store.image())), state)


@given(st.lists(st.tuples(st.integers(1, 1_000), st.integers(-5_000, 5_000)), max_size=6), st.integers(0, 5_000))
def test_time_of_what_the_wall_clock_shows_is_one_of_the_times_that_showed_it(
    changes: list[tuple[int, int]], time: int
) -> None:
    since, offsets = 0.0, []
    for seconds, offset in changes:
        since += seconds
        offsets.append((since, offset))
    row = LedgerTimeRow(offsets=tuple(offsets))
    found = row.time_of(row.wall_at(time))
    assert found >= time
    assert row.wall_at(time) == row.wall_at(found)

"""Who is served when a subnet is short."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.ledger.domain.fair_queue import SKIPPED, Waiter, fair_shares
from podpool.ledger.messages import DemandReport, NetworkContainerState
from tests.ledger.harness import Leader, LedgerHarness, ids, item

pytestmark = pytest.mark.usefixtures("backend")


@st.composite
def lines(draw: st.DrawFn) -> list[Waiter]:
    since = st.integers(0, 5).map(float) | st.just(SKIPPED)
    amounts = st.integers(0, 4)
    return [
        Waiter(
            nc=number,
            pod_shortage=(pod_shortage := draw(amounts)),
            pod_short_since=draw(since) if pod_shortage else None,
            buffer_shortage=(buffer_shortage := draw(amounts)),
            buffer_short_since=draw(since) if buffer_shortage else None,
            requesting=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


@given(lines(), st.integers(0, 20))
def test_no_more_is_promised_than_is_free(asks: list[Waiter], free: int) -> None:
    given_ = fair_shares(asks, free)
    firm = {ask.nc for ask in asks if ask.requesting or SKIPPED not in (ask.pod_short_since, ask.buffer_short_since)}
    assert sum(share for container, share in given_.items() if container in firm) <= free
    assert all(given_[ask.nc] <= ask.pod_shortage + ask.buffer_shortage for ask in asks if ask.nc in given_)


@given(lines(), st.integers(0, 20))
def test_nothing_stays_while_somebody_here_is_short_and_nobody_is_ahead(asks: list[Waiter], free: int) -> None:
    alone = [ask for ask in asks if ask.requesting]
    wanted = sum(ask.pod_shortage + ask.buffer_shortage for ask in alone)
    assert min(free, wanted) == sum(fair_shares(alone, free).values())


@given(lines(), st.integers(0, 20))
def test_no_buffer_is_filled_while_a_pod_waits(asks: list[Waiter], free: int) -> None:
    given_ = fair_shares(asks, free)
    waiting = [ask for ask in asks if ask.pod_shortage and ask.pod_short_since != SKIPPED]
    if any(given_.get(ask.nc, 0) < ask.pod_shortage for ask in waiting):
        assert all(given_.get(ask.nc, 0) <= ask.pod_shortage for ask in asks)


@given(lines(), st.integers(0, 20))
def test_among_waiting_pods_who_came_first_is_served_first(asks: list[Waiter], free: int) -> None:
    given_ = fair_shares(asks, free)
    line = [
        ask for ask in asks if ask.pod_shortage and ask.pod_short_since is not None and ask.pod_short_since < SKIPPED
    ]
    line.sort(key=lambda ask: (ask.pod_short_since, ask.nc))
    served = [min(given_.get(ask.nc, 0), ask.pod_shortage) for ask in line]
    assert all(
        before == ask.pod_shortage or not after for ask, (before, after) in zip(line, pairwise(served), strict=False)
    )


@pytest.fixture
def harness() -> LedgerHarness:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    return harness


def crowd(leader: Leader, *names: str) -> list[NetworkContainerState]:
    """Open containers, and let the first one take all that is left."""
    first, *others = [leader.node(name) for name in names]
    hog = leader.reconcile_one(item(names[0], first, wanted=14 - len(names)))
    assert 0 == hog.shortage
    return [hog, *others]


def let_go(leader: Leader, hog: NetworkContainerState, count: int) -> None:
    leader.reconcile_one(item("hog", hog, wanted=len(hog.grants) - count, released=ids(hog)[:count]))


def ask(leader: Leader, name: str, state: NetworkContainerState, wanted: int, *, waiting: int = 0) -> int:
    """Ask for a container; tell how many it is short of."""
    return leader.reconcile_one(item(name, state, wanted=wanted, report=DemandReport(waiting=waiting))).shortage


def test_what_is_freed_is_set_aside_for_who_came_first_and_they_are_told(harness: LedgerHarness) -> None:
    leader, other = Leader(harness, "c1"), Leader(harness, "c2")
    second = other.node("second")
    first = leader.node("first")
    hog = leader.node("hog", wanted=11)
    assert 2 == ask(leader, "first", first, 2)
    harness.clock.now += 1
    assert 2 == ask(other, "second", second, 2)
    answer = leader.reconcile(item("hog", hog, wanted=8, released=ids(hog)[:3]))
    assert (first.nc_id,) == answer.servable
    assert 1 == ask(other, "second", second, 2)
    assert 0 == ask(leader, "first", first, 2)


def test_a_waiting_pod_comes_before_a_buffer_that_waited_longer(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    hog, buffer, pod = crowd(leader, "hog", "buffer", "pod")
    assert 2 == ask(leader, "buffer", buffer, 2)
    harness.clock.now += 1
    assert 2 == ask(leader, "pod", pod, 2, waiting=1)
    let_go(leader, hog, 1)
    assert 2 == ask(leader, "buffer", buffer, 2)
    assert 1 == ask(leader, "pod", pod, 2, waiting=1)


def test_a_waiting_pod_comes_before_a_buffer_of_the_same_call(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    hog, buffer, pod = crowd(leader, "hog", "buffer", "pod")
    let_go(leader, hog, 2)
    answer = leader.reconcile(
        item("buffer", buffer, wanted=3), item("pod", pod, wanted=3, report=DemandReport(waiting=2))
    )
    assert [3, 1] == [result.state.shortage for result in answer.results if result.state]


def test_the_place_in_the_line_is_kept_over_repeated_calls(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    hog, first, second = crowd(leader, "hog", "first", "second")
    ask(leader, "first", first, 1)
    harness.clock.now += 1
    ask(leader, "second", second, 1)
    for _ in range(3):
        harness.clock.now += 1
        ask(leader, "first", first, 1)
    let_go(leader, hog, 1)
    assert 1 == ask(leader, "second", second, 1)
    assert 0 == ask(leader, "first", first, 1)


def test_who_is_told_and_does_not_come_lets_the_turn_pass(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    hog, absent, present = crowd(leader, "hog", "absent", "present")
    ask(leader, "absent", absent, 1, waiting=1)
    harness.clock.now += 1
    ask(leader, "present", present, 1, waiting=1)
    let_go(leader, hog, 1)
    assert 1 == ask(leader, "present", present, 1, waiting=1)
    harness.advance(31.0)
    assert 0 == ask(leader, "present", present, 1, waiting=1)
    assert 1 == ask(leader, "absent", absent, 1, waiting=1)


def test_who_let_the_turn_pass_is_still_told_when_there_is_room(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    hog, absent, other = crowd(leader, "hog", "absent", "other")
    ask(leader, "absent", absent, 1)
    let_go(leader, hog, 1)
    harness.advance(31.0)
    assert (absent.nc_id,) == leader.reconcile(item("other", other)).servable
    assert 0 == ask(leader, "absent", absent, 1)


def test_one_that_is_gone_or_wants_no_more_stands_in_nobody_s_way(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    hog, gone, content, last = crowd(leader, "hog", "gone", "content", "last")
    for name, state in (("gone", gone), ("content", content), ("last", last)):
        ask(leader, name, state, 1)
    leader.reconcile(item("gone", gone, node_gone=True), item("content", content, wanted=0))
    let_go(leader, hog, 1)
    assert 0 == ask(leader, "last", last, 1)
    assert (0, 0) == (harness.state().waiting, harness.state().waiting_for_buffer)


def test_nothing_is_set_aside_for_one_that_goes_in_the_same_call(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    _, going, staying = crowd(leader, "hog", "going", "staying")
    ask(leader, "going", going, 3)
    first, second = leader.reconcile(item("going", going, node_gone=True), item("staying", staying, wanted=1)).results
    assert first.state is not None
    assert second.state is not None
    assert (True, 0) == (first.state.closed, second.state.shortage)


def test_the_same_words_again_change_nothing(harness: LedgerHarness) -> None:
    """A report counts those who waited when it was written: what was given since is not asked for twice."""
    leader = Leader(harness)
    hog, guest = crowd(leader, "hog", "guest")
    let_go(leader, hog, 2)
    assert 4 == ask(leader, "guest", guest, 6, waiting=3)
    state = harness.state()
    assert (1, 3) == (state.waiting, state.waiting_for_buffer)
    assert 4 == ask(leader, "guest", guest, 6, waiting=3)
    assert state == harness.state()
    assert 4 == ask(leader, "guest", guest, 6, waiting=4)
    assert (4, 0) == (harness.state().waiting, harness.state().waiting_for_buffer), "another report is news"

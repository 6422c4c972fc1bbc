"""Who is served when a subnet is short."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.ledger.domain.fair_queue import PASSED, Ask, shares
from podpool.ledger.messages import ContainerState, Report
from tests.ledger.offices import Leader, Office, ids, item

pytestmark = pytest.mark.usefixtures("books")


@st.composite
def lines(draw: st.DrawFn) -> list[Ask]:
    since = st.integers(0, 5).map(float) | st.just(PASSED)
    amounts = st.integers(0, 4)
    return [
        Ask(
            container=number,
            need=(need := draw(amounts)),
            need_since=draw(since) if need else None,
            wish=(wish := draw(amounts)),
            wish_since=draw(since) if wish else None,
            here=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


@given(lines(), st.integers(0, 20))
def test_no_more_is_promised_than_is_free(asks: list[Ask], free: int) -> None:
    given_ = shares(asks, free)
    firm = {ask.container for ask in asks if ask.here or PASSED not in (ask.need_since, ask.wish_since)}
    assert sum(share for container, share in given_.items() if container in firm) <= free
    assert all(given_[ask.container] <= ask.need + ask.wish for ask in asks if ask.container in given_)


@given(lines(), st.integers(0, 20))
def test_nothing_stays_while_somebody_here_is_short_and_nobody_is_ahead(asks: list[Ask], free: int) -> None:
    alone = [ask for ask in asks if ask.here]
    wanted = sum(ask.need + ask.wish for ask in alone)
    assert min(free, wanted) == sum(shares(alone, free).values())


@given(lines(), st.integers(0, 20))
def test_no_buffer_is_filled_while_a_pod_waits(asks: list[Ask], free: int) -> None:
    given_ = shares(asks, free)
    waiting = [ask for ask in asks if ask.need and ask.need_since != PASSED]
    if any(given_.get(ask.container, 0) < ask.need for ask in waiting):
        assert all(given_.get(ask.container, 0) <= ask.need for ask in asks)


@given(lines(), st.integers(0, 20))
def test_among_waiting_pods_who_came_first_is_served_first(asks: list[Ask], free: int) -> None:
    given_ = shares(asks, free)
    line = [ask for ask in asks if ask.need and ask.need_since is not None and ask.need_since < PASSED]
    line.sort(key=lambda ask: (ask.need_since, ask.container))
    served = [min(given_.get(ask.container, 0), ask.need) for ask in line]
    assert all(before == ask.need or not after for ask, (before, after) in zip(line, pairwise(served), strict=False))


@pytest.fixture
def office() -> Office:
    office = Office()
    office.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    return office


def crowd(leader: Leader, *names: str) -> list[ContainerState]:
    """Open containers, and let the first one take all that is left."""
    first, *others = [leader.node(name) for name in names]
    hog = leader.one(item(names[0], first, wanted=14 - len(names)))
    assert 0 == hog.short
    return [hog, *others]


def let_go(leader: Leader, hog: ContainerState, count: int) -> None:
    leader.one(item("hog", hog, wanted=len(hog.grants) - count, released=ids(hog)[:count]))


def ask(leader: Leader, name: str, state: ContainerState, wanted: int, *, waiting: int = 0) -> int:
    """Ask for a container; tell how many it is short of."""
    return leader.one(item(name, state, wanted=wanted, report=Report(waiting=waiting))).short


def test_what_is_freed_is_set_aside_for_who_came_first_and_they_are_told(office: Office) -> None:
    leader, other = Leader(office, "c1"), Leader(office, "c2")
    second = other.node("second")
    first = leader.node("first")
    hog = leader.node("hog", wanted=11)
    assert 2 == ask(leader, "first", first, 2)
    office.clock.now += 1
    assert 2 == ask(other, "second", second, 2)
    answer = leader.call(item("hog", hog, wanted=8, released=ids(hog)[:3]))
    assert (first.container,) == answer.servable
    assert 1 == ask(other, "second", second, 2)
    assert 0 == ask(leader, "first", first, 2)


def test_a_waiting_pod_comes_before_a_buffer_that_waited_longer(office: Office) -> None:
    leader = Leader(office)
    hog, buffer, pod = crowd(leader, "hog", "buffer", "pod")
    assert 2 == ask(leader, "buffer", buffer, 2)
    office.clock.now += 1
    assert 2 == ask(leader, "pod", pod, 2, waiting=1)
    let_go(leader, hog, 1)
    assert 2 == ask(leader, "buffer", buffer, 2)
    assert 1 == ask(leader, "pod", pod, 2, waiting=1)


def test_a_waiting_pod_comes_before_a_buffer_of_the_same_call(office: Office) -> None:
    leader = Leader(office)
    hog, buffer, pod = crowd(leader, "hog", "buffer", "pod")
    let_go(leader, hog, 2)
    answer = leader.call(item("buffer", buffer, wanted=3), item("pod", pod, wanted=3, report=Report(waiting=2)))
    assert [3, 1] == [result.state.short for result in answer.results if result.state]


def test_the_place_in_the_line_is_kept_over_repeated_calls(office: Office) -> None:
    leader = Leader(office)
    hog, first, second = crowd(leader, "hog", "first", "second")
    ask(leader, "first", first, 1)
    office.clock.now += 1
    ask(leader, "second", second, 1)
    for _ in range(3):
        office.clock.now += 1
        ask(leader, "first", first, 1)
    let_go(leader, hog, 1)
    assert 1 == ask(leader, "second", second, 1)
    assert 0 == ask(leader, "first", first, 1)


def test_who_is_told_and_does_not_come_lets_the_turn_pass(office: Office) -> None:
    leader = Leader(office)
    hog, absent, present = crowd(leader, "hog", "absent", "present")
    ask(leader, "absent", absent, 1, waiting=1)
    office.clock.now += 1
    ask(leader, "present", present, 1, waiting=1)
    let_go(leader, hog, 1)
    assert 1 == ask(leader, "present", present, 1, waiting=1)
    office.later(31.0)
    assert 0 == ask(leader, "present", present, 1, waiting=1)
    assert 1 == ask(leader, "absent", absent, 1, waiting=1)


def test_who_let_the_turn_pass_is_still_told_when_there_is_room(office: Office) -> None:
    leader = Leader(office)
    hog, absent, other = crowd(leader, "hog", "absent", "other")
    ask(leader, "absent", absent, 1)
    let_go(leader, hog, 1)
    office.later(31.0)
    assert (absent.container,) == leader.call(item("other", other)).servable
    assert 0 == ask(leader, "absent", absent, 1)


def test_one_that_is_gone_or_wants_no_more_stands_in_nobody_s_way(office: Office) -> None:
    leader = Leader(office)
    hog, gone, content, last = crowd(leader, "hog", "gone", "content", "last")
    for name, state in (("gone", gone), ("content", content), ("last", last)):
        ask(leader, name, state, 1)
    leader.call(item("gone", gone, gone=True), item("content", content, wanted=0))
    let_go(leader, hog, 1)
    assert 0 == ask(leader, "last", last, 1)
    assert (0, 0) == (office.state().waiting, office.state().wishing)


def test_nothing_is_set_aside_for_one_that_goes_in_the_same_call(office: Office) -> None:
    leader = Leader(office)
    _, going, staying = crowd(leader, "hog", "going", "staying")
    ask(leader, "going", going, 3)
    first, second = leader.call(item("going", going, gone=True), item("staying", staying, wanted=1)).results
    assert first.state is not None
    assert second.state is not None
    assert (True, 0) == (first.state.closed, second.state.short)


def test_the_same_words_again_change_nothing(office: Office) -> None:
    """A report counts those who waited when it was written: what was given since is not asked for twice."""
    leader = Leader(office)
    hog, guest = crowd(leader, "hog", "guest")
    let_go(leader, hog, 2)
    assert 4 == ask(leader, "guest", guest, 6, waiting=3)
    state = office.state()
    assert (1, 3) == (state.waiting, state.wishing)
    assert 4 == ask(leader, "guest", guest, 6, waiting=3)
    assert state == office.state()
    assert 4 == ask(leader, "guest", guest, 6, waiting=4)
    assert (4, 0) == (office.state().waiting, office.state().wishing), "another report is news"

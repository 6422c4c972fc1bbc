"""When a node may ask."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.debounce import DebounceState, DebounceTiming, debounce
from podpool.core.scaling import Scaler, target

CALM = DebounceTiming(quiet=0.05, max_delay=0.25, hold=30.0)
EXHAUSTED = DebounceTiming(quiet=0.05, max_delay=0.25, hold=0.0, spread=3.0)


class Node:
    """A node that looks when its target changes and when it was told to look again."""

    def __init__(self, requested: int, rhythm: DebounceTiming = CALM) -> None:
        self.requested = self.wanted = requested
        self.rhythm = rhythm
        self.pace = DebounceState()
        self.asked: list[tuple[float, int]] = []
        self.again_at = math.inf

    def want(self, wanted: int, *, at: float) -> None:
        self.pass_time(at)
        self.wanted = wanted
        self.debounce(at)

    def pass_time(self, until: float) -> None:
        while self.again_at <= until:
            self.debounce(self.again_at)

    def debounce(self, now: float) -> None:
        verdict = debounce(self.pace, now=now, wanted=self.wanted, requested=self.requested, timing=self.rhythm)
        self.state = verdict.state
        self.next_at = math.inf if verdict.next_at is None else verdict.next_at
        if verdict.request is not None:
            self.requested = verdict.request
            self.asked.append((now, verdict.request))
            self.debounce(now)


def test_many_pods_bound_at_once_are_one_request() -> None:
    node = Node(16)
    for pod in range(35):
        node.want(16 + pod + 1, at=0.001 * pod)
    node.pass_time(10.0)
    assert [(0.034 + 0.05, 51)] == node.asked


def test_growth_does_not_wait_for_a_quiet_that_never_comes() -> None:
    node = Node(16)
    for pod in range(20):
        node.want(17 + pod, at=0.04 * pod)
    first, _ = node.asked[0]
    assert 0.25 == first


def test_growth_that_is_over_before_the_quiet_is_not_asked_for() -> None:
    node = Node(16)
    node.want(32, at=0.0)
    node.want(16, at=0.04)
    node.pass_time(100.0)
    assert [] == node.asked


@pytest.mark.parametrize("between", [16, 8, 32])
def test_each_growth_has_a_quiet_of_its_own(between: int) -> None:
    """Whether the one before was called off, turned around, or asked for."""
    node = Node(16)
    node.want(32, at=0.0)
    node.want(between, at=0.04)
    node.pass_time(10.0)
    node.want(64, at=10.0)
    node.pass_time(11.0)
    assert (10.05, 64) == node.asked[-1]


def test_a_turn_upwards_begins_the_hold_anew() -> None:
    node = Node(16)
    node.want(8, at=0.0)
    node.want(32, at=10.0)
    node.want(8, at=10.01)
    node.pass_time(40.0)
    assert [] == node.asked
    node.pass_time(40.01)
    assert [(40.01, 8)] == node.asked


def test_less_is_asked_for_when_it_has_lasted() -> None:
    node = Node(48)
    node.want(32, at=0.0)
    node.pass_time(29.9)
    assert [] == node.asked
    node.pass_time(30.0)
    assert [(30.0, 32)] == node.asked


def test_a_return_to_the_request_begins_the_hold_anew() -> None:
    node = Node(48)
    node.want(32, at=0.0)
    node.want(48, at=29.0)
    node.want(32, at=29.5)
    node.pass_time(59.4)
    assert [] == node.asked
    node.pass_time(59.5)
    assert [(59.5, 32)] == node.asked


def test_it_shrinks_to_the_highest_target_of_the_hold_and_then_further() -> None:
    node = Node(64)
    node.want(16, at=0.0)
    node.want(48, at=10.0)
    node.want(32, at=20.0)
    node.pass_time(60.0)
    assert [(30.0, 48), (60.0, 32)] == node.asked


def test_exhausted_it_gives_back_at_its_place_in_the_queue() -> None:
    node = Node(48, EXHAUSTED)
    node.want(17, at=0.0)
    node.want(20, at=1.0)
    node.want(18, at=2.0)
    node.pass_time(10.0)
    assert [(3.0, 18)] == node.asked


def test_a_node_that_grew_in_many_steps_does_not_keep_its_peak_for_long() -> None:
    node = Node(16)
    for batch in range(10):
        node.want(32 + 16 * batch, at=1.0 * batch)
    node.want(16, at=11.0)
    node.pass_time(100.0)
    assert 11.0 + 30.0 <= node.asked[-1][0] <= 9.05 + 2 * 30.0


flaps = st.lists(st.floats(0.001, 200.0), min_size=1, max_size=60)


@given(flaps, st.integers(0, 230), st.integers(1, 64), st.integers(0, 400))
def test_a_flapping_pod_costs_one_request_per_hold(pauses: list[float], demand: int, batch: int, buffer: int) -> None:
    """Whenever it flaps, an adversary's timing included: one per hold, and the two of a single flap."""
    targets = [
        target(demand=each, scaler=Scaler(batch, buffer), primaries=1, maximum=250) for each in (demand, demand + 1)
    ]
    node = Node(targets[0])
    now = 0.0
    for flap, pause in enumerate(pauses):
        node.want(targets[(flap + 1) % 2], at=now)
        now += pause
    node.pass_time(now)
    assert len(node.asked) <= 2 + now / CALM.hold


@given(st.lists(st.sampled_from([24, 25]), min_size=1, max_size=60))
def test_an_adversary_who_waits_for_each_shrink_pays_for_it(demands: list[int]) -> None:
    node = Node(31)
    now = 0.0
    for demand in demands:
        now = max(now + 1.0, node.asked[-1][0] if node.asked else 0.0)
        node.want(target(demand=demand, scaler=Scaler(16, 50), primaries=1, maximum=250), at=now)
        if demand == 24 and node.again_at < math.inf:
            now = node.again_at
            node.pass_time(now)
    assert len(node.asked) <= 2 + now / CALM.hold


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 250)), min_size=1), st.booleans())
def test_left_alone_it_ends_where_it_wants_to_be(changes: list[tuple[float, int]], exhausted: bool) -> None:
    node = Node(16, EXHAUSTED if exhausted else CALM)
    now = 0.0
    for pause, wanted in changes:
        now += pause
        node.want(wanted, at=now)
    node.pass_time(now + 4 * 30.0)
    assert node.requested == node.wanted
    assert math.inf == node.again_at


@given(st.integers(0, 250), st.integers(0, 250), st.floats(0, 1e6))
def test_looking_twice_at_one_moment_changes_nothing(wanted: int, requested: int, now: float) -> None:
    first = debounce(DebounceState(), now=now, wanted=wanted, requested=requested, timing=CALM)
    again = debounce(first.state, now=now, wanted=wanted, requested=requested, timing=CALM)
    assert first == again
    assert msgspec.structs.asdict(first.state) == msgspec.structs.asdict(again.state)

"""When a node sends a request."""

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
    """A node that calls `debounce` when its target changes and when the last result is due."""

    def __init__(self, requested: int, timing: DebounceTiming = CALM) -> None:
        self.requested = self.wanted = requested
        self.timing = timing
        self.state = DebounceState()
        self.requests: list[tuple[float, int]] = []
        self.next_at = math.inf

    def want(self, wanted: int, *, at: float) -> None:
        self.pass_time(at)
        self.wanted = wanted
        self.debounce(at)

    def pass_time(self, until: float) -> None:
        while self.next_at <= until:
            self.debounce(self.next_at)

    def debounce(self, now: float) -> None:
        result = debounce(self.state, now=now, wanted=self.wanted, requested=self.requested, timing=self.timing)
        self.state = result.state
        self.next_at = math.inf if result.next_at is None else result.next_at
        if result.request is not None:
            self.requested = result.request
            self.requests.append((now, result.request))
            self.debounce(now)


def test_many_pods_bound_at_once_are_one_request() -> None:
    node = Node(16)
    for pod in range(35):
        node.want(16 + pod + 1, at=0.001 * pod)
    node.pass_time(10.0)
    assert [(0.034 + 0.05, 51)] == node.requests


def test_growth_does_not_wait_longer_than_the_maximum() -> None:
    node = Node(16)
    for pod in range(20):
        node.want(17 + pod, at=0.04 * pod)
    first, _ = node.requests[0]
    assert 0.25 == first


def test_growth_that_ends_within_the_quiet_period_is_not_requested() -> None:
    node = Node(16)
    node.want(32, at=0.0)
    node.want(16, at=0.04)
    node.pass_time(100.0)
    assert [] == node.requests


@pytest.mark.parametrize("between", [16, 8, 32])
def test_each_growth_has_its_own_quiet_period(between: int) -> None:
    """Whether the growth before was cancelled, reversed or requested."""
    node = Node(16)
    node.want(32, at=0.0)
    node.want(between, at=0.04)
    node.pass_time(10.0)
    node.want(64, at=10.0)
    node.pass_time(11.0)
    assert (10.05, 64) == node.requests[-1]


def test_growth_restarts_the_hold() -> None:
    node = Node(16)
    node.want(8, at=0.0)
    node.want(32, at=10.0)
    node.want(8, at=10.01)
    node.pass_time(40.0)
    assert [] == node.requests
    node.pass_time(40.01)
    assert [(40.01, 8)] == node.requests


def test_less_is_requested_after_the_hold() -> None:
    node = Node(48)
    node.want(32, at=0.0)
    node.pass_time(29.9)
    assert [] == node.requests
    node.pass_time(30.0)
    assert [(30.0, 32)] == node.requests


def test_nodes_do_not_shrink_at_once_after_the_same_hold() -> None:
    """A smaller batch of the subnet reaches all nodes in one moment."""
    node = Node(48, msgspec.structs.replace(CALM, spread=7.0))
    node.want(32, at=0.0)
    node.pass_time(100.0)
    assert [(37.0, 32)] == node.requests


def test_a_return_to_the_request_restarts_the_hold() -> None:
    node = Node(48)
    node.want(32, at=0.0)
    node.want(48, at=29.0)
    node.want(32, at=29.5)
    node.pass_time(59.4)
    assert [] == node.requests
    node.pass_time(59.5)
    assert [(59.5, 32)] == node.requests


def test_it_shrinks_to_the_highest_target_of_the_hold_and_then_further() -> None:
    node = Node(64)
    node.want(16, at=0.0)
    node.want(48, at=10.0)
    node.want(32, at=20.0)
    node.pass_time(60.0)
    assert [(30.0, 48), (60.0, 32)] == node.requests


def test_an_exhausted_node_releases_at_its_position_in_the_spread() -> None:
    node = Node(48, EXHAUSTED)
    node.want(17, at=0.0)
    node.want(20, at=1.0)
    node.want(18, at=2.0)
    node.pass_time(10.0)
    assert [(3.0, 18)] == node.requests


def test_a_node_that_grew_in_many_steps_does_not_keep_its_peak_for_long() -> None:
    node = Node(16)
    for batch in range(10):
        node.want(32 + 16 * batch, at=1.0 * batch)
    node.want(16, at=11.0)
    node.pass_time(100.0)
    assert 11.0 + 30.0 <= node.requests[-1][0] <= 9.05 + 2 * 30.0


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
    assert len(node.requests) <= 2 + now / CALM.hold


@given(st.lists(st.sampled_from([24, 25]), min_size=1, max_size=60))
def test_growth_after_each_shrink_delays_the_next_shrink(demands: list[int]) -> None:
    node = Node(31)
    now = 0.0
    for demand in demands:
        now = max(now + 1.0, node.requests[-1][0] if node.requests else 0.0)
        node.want(target(demand=demand, scaler=Scaler(16, 50), primaries=1, maximum=250), at=now)
        if demand == 24 and node.next_at < math.inf:
            now = node.next_at
            node.pass_time(now)
    assert len(node.requests) <= 2 + now / CALM.hold


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 250)), min_size=1), st.booleans())
def test_without_changes_the_request_reaches_the_target(changes: list[tuple[float, int]], exhausted: bool) -> None:
    node = Node(16, EXHAUSTED if exhausted else CALM)
    now = 0.0
    for pause, wanted in changes:
        now += pause
        node.want(wanted, at=now)
    node.pass_time(now + 4 * 30.0)
    assert node.requested == node.wanted
    assert math.inf == node.next_at


@given(st.integers(0, 250), st.integers(0, 250), st.floats(0, 1e6))
def test_a_second_call_at_the_same_time_changes_nothing(wanted: int, requested: int, now: float) -> None:
    first = debounce(DebounceState(), now=now, wanted=wanted, requested=requested, timing=CALM)
    again = debounce(first.state, now=now, wanted=wanted, requested=requested, timing=CALM)
    assert first == again
    assert msgspec.structs.asdict(first.state) == msgspec.structs.asdict(again.state)

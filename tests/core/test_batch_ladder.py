"""The batch of a subnet."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.batch_ladder import BatchGrade, BatchRules, Load, Projection, SubnetDemand, batch_ladder, grade_batch
from podpool.core.demand_from_request import InferredDemand, infer_demand
from podpool.core.scaling import Scaler

RULES = BatchRules(upper=90, margin=5, hold=60.0)
POLL = 15.0
RUNGS = batch_ladder(Scaler(16, 50))
BARE = len(RUNGS) - 1

loads = st.builds(Load, st.integers(0, 120), st.integers(0, 2))
clusters = st.lists(st.lists(loads, min_size=1, max_size=12), min_size=1, max_size=3)
states = st.integers(0, BARE).flatmap(
    lambda rung: (
        st.just(BatchGrade(rung))
        | st.builds(BatchGrade, st.just(rung), st.floats(-200, 0), st.integers(0, rung - 1) if rung else st.nothing())
    )
)


def totals(of: list[Load]) -> list[int]:
    projection = Projection(RUNGS)
    for number, load in enumerate(of):
        projection.report(number, load)
    return projection.totals


def decide(before: BatchGrade, of: list[int], capacity: int, *, now: float = 0.0, waiting: bool = False) -> BatchGrade:
    return grade_batch(before, SubnetDemand(totals=of, capacity=capacity, waiting=waiting), now=now, rules=RULES)


@pytest.mark.parametrize(
    ("batch", "batches"),
    [
        (16, [16, 8, 4, 2, 1, 1]),
        (10, [10, 5, 1, 1]),
        (12, [12, 6, 3, 1, 1]),
        (7, [7, 1, 1]),
        (1, [1, 1]),
        (256, [256, 128, 64, 32, 16, 8, 4, 2, 1, 1]),
    ],
)
def test_each_rung_is_the_largest_divisor_of_the_one_before(batch: int, batches: list[int]) -> None:
    rungs = batch_ladder(Scaler(batch, 50))
    assert batches == [rung.batch for rung in rungs]
    assert Scaler(1, 0) == rungs[-1]
    assert {50} == {rung.buffer for rung in rungs[:-1]}


@given(st.integers(1, 256), st.integers(0, 400), st.lists(loads, max_size=10))
def test_a_lower_rung_never_reserves_more(batch: int, buffer: int, of: list[Load]) -> None:
    sums = [sum(load.reservation(rung) for load in of) for rung in batch_ladder(Scaler(batch, buffer))]
    assert sums == sorted(sums, reverse=True)


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | loads)))
def test_the_projection_is_the_sum_of_all_reservations(reports: list[tuple[int, Load | None]]) -> None:
    projection = Projection(RUNGS)
    known: dict[int, Load] = {}
    for container, load in reports:
        if load is None:
            projection.drop(container)
            known.pop(container, None)
        else:
            projection.report(container, load)
            known[container] = load
    assert [sum(load.reservation(rung) for load in known.values()) for rung in RUNGS] == projection.totals


def test_a_pinned_scaler_applies_on_every_rung() -> None:
    assert {32} == {Load(10, pinned=Scaler(32, 50)).reservation(rung) for rung in RUNGS}


@given(states, st.lists(loads, min_size=1, max_size=20), st.integers(1, 1500), st.floats(0, 1000))
def test_no_rung_exceeds_the_threshold_while_a_lower_one_fits(
    before: BatchGrade, of: list[Load], capacity: int, now: float
) -> None:
    sums = totals(of)
    after = decide(before, sums, capacity, now=now)
    fits = [100 * each <= RULES.upper * capacity for each in sums]
    assert fits[after.rung] or not any(fits[after.rung + 1 : BARE]) or before.rung == after.rung == BARE


def test_it_steps_down_at_once_and_up_with_margin_after_the_hold() -> None:
    sums = [1000, 800, 700, 650, 640, 500]
    down = decide(BatchGrade(0), sums, 900)
    assert 1 == down.rung
    almost = decide(down, [810, 800, 700, 650, 640, 500], 900, now=1000.0)
    assert BatchGrade(1) == almost  # 810 fits under 0.90, but not with the margin of 0.05
    fitting = [765, 750, 700, 650, 640, 500]
    held = decide(decide(down, fitting, 900, now=0.0), fitting, 900, now=59.9)
    assert 1 == held.rung
    assert BatchGrade(0) == decide(held, fitting, 900, now=60.0)


def test_the_batch_is_1_if_no_rung_fits() -> None:
    assert Scaler(1, 50) == RUNGS[decide(BatchGrade(0), [2000, 1900, 1800, 1700, 1600, 1500], 900).rung]


def test_an_interrupted_hold_starts_again() -> None:
    fitting, tight = [700, 690, 680, 670, 660, 500], [900, 800, 680, 670, 660, 500]
    state = decide(BatchGrade(1), fitting, 900, now=0.0)
    state = decide(state, tight, 900, now=30.0)
    assert 1 == decide(state, fitting, 900, now=61.0).rung


def test_it_steps_up_to_the_lowest_rung_of_the_hold() -> None:
    """A full batch that fits only at the last moment has not fitted for the hold."""
    some, much = [900, 800, 700, 650, 640, 500], [700, 690, 680, 670, 660, 500]
    state = decide(BatchGrade(4), some, 900, now=0.0)
    assert 2 == decide(state, much, 900, now=60.0).rung


def test_a_waiting_pod_removes_all_buffers_at_once() -> None:
    assert BatchGrade(BARE) == decide(BatchGrade(0), [10] * 6, 900, waiting=True)


def test_the_last_rung_is_left_when_no_pod_waited_during_the_hold_and_buffers_fit() -> None:
    full = [2000, 1500, 1200, 1000, 860, 800]
    assert BatchGrade(BARE) == decide(BatchGrade(BARE), full, 900, now=1e6)  # 860 of 900 leaves less than the margin
    fitting = [2000, 1500, 1200, 1000, 855, 800]
    state = decide(BatchGrade(BARE), fitting, 900, now=0.0)
    assert decide(state, fitting, 900, now=59.9).rung == BARE
    assert BatchGrade(BARE - 1) == decide(state, fitting, 900, now=60.0)
    waited = decide(state, fitting, 900, now=30.0, waiting=True)
    assert decide(waited, fitting, 900, now=61.0).rung == BARE


def polls(state: BatchGrade, reported: Iterator[list[int]], capacity: int, count: int) -> list[int]:
    rungs = [state.rung]
    for poll in range(count):
        state = decide(state, next(reported), capacity, now=poll * POLL)
        rungs.append(state.rung)
    return rungs


def changes(rungs: list[int]) -> int:
    return sum(one != other for one, other in pairwise(rungs))


@given(states, clusters, st.data(), st.floats(0.2, 1.5))
def test_constant_demand_settles_from_every_state(
    state: BatchGrade, split: list[list[Load]], data: st.DataObject, fullness: float
) -> None:
    """With reports up to 5 polls late and split over clusters: no more than 4 changes, and none after 16 polls."""
    of = [load for cluster in split for load in cluster]
    capacity = max(1, round(totals(of)[0] / fullness))
    old = data.draw(st.lists(loads, min_size=len(of), max_size=len(of)))
    late = data.draw(st.lists(st.integers(0, 5), min_size=len(of), max_size=len(of)))

    def reported() -> Iterator[list[int]]:
        for poll in range(40):
            yield totals([new if poll >= lag else before for new, before, lag in zip(of, old, late, strict=True)])

    rungs = polls(state, reported(), capacity, 40)
    assert 0 == changes(rungs[16:])
    assert changes(rungs) <= 4


@given(st.integers(0, BARE), clusters, st.data(), st.floats(0.2, 1.5))
def test_inferred_demand_settles_too(rung: int, split: list[list[Load]], data: st.DataObject, fullness: float) -> None:
    """Their demand is bounded from requests that follow the batch up to 5 polls late."""
    of = [load for cluster in split for load in cluster]
    capacity = max(1, round(totals(of)[0] / fullness))
    late = data.draw(st.lists(st.integers(0, 5), min_size=len(of), max_size=len(of)))
    requested = data.draw(st.lists(st.integers(0, 250), min_size=len(of), max_size=len(of)))
    readings: list[InferredDemand | None] = [None] * len(of)
    state = BatchGrade(rung)
    rungs = [rung]
    for poll in range(80):
        for at, load in enumerate(of):
            if poll >= late[at]:
                requested[at] = load.reservation(RUNGS[rungs[poll - late[at]]]) - load.primaries
            readings[at] = infer_demand(
                readings[at], now=poll * POLL, requested=requested[at], published=RUNGS[rungs[-1]], settle_time=5 * POLL
            )
        seen = [
            Load(r.demand(primaries=load.primaries), load.primaries) for r, load in zip(readings, of, strict=True) if r
        ]
        view = SubnetDemand(totals=totals(seen), capacity=capacity, settled=all(r.settled for r in readings if r))
        state = grade_batch(state, view, now=poll * POLL, rules=RULES)
        rungs.append(state.rung)
    assert 0 == changes(rungs[50:])
    assert changes(rungs) <= 6


def test_the_batch_does_not_step_up_before_every_agent_has_reacted() -> None:
    fitting = SubnetDemand(totals=[100] * 6, capacity=900, settled=False)
    assert BatchGrade(3) == grade_batch(BatchGrade(3, 0.0, 0), fitting, now=1e6, rules=RULES)

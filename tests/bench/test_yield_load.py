"""The load of the yield benchmark, what is read from it, and the model of its baseline."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest

from bench.scenario import QUICK
from bench.scenarios.pool_yield import LARGE, SCENARIO
from bench.yield_load import Pace, PodEvent, Population, Published, Size, delays, percentile, reversals
from bench.yield_model import AllOrNothing, pods_at_first_refusal
from podpool.core.settings import Settings

NODES = 7


def growth(seed: int, count: int) -> list[PodEvent]:
    return list(islice(Population(seed, NODES).growth(arrivals=10.0, departures=3.0), count))


class TestPopulation:
    def test_the_same_seed_draws_the_same_pods(self) -> None:
        assert growth(1, 500) == growth(1, 500) != growth(2, 500)

    def test_times_rise_at_the_given_rate(self) -> None:
        events = growth(1, 2_000)
        assert all(before.at < after.at for before, after in pairwise(events))
        assert 2_000 / 13 == pytest.approx(events[-1].at, rel=0.1)

    def test_a_pod_departs_once_from_where_it_arrived(self) -> None:
        present: dict[int, int] = {}
        for event in growth(1, 2_000):
            if event.arrives:
                assert event.pod not in present
                present[event.pod] = event.node
            else:
                assert present.pop(event.pod) == event.node
        assert range(NODES) == range(min(present.values()), max(present.values()) + 1)

    def test_departures_are_the_given_share(self) -> None:
        departures = sum(not event.arrives for event in growth(1, 2_000))
        assert 3 / 13 == pytest.approx(departures / 2_000, rel=0.1)

    def test_replacement_keeps_the_number_of_pods(self) -> None:
        population = Population(1, NODES)
        assert 50 == len(list(population.arrivals(50, per_second=10.0)))
        events = list(population.replacement(per_second=2.0, seconds=100.0))
        assert 400 == pytest.approx(len(events), rel=0.25)
        assert [False, True] * (len(events) // 2) == [event.arrives for event in events]
        assert all(event.at < 100.0 for event in events)


class TestPace:
    def test_events_are_late_by_the_time_after_their_plan(self) -> None:
        pace, event = Pace(100.0), PodEvent(at=2.0, pod=0, node=0, arrives=True)
        assert 1.5 == pace.wait(event, 100.5)
        pace.started(event, 102.25)
        assert [0.25] == pace.lateness

    def test_a_stopped_clock_makes_no_event_late(self) -> None:
        pace, event = Pace(100.0), PodEvent(at=2.0, pod=0, node=0, arrives=True)
        pace.stop(5.0)
        assert 3.0 == pace.wait(event, 104.0)
        pace.started(event, 107.0)
        assert [0.0] == pace.lateness


def states(*values: tuple[int, float, bool]) -> list[Published]:
    return [Published(batch=batch, buffer=buffer, exhausted=exhausted) for batch, buffer, exhausted in values]


class TestReversals:
    def test_steps_in_one_direction_are_none(self) -> None:
        assert 0 == reversals(states((16, 0.5, False), (8, 0.5, False), (8, 0.5, True), (1, 0.5, True), (1, 0.0, True)))

    def test_nothing_published_and_nothing_changed_are_none(self) -> None:
        assert (0, 0) == (reversals([]), reversals(states((8, 0.5, False), (8, 0.5, False))))

    def test_each_change_back_counts(self) -> None:
        assert 2 == reversals(states((8, 0.5, False), (4, 0.5, False), (8, 0.5, False), (4, 0.5, False)))

    def test_the_last_rung_is_below_batch_1(self) -> None:
        assert 1 == reversals(states((1, 0.5, True), (1, 0.0, True), (1, 0.5, True)))

    def test_exhaustion_counts_by_itself(self) -> None:
        assert 1 == reversals(states((1, 0.5, False), (1, 0.5, True), (2, 0.5, True), (2, 0.5, False)))


def test_a_percentile_is_one_of_the_figures() -> None:
    figures = [float(each) for each in range(100, 0, -1)]
    assert (1, 50, 99, 100) == tuple(percentile(figures, share) for share in (0.0, 0.5, 0.99, 1.0))
    assert 7.0 == percentile([7.0], 0.99)


def test_delays_pair_in_order_and_count_until_now_what_has_not_ended() -> None:
    assert [2.0, 3.0, 7.0] == delays([1.0, 2.0, 3.0], [3.0, 5.0], now=10.0)
    assert [2.0] == delays([1.0], [3.0, 5.0], now=10.0)


class TestSize:
    def test_pods_can_have_what_is_neither_primary_nor_reserved_for_primaries(self) -> None:
        assert (1021, 1021 - 60 - Settings().reserved_for_primaries) == (LARGE.capacity, LARGE.for_pods)


class TestAllOrNothing:
    """Batch 16, buffer 0.5, one primary: 15 addresses for up to 8 Pods, 31 for up to 24."""

    def test_nodes_start_with_a_batch(self) -> None:
        subnet = AllOrNothing(31, nodes=2)
        assert ([15, 15], 1) == (subnet.held, subnet.free)

    def test_a_batch_that_does_not_fit_is_not_granted_at_all(self) -> None:
        subnet = AllOrNothing(15 + 15, nodes=1)
        assert 15 == sum(subnet.arrive(0) for _ in range(20))
        assert ([15], 15) == (subnet.held, subnet.free)

    def test_a_batch_that_fits_is_granted_when_the_ninth_pod_arrives(self) -> None:
        subnet = AllOrNothing(15 + 16, nodes=1)
        assert all(subnet.arrive(0) for _ in range(9))
        assert ([31], 0) == (subnet.held, subnet.free)

    def test_a_departure_returns_a_batch_that_another_node_gets(self) -> None:
        subnet = AllOrNothing(2 * 15 + 16, nodes=2)
        assert all(subnet.arrive(0) for _ in range(9))
        subnet.depart(0)
        assert all(subnet.arrive(1) for _ in range(16))
        assert ([15, 31], 0) == (subnet.held, subnet.free)

    def test_it_counts_the_pods_with_an_address_at_the_first_refusal(self) -> None:
        size = Size(cidr="10.0.0.0/26", nodes=2, reuse_seconds=0.0, steady_seconds=0.0)
        events = [PodEvent(at=0.0, pod=pod, node=pod % 2, arrives=True) for pod in range(100)]
        assert 16 + 15 == pods_at_first_refusal(events, size)  # the other node has the last batch

    def test_about_half_of_a_22_serves_pods_of_60_nodes(self) -> None:
        shares = [
            pods_at_first_refusal(Population(seed, 60).growth(arrivals=15.0, departures=1.5), LARGE) / LARGE.for_pods
            for seed in range(5)
        ]
        assert all(0.4 < share < 0.7 for share in shares), shares


def test_the_scenario_counts_what_it_declares() -> None:
    """Nothing is started before the first turn."""
    with SCENARIO.setup(QUICK) as trials:
        assert SCENARIO.ids == tuple(count.id for trial in trials for count in trial.counts)
        assert all(trial.rounds(QUICK) == 2 and trial.warmups(QUICK) == 0 for trial in trials)

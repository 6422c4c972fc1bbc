"""The harness: interleaving of sides, rounds, results and noise."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from bench.harness import measure, sample
from bench.measures import Median
from bench.scenario import Effort, Run, Scenario, Side, Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.conftest import MakeScenario, MakeSide

EFFORT = Effort(rounds=3, warmups=1, batch_seconds=0.01, quick=False)
NOON = datetime(2024, 2, 3, 12, tzinfo=UTC)


def trial(*sides: Side, at_most: int | None = None) -> Trial:
    return Trial(sides=sides, unit="ms", counts=(Median(id="m", what="", side=sides[0].name),), at_most=at_most)


def test_sides_are_interleaved_in_alternating_order(make_side: MakeSide, diary: list[str]) -> None:
    sample(trial(make_side("a", [1]), make_side("b", [1])), EFFORT)
    assert diary[2:-2] == ["a0", "b0", "b1", "a1", "a2", "b2", "b3", "a3"]


def test_all_sides_are_set_up_before_the_first_run_and_removed_after_the_last(
    make_side: MakeSide, diary: list[str]
) -> None:
    sample(trial(make_side("a", [1]), make_side("b", [1])), EFFORT)
    assert (diary[:2], diary[-2:]) == (["a up", "b up"], ["b down", "a down"])


def test_warm_up_runs_are_not_counted(make_side: MakeSide) -> None:
    samples = sample(trial(make_side("a", [1000, 1, 2, 3]), make_side("b", [2000, 4, 5, 6])), EFFORT)
    assert samples == {"a": [1, 2, 3], "b": [4, 5, 6]}


def test_side_is_removed_when_another_fails(make_side: MakeSide, diary: list[str]) -> None:
    @contextmanager
    def broken() -> Iterator[Run]:
        raise OSError("the other program did not start")
        yield

    @contextmanager
    def up() -> Iterator[Run]:
        try:
            with make_side("a", [1]).setup() as run:
                yield run
        finally:
            diary.append("removed")

    with pytest.raises(OSError, match="did not start"):
        sample(trial(Side("a", up), Side("b", broken)), EFFORT)
    assert diary[-1] == "removed"


def test_trial_can_reduce_the_rounds_but_not_increase_them(make_side: MakeSide) -> None:
    side = make_side("a", [1])
    assert len(sample(trial(side, at_most=2), EFFORT)["a"]) == 2
    assert len(sample(trial(side, at_most=9), EFFORT)["a"]) == 3


def test_one_round_is_rejected_because_noise_cannot_be_measured(make_side: MakeSide) -> None:
    with pytest.raises(ValueError, match="two rounds or more"):
        trial(make_side("a", [1]), at_most=1)


def test_garbage_collector_is_disabled_only_during_runs() -> None:
    enabled = []

    @contextmanager
    def setup() -> Iterator[Run]:
        def run(_: int) -> float:
            enabled.append(gc.isenabled())
            return 1

        yield run

    sample(trial(Side("a", setup)), EFFORT)
    assert {False} == set(enabled)
    assert gc.isenabled()


def test_two_sides_with_the_same_name_are_rejected(make_side: MakeSide) -> None:
    with pytest.raises(ValueError, match="same name: a, a"):
        trial(make_side("a", [1]), make_side("a", [2]))


def test_scenario_must_measure_the_ids_that_it_declares(make_scenario: MakeScenario) -> None:
    honest = make_scenario("one")
    other = Scenario(name="one", summary="", ids=("one-ratio", "one-other"), setup=honest.setup)
    with pytest.raises(ValueError, match=r"one declares \['one-other', 'one-ratio'\] and counts"):
        measure(other, EFFORT, now=lambda: NOON, log=print)


def test_result_has_value_goal_command_time_and_versions(make_scenario: MakeScenario) -> None:
    outcome = measure(make_scenario("one"), EFFORT, now=lambda: NOON, log=lambda _: None)
    ratio, figure = outcome.results
    assert (ratio.value, ratio.unit, ratio.ours, ratio.theirs, ratio.measured_in) == (4, "ratio", 2, 8, "ms")
    assert (ratio.goal, ratio.command, ratio.when) == (">= 5", "make bench-one", "2024-02-03T12:00:00+00:00")
    assert (figure.value, figure.unit, figure.goal, figure.theirs) == (2, "ms", None, {"theirs": 8})
    assert outcome.versions == {"ours": "version of ours", "theirs": "version of theirs"}


def test_figures_are_rounded_to_four_digits(make_scenario: MakeScenario) -> None:
    scenario = make_scenario("one", ours=(0.000123456,), theirs=(123456.0,))
    ratio, _ = measure(scenario, EFFORT, now=lambda: NOON, log=lambda _: None).results
    assert (ratio.ours, ratio.theirs) == (0.0001235, 123500)


def test_result_with_diverging_rounds_is_noisy(make_scenario: MakeScenario) -> None:
    scenario = make_scenario("one", ours=(1, 1, 2, 3))
    outcome = measure(scenario, EFFORT, now=lambda: NOON, log=lambda _: None)
    assert all(result.noisy for result in outcome.results)


def test_ratio_is_not_noisy_when_both_sides_vary_together(make_scenario: MakeScenario) -> None:
    scenario = make_scenario("one", ours=(1, 1, 2, 3), theirs=(4, 4, 8, 12))
    ratio, figure = measure(scenario, EFFORT, now=lambda: NOON, log=lambda _: None).results
    assert (ratio.noisy, figure.noisy) == (False, True)

"""How sides take turns."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from bench.counts import Median
from bench.harness import measure, sample
from bench.scenario import Effort, Run, Scenario, Side, Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.conftest import MakeScenario, MakeSide

EFFORT = Effort(rounds=3, warmups=1, batch_seconds=0.01, quick=False)
NOON = datetime(2024, 2, 3, 12, tzinfo=UTC)


def trial(*sides: Side, at_most: int | None = None) -> Trial:
    return Trial(sides=sides, unit="ms", counts=(Median(id="m", what="", side=sides[0].name),), at_most=at_most)


def test_sides_are_interleaved_and_the_order_turns_around_each_round(make_side: MakeSide, diary: list[str]) -> None:
    sample(trial(make_side("a", [1]), make_side("b", [1])), EFFORT)
    assert diary[2:-2] == ["a0", "b0", "b1", "a1", "a2", "b2", "b3", "a3"]


def test_all_sides_are_up_before_the_first_turn_and_down_after_the_last(make_side: MakeSide, diary: list[str]) -> None:
    sample(trial(make_side("a", [1]), make_side("b", [1])), EFFORT)
    assert (diary[:2], diary[-2:]) == (["a up", "b up"], ["b down", "a down"])


def test_what_a_side_gives_while_it_is_warmed_does_not_count(make_side: MakeSide) -> None:
    samples = sample(trial(make_side("a", [1000, 1, 2, 3]), make_side("b", [2000, 4, 5, 6])), EFFORT)
    assert samples == {"a": [1, 2, 3], "b": [4, 5, 6]}


def test_a_side_goes_down_when_another_one_breaks(make_side: MakeSide, diary: list[str]) -> None:
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
            diary.append("cleared")

    with pytest.raises(OSError, match="did not start"):
        sample(trial(Side("a", up), Side("b", broken)), EFFORT)
    assert diary[-1] == "cleared"


def test_a_trial_that_takes_minutes_can_ask_for_fewer_rounds_but_not_for_more(make_side: MakeSide) -> None:
    side = make_side("a", [1])
    assert len(sample(trial(side, at_most=2), EFFORT)["a"]) == 2
    assert len(sample(trial(side, at_most=9), EFFORT)["a"]) == 3


def test_one_round_is_refused_because_it_could_not_tell_noise(make_side: MakeSide) -> None:
    with pytest.raises(ValueError, match="two rounds or more"):
        trial(make_side("a", [1]), at_most=1)


def test_the_garbage_collector_stands_still_while_a_side_runs_and_only_then() -> None:
    seen = []

    @contextmanager
    def setup() -> Iterator[Run]:
        def run(_: int) -> float:
            seen.append(gc.isenabled())
            return 1

        yield run

    sample(trial(Side("a", setup)), EFFORT)
    assert {False} == set(seen)
    assert gc.isenabled()


def test_two_sides_of_one_name_are_refused(make_side: MakeSide) -> None:
    with pytest.raises(ValueError, match="same name: a, a"):
        trial(make_side("a", [1]), make_side("a", [2]))


def test_a_scenario_measures_the_ids_that_it_declares_and_no_others(make_scenario: MakeScenario) -> None:
    honest = make_scenario("one")
    other = Scenario(name="one", sentence="", ids=("one-ratio", "one-other"), setup=honest.setup)
    with pytest.raises(ValueError, match=r"one declares \['one-other', 'one-ratio'\] and counts"):
        measure(other, EFFORT, now=lambda: NOON, tell=print)


def test_a_result_tells_what_when_how_and_who(make_scenario: MakeScenario) -> None:
    outcome = measure(make_scenario("one"), EFFORT, now=lambda: NOON, tell=lambda _: None)
    ratio, figure = outcome.results
    assert (ratio.value, ratio.unit, ratio.ours, ratio.theirs, ratio.measured_in) == (4, "ratio", 2, 8, "ms")
    assert (ratio.goal, ratio.command, ratio.when) == (">= 5", "make bench-one", "2024-02-03T12:00:00+00:00")
    assert (figure.value, figure.unit, figure.goal, figure.theirs) == (2, "ms", None, {"theirs": 8})
    assert outcome.versions == {"ours": "version of ours", "theirs": "version of theirs"}


def test_figures_are_kept_with_four_digits_whatever_their_size(make_scenario: MakeScenario) -> None:
    scenario = make_scenario("one", ours=(0.000123456,), theirs=(123456.0,))
    ratio, _ = measure(scenario, EFFORT, now=lambda: NOON, tell=lambda _: None).results
    assert (ratio.ours, ratio.theirs) == (0.0001235, 123500)


def test_a_run_whose_rounds_disagree_is_marked_as_noisy(make_scenario: MakeScenario) -> None:
    scenario = make_scenario("one", ours=(1, 1, 2, 3))
    outcome = measure(scenario, EFFORT, now=lambda: NOON, tell=lambda _: None)
    assert all(result.noisy for result in outcome.results)


def test_a_noise_that_hits_both_sides_of_a_round_leaves_the_ratio_quiet(make_scenario: MakeScenario) -> None:
    scenario = make_scenario("one", ours=(1, 1, 2, 3), theirs=(4, 4, 8, 12))
    ratio, figure = measure(scenario, EFFORT, now=lambda: NOON, tell=lambda _: None).results
    assert (ratio.noisy, figure.noisy) == (False, True)

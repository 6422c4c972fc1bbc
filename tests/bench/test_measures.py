"""What is counted from the figures of a trial."""

from __future__ import annotations

from math import inf, log

import pytest

from bench.goals import met
from bench.measures import Exponent, Median, Ratio, exponent, spread

SIZES = (10**2, 10**4, 10**6)


def test_a_ratio_is_how_many_times_better_the_median_of_ours_is() -> None:
    samples = {"us": [1.0, 2.0, 900.0], "them": [10.0, 10.0, 10.0]}
    cost = Ratio(id="r", what="", ours="us", theirs="them", better="lower")
    rate = Ratio(id="r", what="", ours="us", theirs="them", better="higher")
    assert (cost.read(samples).value, rate.read(samples).value) == (5, 0.2)


def test_of_several_theirs_the_best_counts_and_all_are_listed() -> None:
    samples = {"us": [2.0, 2.0], "slow": [20.0, 20.0], "slower": [50.0, 50.0]}
    cost = Ratio(id="r", what="", ours="us", theirs=("slow", "slower"), better="lower").read(samples)
    rate = Ratio(id="r", what="", ours="us", theirs=("slow", "slower"), better="higher").read(samples)
    assert (10, 0.04) == (cost.value, rate.value)
    assert {"slow": 20, "slower": 50} == cost.theirs


def test_the_spread_of_a_ratio_is_that_of_its_pairs() -> None:
    slower_and_slower = {"us": [1.0, 2.0, 3.0, 4.0], "them": [5.0, 10.0, 15.0, 20.0]}
    assert Ratio(id="r", what="", ours="us", theirs="them", better="lower").read(slower_and_slower).spread == 0


def test_a_median_is_listed_beside_those_of_the_other_sides() -> None:
    reading = Median(id="m", what="", side="us").read({"us": [1, 2, 9], "b": [3, 4, 5], "c": [5, 6, 7]})
    assert (reading.value, reading.ours, reading.theirs) == (2, 2, {"b": 4, "c": 6})


def test_the_spread_is_the_interquartile_range_over_the_median() -> None:
    assert spread([6, 7, 8, 10, 11, 12, 1000]) == (11.5 - 7.5) / 10
    assert spread([3, 3, 3]) == 0


def test_one_bad_round_of_many_is_no_noise() -> None:
    assert spread([5] * 9 + [500]) == 0


def test_a_count_that_is_mostly_zero_has_a_spread_too() -> None:
    assert spread([0, 0, 0]) == 0
    assert 0 < spread([0, 0, 0, 1, 2]) < inf


def test_constant_cost_has_the_exponent_0_and_linear_cost_1() -> None:
    assert pytest.approx(exponent(dict.fromkeys(SIZES, 700.0))) == 0
    assert pytest.approx(exponent({size: 3.0 * size for size in SIZES})) == 1
    assert pytest.approx(exponent({size: 3.0 * size**2 for size in SIZES})) == 2


def test_logarithmic_cost_differs_from_a_root() -> None:
    """The goal of 0.15 lets through log n, and stops what grows with any power worth the name."""
    assert 0.10 < exponent({size: log(size) for size in SIZES}) < 0.15
    assert pytest.approx(exponent({size: size**0.25 for size in SIZES})) == 0.25


def test_growth_comes_with_its_costs_by_size_and_the_spread_of_the_least_steady() -> None:
    samples = {"100": [5.0, 5.0, 5.0], "10000": [4.0, 5.0, 6.0], "1000000": [5.0, 5.0, 5.0]}
    reading = Exponent(id="e", what="", sizes=SIZES).read(samples)
    assert reading.ours == {"100": 5, "10000": 5, "1000000": 5}
    assert (reading.spread, reading.unit) == (0.2, "exponent")


def test_a_cost_of_nothing_is_no_power_of_a_size() -> None:
    with pytest.raises(ValueError, match="never 0 or below"):
        exponent({10: 1.0, 100: 0.0, 1000: 1.0})


def test_two_sizes_show_no_growth() -> None:
    with pytest.raises(ValueError, match="three sizes or more"):
        Exponent(id="e", what="", sizes=(10, 100))


@pytest.mark.parametrize(
    ("goal", "good", "bad"),
    [(">= 5", 5, 4.99), ("> 5", 5.01, 5), ("< 50", 49, 50), ("<= 3", 3, 3.1), ("= 0", 0, 1), ("< 0.15", -0.2, 0.15)],
)
def test_a_goal_is_met_or_missed(goal: str, good: float, bad: float) -> None:
    assert (met(goal, good), met(goal, bad)) == (True, False)


def test_without_a_goal_there_is_nothing_to_meet() -> None:
    assert met(None, 7) is None


@pytest.mark.parametrize("goal", ["5", ">=5", "about 5", ">= five", ""])
def test_a_goal_that_cannot_be_judged_is_refused(goal: str) -> None:
    with pytest.raises(ValueError, match="a relation and a number"):
        Median(id="m", what="", side="us", goal=goal)

"""When a subnet runs full: what is message, and when nothing can be."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.inspect.forecast import MAX_HORIZON, Trend, forecast


def walk(
    *, count: int = 120, step: float = 1.0, drift: float = 0.0, noise: float = 0.0, seed: int = 1
) -> list[tuple[float, float]]:
    rng = random.Random(seed)  # noqa: S311  the same each time
    value, samples = 100.0, []
    for number in range(count):
        samples.append((number * step, value))
        value += drift + (rng.gauss(0, noise) if noise else 0.0)
    return samples


def test_too_little_data_is_reported() -> None:
    assert Trend.UNKNOWN is forecast([], capacity=10).trend
    assert Trend.UNKNOWN is forecast(walk(count=50, drift=1), capacity=1000).trend  # 49 seconds
    assert Trend.UNKNOWN is forecast(walk(count=10, step=100.0, drift=1), capacity=1000).trend  # ten samples


def test_what_is_full_is_full_now() -> None:
    message = forecast(walk(), capacity=100)
    assert (Trend.FULL, 0.0, 0.0, 0.0) == (message.trend, message.likely, message.early, message.late)


def test_a_straight_line_is_followed_exactly() -> None:
    samples = walk(count=101, drift=2.0)  # 300 at the end
    message = forecast(samples, capacity=400)
    assert Trend.FILLING is message.trend
    assert message.likely is not None
    assert math.isclose(50.0, message.likely, rel_tol=1e-3)
    assert message.early is not None
    assert message.late is not None
    assert math.isclose(message.early, message.late, rel_tol=1e-6)


def test_what_stands_still_is_not_filling_up() -> None:
    message = forecast(walk(), capacity=200)
    assert (Trend.STEADY, None, None) == (message.trend, message.likely, message.early)


@pytest.mark.parametrize("slope", [0.0, -0.5])
def test_what_rose_and_has_been_flat_or_falling_for_a_minute_is_not_filling_up(slope: float) -> None:
    ramp = walk(count=120, drift=2.0)
    end, top = ramp[-1]
    plateau = [(end + second, top + slope * second) for second in range(1, 61)]
    message = forecast([*ramp, *plateau], capacity=top + 20)
    assert (Trend.STEADY, None, None) == (message.trend, message.likely, message.early)
    assert Trend.FILLING is forecast([*ramp, *plateau[:10]], capacity=top + 20).trend


def test_what_shrinks_with_noise_may_still_fill_up_by_chance() -> None:
    message = forecast(walk(drift=-0.01, noise=5.0, seed=6), capacity=130)
    assert Trend.STEADY is message.trend
    assert message.early is not None


def test_noise_widens_the_cone_around_the_same_middle() -> None:
    line = walk(count=61, step=2.0, drift=1.0)
    calm, wild = (
        forecast([(at, value + noise * (number % 2)) for number, (at, value) in enumerate(line)], capacity=600)
        for noise in (0.5, 3.0)
    )
    assert calm.likely == wild.likely
    assert calm.early is not None
    assert wild.early is not None
    assert wild.early < calm.early
    assert wild.late is None or (calm.late is not None and wild.late > calm.late)


def test_nothing_is_forecast_beyond_its_reach() -> None:
    samples = walk(count=101, drift=0.001)
    assert Trend.STEADY is forecast(samples, capacity=100_000).trend
    assert forecast(samples, capacity=100.1 + 0.001 * 100 * (MAX_HORIZON - 1)).likely is not None


@given(st.lists(st.integers(0, 500), min_size=1, max_size=80), st.integers(1, 600), st.floats(0.5, 30))
def test_early_comes_before_likely_and_that_before_late(values: list[int], capacity: int, step: float) -> None:
    message = forecast([(number * step, value) for number, value in enumerate(values)], capacity=capacity)
    times = [math.inf if each is None else each for each in (message.early, message.likely, message.late)]
    assert sorted(times) == times
    assert all(each >= 0 for each in times)


def test_uneven_samples_are_read_at_even_distances() -> None:
    """A pause in which nothing was seen counts as time, not as one step."""
    samples = [*walk(count=60, drift=1.0), (600.0, 199.0)]
    message = forecast(samples, capacity=299)
    assert message.likely is not None
    assert message.likely > 500

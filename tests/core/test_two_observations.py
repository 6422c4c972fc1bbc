"""Garbage is what two observations found, at least an interval apart, and each time between."""

from podpool.core.two_observations import OBSERVATION_INTERVAL, TwoObservations


def test_one_observation_is_not_enough() -> None:
    gc: TwoObservations[str] = TwoObservations()
    assert () == gc.observe(["a", "b"], now=0.0)
    assert () == gc.observe(["a", "b"], now=OBSERVATION_INTERVAL - 1)
    assert ("a", "b") == gc.observe(["a", "b"], now=OBSERVATION_INTERVAL)


def test_an_interruption_starts_over() -> None:
    gc: TwoObservations[str] = TwoObservations()
    gc.observe(["a", "b"], now=0.0)
    gc.observe(["b"], now=1.0)
    assert ("b",) == gc.observe(["a", "b"], now=OBSERVATION_INTERVAL)

"""Garbage collection by two observations."""

from podpool.core.two_observations import TwoObservations


class TestTwoObservations:
    def test_a_candidate_is_returned_after_the_interval(self) -> None:
        observations = TwoObservations[str](60.0)
        assert () == observations.observe(["a"], now=0.0)
        assert () == observations.observe(["a", "b"], now=59.0)
        assert ("a",) == observations.observe(["a", "b"], now=60.0)

    def test_a_candidate_that_was_absent_once_starts_again(self) -> None:
        observations = TwoObservations[str](60.0)
        observations.observe(["a"], now=0.0)
        observations.observe([], now=30.0)
        assert () == observations.observe(["a"], now=60.0)
        assert ("a",) == observations.observe(["a"], now=120.0)

    def test_forgotten_and_cleared_candidates_start_again(self) -> None:
        observations = TwoObservations[str](60.0)
        observations.observe(["a", "b", "c"], now=0.0)
        observations.forget("a")
        assert {"b", "c"} == set(observations)
        assert ("b", "c") == observations.observe(["a", "b", "c"], now=60.0)
        observations.clear()
        assert 0 == len(observations)
        assert () == observations.observe(["b"], now=120.0)

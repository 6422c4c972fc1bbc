"""Exponential back-off with jitter."""

import random

from podpool.kube.backoff import Backoff, backoff_delay


def make(*, base: float = 1.0, maximum: float = 8.0) -> Backoff:
    return Backoff(rng=random.Random(1), base=base, maximum=maximum)  # noqa: S311  seeded


def test_delays_double_up_to_the_maximum_with_jitter() -> None:
    backoff = make()
    delays = [backoff.fail() for _ in range(6)]
    assert all(full / 2 <= delay <= full for full, delay in zip((1, 2, 4, 8, 8, 8), delays, strict=True))
    assert 6 == backoff.failures
    backoff.reset()
    assert 0.5 <= backoff.fail() <= 1.0


def test_a_requested_delay_is_a_minimum() -> None:
    assert 100.0 == make().fail(at_least=100.0)


def test_many_failures_do_not_overflow() -> None:
    assert backoff_delay(10_000, rng=random.Random(1), base=0.1, maximum=60.0) <= 60.0  # noqa: S311  seeded

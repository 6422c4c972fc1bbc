"""Cost per operation, by a clock that only the operations move."""

from __future__ import annotations

import pytest

from bench.timing import batched, reading_cost, repeated, spotted

READING = 0.000_000_05


class Watch:
    """A clock that moves when something works, and by a little whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += READING
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


def test_a_batch_is_as_long_as_asked_and_the_same_each_time() -> None:
    watch, batches = Watch(), []

    def loop(count: int) -> float:
        batches.append(count)
        return repeated(lambda: watch.work(0.001), clock=watch)(count)

    run = batched(loop, at_least=0.010)
    figures = [run(repetition) for repetition in range(3)]
    assert batches == [1, 2, 4, 8, 16, 16, 16, 16]
    assert pytest.approx(figures, rel=1e-4) == [1e6] * 3


def test_an_operation_timed_alone_costs_neither_what_is_around_it_nor_the_clock() -> None:
    watch = Watch()
    loop = spotted(
        lambda _: watch.work(1e-6),
        before=lambda: watch.work(1),
        after=lambda _: watch.work(1),
        clock=watch,
    )
    assert pytest.approx(loop(1000), rel=1e-6) == 1000e-6


def test_an_operation_timed_alone_is_fed_and_its_answer_is_handed_on() -> None:
    fed, answers = iter("abc"), list[str]()
    spotted(str.upper, before=lambda: next(fed), after=answers.append, clock=Watch())(3)
    assert answers == ["A", "B", "C"]


def test_reading_the_clock_has_its_price() -> None:
    assert pytest.approx(reading_cost(Watch())) == READING


def test_a_loop_that_takes_no_time_is_refused_and_not_repeated_for_ever() -> None:
    with pytest.raises(ValueError, match="takes no time"):
        batched(lambda _: 0.0, at_least=0.010)(0)

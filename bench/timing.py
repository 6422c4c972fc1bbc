"""Time per operation in nanoseconds, from batches long enough for the clock.

A loop runs the given number of operations and returns the seconds taken. `repeated` times the whole loop. `spotted`
times each operation separately, for operations with preparation that must not be measured; the cost of reading the
clock is subtracted, because a constant would hide growth.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from bench.scenario import Run

T = TypeVar("T")
R = TypeVar("R")
Clock: TypeAlias = Callable[[], float]
Loop: TypeAlias = Callable[[int], float]

_TOO_MANY = 2**40


def batched(loop: Loop, *, at_least: float) -> Run:
    """Return a run of a fixed number of operations; its first call determines how many fill a batch."""
    count = 0

    def run(_repetition: int) -> float:
        nonlocal count
        count = count or batch_size(loop, at_least=at_least)
        return loop(count) / count * 1e9

    return run


def batch_size(loop: Loop, *, at_least: float) -> int:
    """Return the first power of two of operations that takes long enough."""
    count = 1
    while loop(count) < at_least:
        count *= 2
        if count > _TOO_MANY:
            raise ValueError("the loop takes no time, however many operations it does: does it use its clock?")
    return count


def repeated(operation: Callable[[], object], *, clock: Clock = time.perf_counter) -> Loop:
    """Return a loop over one operation; the cost of the loop itself is included."""

    def loop(count: int) -> float:
        turns = itertools.repeat(None, count)
        begun = clock()
        for _ in turns:
            operation()
        return clock() - begun

    return loop


def spotted(
    operation: Callable[[T], R],
    *,
    before: Callable[[], T],
    after: Callable[[R], object] | None = None,
    clock: Clock = time.perf_counter,
) -> Loop:
    """Return a loop over an operation whose argument comes from `before` and whose result goes to `after`."""

    def loop(count: int) -> float:
        seconds = -count * reading_cost(clock)
        for _ in itertools.repeat(None, count):
            fed = before()
            begun = clock()
            answer = operation(fed)
            seconds += clock() - begun
            if after:
                after(answer)
        return seconds

    return loop


def reading_cost(clock: Clock) -> float:
    """Return the time that reading the clock adds to a measurement."""
    return statistics.median(-clock() + clock() for _ in range(101))


@contextmanager
def without_gc() -> Iterator[None]:
    """Disable the garbage collector during a measurement."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

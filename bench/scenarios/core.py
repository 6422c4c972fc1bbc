"""Cost of one decision of `podpool.core` as its input grows ten thousand times: flat or logarithmic.

Bitmaps are 99.9 % full, and the next element is drawn at random from all, so that a large structure does not stay in
the CPU cache. Drawing is not counted.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from bench.scenario import Effort, Run, Scenario, Trial, growth
from bench.timing import batched, repeated, spotted
from podpool.core.batch_ladder import BatchGrade, BatchRules, Load, Projection, SubnetDemand, batch_ladder, grade_batch
from podpool.core.bitmap import Bitmap
from podpool.core.scaling import Scaler, target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.timing import Loop

SIZES = (10**2, 10**4, 10**6)
GOAL = "< 0.15"
SCALER = Scaler(batch=16, buffer=50)
RULES = BatchRules(upper=90, margin=5, hold=60)


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Return every operation at all sizes; nothing is shared."""

    def trial(name: str, what: str, loop: Callable[[int], Loop]) -> Trial:
        @contextmanager
        def at(size: int) -> Iterator[Run]:
            yield batched(loop(size), at_least=effort.batch_seconds)

        return growth(count=f"core-{name}-growth-exponent", what=what, goal=GOAL, sizes=SIZES, at=at)

    yield (
        trial("bitmap", "find and mark the lowest free address, by the size of the bitmap, 99.9 % full", allocate),
        trial("target", "target of a node, by its demand", compute_target),
        trial("batch", "new demand of one network container and the resulting batch, by containers", report_demand),
    )


def allocate(size: int) -> Loop:
    """Mark the lowest free number, after a random one was freed."""
    rng = seeded(size)
    bitmap = Bitmap(size, full=[(0, size - 1)])
    for number in rng.sample(range(size), max(1, size // 1000)):
        bitmap.discard(number)

    def free_one() -> None:
        number = rng.randrange(size)
        while number not in bitmap:
            number = rng.randrange(size)
        bitmap.discard(number)

    def mark_lowest(_: None) -> None:
        if (number := bitmap.first_absent()) is not None:
            bitmap.add(number)

    return spotted(mark_lowest, before=free_one)


def compute_target(demand: int) -> Loop:
    """Compute a target that the node maximum does not limit."""
    return repeated(lambda: target(demand=demand, scaler=SCALER, primaries=1, maximum=10**9))


def report_demand(containers: int) -> Loop:
    """Report the demand of one network container and decide, in a subnet at the threshold of a batch change."""
    rng = seeded(containers)
    projection = Projection(batch_ladder(SCALER))
    names = [f"container-{number}" for number in range(containers)]
    for name in names:
        projection.report(name, Load(rng.randrange(100)))
    capacity = projection.totals[0] * 100 // RULES.upper
    now = count()
    state = BatchGrade()

    def changed() -> tuple[str, Load]:
        return rng.choice(names), Load(rng.randrange(100))

    def report_and_grade(change: tuple[str, Load]) -> None:
        nonlocal state
        projection.report(*change)
        demand = SubnetDemand(totals=projection.totals, capacity=capacity)
        state = grade_batch(state, demand, now=next(now), rules=RULES)

    return spotted(report_and_grade, before=changed)


def seeded(seed: int) -> Random:
    """Return randomness that is the same in every run."""
    return Random(seed)  # noqa: S311 - not for secrets


SCENARIO = Scenario(
    name="core",
    summary="bitmap, target and graded batch, from a hundred to a million: flat or logarithmic",
    ids=tuple(f"core-{name}-growth-exponent" for name in ("bitmap", "target", "batch")),
    setup=trials,
)

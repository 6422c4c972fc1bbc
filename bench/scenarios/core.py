"""What one decision of `podpool.core` costs when everything around it is ten thousand times larger.

All of it must be flat or logarithmic, where it is hardest: pools and slice tables have one in a thousand left, and what
is picked next is picked at random from all, so that a large structure cannot live in the processor's cache where it
would not in use. Picking is not counted.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from random import Random
from typing import TYPE_CHECKING, TypeVar

from bench.scenario import Effort, Run, Scenario, Trial, growth
from bench.timing import batched, repeated, spotted
from podpool.core.addresses import Family
from podpool.core.batch_policy import BatchGrade, BatchRules, Load, Projection, SubnetDemand, batch_ladder, grade_batch
from podpool.core.pool import Pool
from podpool.core.ranges import Prefix, Range
from podpool.core.scaling import Scaler, target
from podpool.core.slice_table import SliceLayout, SliceTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.timing import Loop

SIZES = (10**2, 10**4, 10**6)
SLICES = (2**7, 2**14, 2**20)  # a range is cut into a power of two: the next ones above
T = TypeVar("T")

GOAL = "< 0.15"

SUBNET = 10 << 24  # 10.0.0.0
SCALER = Scaler(batch=16, buffer=50)
RULES = BatchRules(upper=90, margin=5, hold=60)


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Every operation at its sizes; nothing is shared."""

    def trial(name: str, what: str, loop: Callable[[int], Loop], sizes: tuple[int, ...] = SIZES) -> Trial:
        @contextmanager
        def at(size: int) -> Iterator[Run]:
            yield batched(loop(size), at_least=effort.batch_seconds)

        return growth(count=f"core-{name}-growth-exponent", what=what, goal=GOAL, sizes=sizes, at=at)

    yield (
        trial("take", "take an address from a pool, by its size, 99.9 % full", taking),
        trial("give-back", "give an address back to a pool, by its size, 99.9 % full", giving_back),
        trial("target", "how many addresses a node should have, by its demand", aiming),
        trial("batch", "one container's new demand and the batch that follows, by containers", grading),
        trial("slice", "a node leaves and joins, by slices of the range, 99.9 % held", slicing, SLICES),
    )


def taking(size: int) -> Loop:
    """Take, from a pool to which a random address was given back just before."""
    chance = dice(size)
    pool, taken = nearly_full(size, chance)

    def give_back_any() -> None:
        pool.give_back(swapped_out(taken, chance))

    def take(_: None) -> int:
        return pool.take()

    return spotted(take, before=give_back_any, after=taken.append)


def giving_back(size: int) -> Loop:
    """Give back a random address, to a pool from which one was taken just before."""
    chance = dice(size)
    pool, taken = nearly_full(size, chance)

    def take_one() -> int:
        taken.append(pool.take())
        return swapped_out(taken, chance)

    return spotted(pool.give_back, before=take_one)


def aiming(demand: int) -> Loop:
    """Compute a node's target, with a maximum that does not get in the way."""
    return repeated(lambda: target(demand=demand, scaler=SCALER, primaries=1, maximum=10**9))


def grading(containers: int) -> Loop:
    """Report one container and decide, in a subnet that is filled to where the batch is about to change."""
    chance = dice(containers)
    projection = Projection(batch_ladder(SCALER))
    names = [f"container-{number}" for number in range(containers)]
    for name in names:
        projection.report(name, Load(chance.randrange(100)))
    capacity = projection.totals[0] * 100 // RULES.upper
    now = count()
    state = BatchGrade()

    def changed() -> tuple[str, Load]:
        return chance.choice(names), Load(chance.randrange(100))

    def report_and_grade(change: tuple[str, Load]) -> None:
        nonlocal state
        projection.report(*change)
        view = SubnetDemand(totals=projection.totals, capacity=capacity)
        state = grade_batch(state, view, now=next(now), rules=RULES)

    return spotted(report_and_grade, before=changed)


def slicing(slices: int) -> Loop:
    """Let a random node leave and join again, in a table that has one slice in a thousand left."""
    chance = dice(slices)
    table = SliceTable(SliceLayout(Prefix(Family.V6, 0xFD << 120, 40), 40 + slices.bit_length() - 1))
    names = [f"node-{number}" for number in range(slices)]
    for name in names:
        table.join(name)
    for _ in range(left_free(slices)):
        table.leave(swapped_out(names, chance))

    def leave_and_join(name: str) -> None:
        table.leave(name)
        table.join(name)

    return spotted(leave_and_join, before=lambda: chance.choice(names))


def nearly_full(size: int, chance: Random) -> tuple[Pool, list[int]]:
    """A pool whose few free addresses are anywhere, and the addresses that are taken."""
    pool = Pool(Range(Family.V4, SUBNET, SUBNET + size - 1))
    taken = [pool.take() for _ in range(size)]
    for _ in range(left_free(size)):
        pool.give_back(swapped_out(taken, chance))
    return pool, taken


def dice(seed: int) -> Random:
    """Chance that falls the same way in every run."""
    return Random(seed)  # noqa: S311 - nobody gains by guessing it


def left_free(size: int) -> int:
    """One in a thousand, and at least one."""
    return max(1, size // 1000)


def swapped_out(items: list[T], chance: Random) -> T:
    """Take a random item out of a list without moving the others."""
    at = int(chance.random() * len(items))
    items[at], items[-1] = items[-1], items[at]
    return items.pop()


SCENARIO = Scenario(
    name="core",
    sentence="take, give back, target, graded batch and slices, from a hundred to a million: flat or logarithmic",
    ids=tuple(f"core-{name}-growth-exponent" for name in ("take", "give-back", "target", "batch", "slice")),
    setup=trials,
)

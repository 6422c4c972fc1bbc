"""Graded batch of a subnet: smaller as the subnet fills, larger when it has free addresses again.

Invariant: the batch depends only on the demand of all network containers on the subnet, in all clusters, never on the
result of earlier decisions. So it does not oscillate, and it settles while demand is constant.

The batch steps down at once, and up only when the higher rung has fitted with a margin for the hold. Below batch 1 is a
last rung without buffer, used while a Pod waits: no address is idle while a Pod waits. Each rung divides the one above;
otherwise a smaller batch could reserve more in total than a larger one.
"""

from collections.abc import Hashable, Sequence
from itertools import count

import msgspec

from podpool.core.scaling import Scaler, target


class Load(msgspec.Struct, frozen=True, gc=False):
    """The demand of one network container (NC)."""

    demand: int
    primaries: int = 1
    maximum: int = 250
    pinned: Scaler | None = None
    """The scaler that its cluster overrides the subnet's with."""

    def reservation(self, scaler: Scaler) -> int:
        """Return the addresses that the NC will hold with a scaler, primaries included."""
        used = self.pinned or scaler
        return target(demand=self.demand, scaler=used, primaries=self.primaries, maximum=self.maximum) + self.primaries


class BatchRules(msgspec.Struct, frozen=True, kw_only=True):
    """When the rung changes; shares in hundredths of the capacity."""

    upper: int
    margin: int
    hold: float


class BatchGrade(msgspec.Struct, frozen=True):
    """The rung of a subnet, and since when a higher rung fits."""

    rung: int = 0
    better_since: float | None = None
    better: int = 0
    """The lowest rung that has fitted since then."""


def batch_ladder(scaler: Scaler) -> tuple[Scaler, ...]:
    """Return the rungs, each the largest proper divisor of the one before; the last has no buffer."""
    batches = [scaler.batch]
    while batches[-1] > 1:
        batch = batches[-1]
        batches.append(batch // next(divisor for divisor in count(2) if batch % divisor == 0))
    return (*(Scaler(batch, scaler.buffer) for batch in batches), Scaler(1, 0))


class Projection:
    """The total reservation of all NCs of a subnet on each rung, updated incrementally."""

    def __init__(self, rungs: Sequence[Scaler]) -> None:
        self.rungs = tuple(rungs)
        self.totals = [0] * len(self.rungs)
        self._loads: dict[Hashable, Load] = {}

    def report(self, nc: Hashable, load: Load) -> None:
        """Set the load of an NC."""
        before = self._loads.get(nc)
        self._loads[nc] = load  # in place: a pop and insert would make a large dict rehash now and then
        self._count(load, +1)
        if before is not None:
            self._count(before, -1)

    def drop(self, nc: Hashable) -> None:
        """Remove an NC if it is known."""
        before = self._loads.pop(nc, None)
        if before is not None:
            self._count(before, -1)

    def _count(self, load: Load, sign: int) -> None:
        for rung, scaler in enumerate(self.rungs):
            self.totals[rung] += sign * load.reservation(scaler)


class SubnetDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of the decision about a subnet's rung."""

    totals: Sequence[int]
    """The total reservation of all NCs on each rung."""
    capacity: int
    waiting: bool = False
    """A Pod on the subnet waits for an address that could not be granted."""
    settled: bool = True
    """Every NC's demand is reported, or inferred from a request under the published scaler."""


def grade_batch(before: BatchGrade, view: SubnetDemand, *, now: float, rules: BatchRules) -> BatchGrade:
    """Return the rung of a subnet."""
    totals, capacity = view.totals, view.capacity
    last = len(totals) - 1
    if view.waiting:
        return BatchGrade(last)
    if before.rung == last:
        fits = 100 * totals[last - 1] <= (100 - rules.margin) * capacity
        better = last - 1 if fits else last
    else:
        fitting = _largest_fitting(totals, limit=rules.upper * capacity)
        if fitting > before.rung:
            return BatchGrade(fitting)
        better = _largest_fitting(totals, limit=(rules.upper - rules.margin) * capacity)
    return _hold(before, better=better if view.settled else before.rung, now=now, hold=rules.hold)


def _hold(before: BatchGrade, *, better: int, now: float, hold: float) -> BatchGrade:
    """Step up when a better rung has fitted for the hold, to the lowest that did."""
    if better >= before.rung:
        return BatchGrade(before.rung)
    if before.better_since is None:
        since, lowest = now, better
    else:
        since, lowest = before.better_since, max(before.better, better)
    return BatchGrade(lowest) if now - since >= hold else BatchGrade(before.rung, since, lowest)


def _largest_fitting(totals: Sequence[int], *, limit: int) -> int:
    """Return the first rung with a buffer whose total fits; the last of them if none does."""
    buffered = range(len(totals) - 1)
    return next((rung for rung in buffered if 100 * totals[rung] <= limit), buffered[-1])

"""The batch of a subnet, graded: it shrinks as the subnet fills, and grows again when there is room.

What must hold: the batch is decided from demand alone, from all containers on the subnet in whichever cluster, never
from what earlier decisions caused. So it cannot chase itself, and a constant demand makes it settle.

A rung is left downwards at once, upwards only when the higher one has fitted with a margin for a while. Below the last
batch of 1 lies one more rung, without any buffer, for as long as a Pod waits: no idle address beside a waiting Pod.
Rungs divide one another, or a smaller batch could hold more in total than a larger one.
"""

from collections.abc import Hashable, Sequence
from itertools import count

import msgspec

from podpool.core.scaling import Scaler, target


class Load(msgspec.Struct, frozen=True, gc=False):
    """What one container asks of its subnet."""

    demand: int
    primaries: int = 1
    maximum: int = 250
    pinned: Scaler | None = None
    """The scaler that its cluster insists on, whatever the subnet decides."""

    def reservation(self, scaler: Scaler) -> int:
        """Count the addresses that it will hold, primaries too."""
        used = self.pinned or scaler
        return target(demand=self.demand, scaler=used, primaries=self.primaries, maximum=self.maximum) + self.primaries


class BatchRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a rung is left; shares in hundredths of the capacity."""

    upper: int
    margin: int
    hold: float


class BatchGrade(msgspec.Struct, frozen=True):
    """Where on the ladder a subnet is, and since when a higher rung fits."""

    rung: int = 0
    better_since: float | None = None
    better: int = 0
    """The lowest of the rungs that fitted since then."""


def batch_ladder(scaler: Scaler) -> tuple[Scaler, ...]:
    """List the rungs from the whole batch down, each the largest proper divisor of the one before; the last is bare."""
    batches = [scaler.batch]
    while batches[-1] > 1:
        batch = batches[-1]
        batches.append(batch // next(divisor for divisor in count(2) if batch % divisor == 0))
    return (*(Scaler(batch, scaler.buffer) for batch in batches), Scaler(1, 0))


class Projection:
    """What all containers of a subnet will hold, on each rung: kept up to date by differences."""

    def __init__(self, rungs: Sequence[Scaler]) -> None:
        self.rungs = tuple(rungs)
        self.totals = [0] * len(self.rungs)
        self._loads: dict[Hashable, Load] = {}

    def report(self, container: Hashable, load: Load) -> None:
        """Take in what a container asks for now."""
        before = self._loads.get(container)
        self._loads[container] = load  # in place: taken out and put in again, a dict of a million stops to tidy up
        self._count(load, +1)
        if before is not None:
            self._count(before, -1)

    def drop(self, container: Hashable) -> None:
        """Leave a container out; one that is not known is left out already."""
        before = self._loads.pop(container, None)
        if before is not None:
            self._count(before, -1)

    def _count(self, load: Load, sign: int) -> None:
        for rung, scaler in enumerate(self.rungs):
            self.totals[rung] += sign * load.reservation(scaler)


class SubnetDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a subnet when its rung is decided."""

    totals: Sequence[int]
    """What all containers would hold on each rung."""
    capacity: int
    waiting: bool = False
    """A Pod somewhere on the subnet has been answered short."""
    settled: bool = True
    """Every container's demand is known, or its request answers the scaler in force."""


def grade_batch(before: BatchGrade, view: SubnetDemand, *, now: float, rules: BatchRules) -> BatchGrade:
    """Decide the rung of a subnet."""
    totals, capacity = view.totals, view.capacity
    bare = len(totals) - 1
    if view.waiting:
        return BatchGrade(bare)
    if before.rung == bare:
        room = 100 * totals[bare - 1] <= (100 - rules.margin) * capacity
        better = bare - 1 if room else bare
    else:
        fitting = _largest_fitting(totals, limit=rules.upper * capacity)
        if fitting > before.rung:
            return BatchGrade(fitting)
        better = _largest_fitting(totals, limit=(rules.upper - rules.margin) * capacity)
    return _hold(before, better=better if view.settled else before.rung, now=now, hold=rules.hold)


def _hold(before: BatchGrade, *, better: int, now: float, hold: float) -> BatchGrade:
    """Go up when a better rung has lasted, to the lowest of those that did."""
    if better >= before.rung:
        return BatchGrade(before.rung)
    if before.better_since is None:
        since, lowest = now, better
    else:
        since, lowest = before.better_since, max(before.better, better)
    return BatchGrade(lowest) if now - since >= hold else BatchGrade(before.rung, since, lowest)


def _largest_fitting(totals: Sequence[int], *, limit: int) -> int:
    """Find the first rung whose total fits, of those with a buffer; the last of them when none does."""
    buffered = range(len(totals) - 1)
    return next((rung for rung in buffered if 100 * totals[rung] <= limit), buffered[-1])

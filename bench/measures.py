"""Measures computed from a trial's samples: ratio of two sides, median of one side, exponent of growth.

All use medians, so that one interrupted repetition has no effect. Spread is the interquartile range over the median:
for a ratio that of the ratios within each round, because a slow round slows both sides; for an exponent that of the
least steady size.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from bench.goals import check_goal

if TYPE_CHECKING:
    from bench.results import Figures

Samples: TypeAlias = Mapping[str, Sequence[float]]
"""Figures of every side, one per round, in order."""


class Reading(Struct, frozen=True, kw_only=True):
    """Value of a measure with its spread."""

    value: float
    unit: str | None
    """None means the unit of the samples."""
    ours: Figures
    theirs: Figures | None
    spread: float


class Measure(Struct, frozen=True, kw_only=True):
    """Base of measures: id, description and goal."""

    id: str
    what: str
    goal: str | None = None

    def __post_init__(self) -> None:
        check_goal(self.goal)


class Ratio(Measure, frozen=True, kw_only=True):
    """How many times better ours is than theirs; with several peers, than the best of them."""

    ours: str
    theirs: str | tuple[str, ...]
    better: Literal["lower", "higher"]

    def read(self, samples: Samples) -> Reading:
        """Compare medians; the spread is that of the ratios of each round."""
        names = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        best = (min if self.better == "lower" else max)(names, key=lambda name: median(samples[name]))
        ours, theirs = samples[self.ours], samples[best]
        return Reading(
            value=self._times(median(ours), median(theirs)),
            unit="ratio",
            ours=median(ours),
            theirs=median(theirs) if len(names) == 1 else {name: median(samples[name]) for name in names},
            spread=spread([self._times(*pair) for pair in zip(ours, theirs, strict=True)]),
        )

    def _times(self, ours: float, theirs: float) -> float:
        return theirs / ours if self.better == "lower" else ours / theirs


class Median(Measure, frozen=True, kw_only=True):
    """Median of one side; other sides are reported beside it."""

    side: str

    def read(self, samples: Samples) -> Reading:
        """Return the median of the rounds."""
        ours = median(samples[self.side])
        theirs = {name: median(figures) for name, figures in samples.items() if name != self.side}
        return Reading(value=ours, unit=None, ours=ours, theirs=theirs or None, spread=spread(samples[self.side]))


class Exponent(Measure, frozen=True, kw_only=True):
    """Growth of cost with size: 0 is constant, 1 is linear. Sides are named by size."""

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.sizes)) < 3:
            raise ValueError(f"{self.id}: growth needs three sizes or more, not {self.sizes}")

    def read(self, samples: Samples) -> Reading:
        """Fit a power of the size to the medians."""
        costs = {size: median(samples[str(size)]) for size in self.sizes}
        return Reading(
            value=exponent(costs),
            unit="exponent",
            ours={str(size): cost for size, cost in costs.items()},
            theirs=None,
            spread=max(spread(samples[str(size)]) for size in self.sizes),
        )


Count: TypeAlias = Ratio | Median | Exponent


def median(figures: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(figures)


def spread(figures: Sequence[float]) -> float:
    """Return the interquartile range over the median, or over the largest figure when the median is 0."""
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return (high - low) / (abs(middle) or max(map(abs, figures)) or 1)


def exponent(costs: Mapping[int, float]) -> float:
    """Return the slope of log(cost) over log(size), by least squares."""
    if min(costs.values()) <= 0:
        raise ValueError(f"growth is a power of the size, which is never 0 or below: {costs}")
    sizes = [log(size) for size in costs]
    return statistics.linear_regression(sizes, [log(cost) for cost in costs.values()]).slope

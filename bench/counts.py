"""What is counted from a trial's figures: a ratio of two sides, one side's median, or the exponent of growth.

Always from medians, so that one interrupted repetition moves nothing. The spread is the interquartile range over the
median: for a ratio, of the ratios within each round, because what slows a round slows both sides; for an exponent, of
the size whose cost was least steady, because an exponent near 0 has no spread in proportion to itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from bench.goals import check_goal

if TYPE_CHECKING:
    from bench.book import Figures

Samples: TypeAlias = Mapping[str, Sequence[float]]
"""Every side's figures, one per round, in the order of the rounds."""


class Reading(Struct, frozen=True, kw_only=True):
    """What a count makes of the samples."""

    value: float
    unit: str | None
    """None is the unit of the samples."""
    ours: Figures
    theirs: Figures | None
    spread: float


class Counted(Struct, frozen=True, kw_only=True):
    """What all counts tell: the id in docs/benchmarks.json, one line for its reader, and the goal."""

    id: str
    what: str
    goal: str | None = None

    def __post_init__(self) -> None:
        check_goal(self.goal)


class Ratio(Counted, frozen=True, kw_only=True):
    """How many times better ours is than theirs; of several theirs, than the best of them."""

    ours: str
    theirs: str | tuple[str, ...]
    better: Literal["lower", "higher"]

    def read(self, samples: Samples) -> Reading:
        """Compare the medians; the spread is that of the rounds' own ratios."""
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


class Median(Counted, frozen=True, kw_only=True):
    """One side's figure as it is; other sides, where there are any, are told beside it."""

    side: str

    def read(self, samples: Samples) -> Reading:
        """Take the middle of the rounds."""
        ours = median(samples[self.side])
        theirs = {name: median(figures) for name, figures in samples.items() if name != self.side}
        return Reading(value=ours, unit=None, ours=ours, theirs=theirs or None, spread=spread(samples[self.side]))


class Exponent(Counted, frozen=True, kw_only=True):
    """How cost grows with size: 0 is flat, 1 is linear. The sides are named by their sizes."""

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
    """The middle figure."""
    return statistics.median(figures)


def spread(figures: Sequence[float]) -> float:
    """Interquartile range over median. Where the median is 0, over the largest figure: counts of mostly 0 have one."""
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return (high - low) / (abs(middle) or max(map(abs, figures)) or 1)


def exponent(costs: Mapping[int, float]) -> float:
    """The slope of log(cost) over log(size), by least squares."""
    if min(costs.values()) <= 0:
        raise ValueError(f"growth is a power of the size, which is never 0 or below: {costs}")
    sizes = [log(size) for size in costs]
    return statistics.linear_regression(sizes, [log(cost) for cost in costs.values()]).slope

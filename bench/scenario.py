"""Declarations of a benchmark: its setup, what each side runs, and what is measured.

A scenario is one `make bench-NAME`. Its `setup` starts what all trials share and yields the trials. A trial runs its
sides in turn; a side's `setup` yields `run`, which performs one repetition and returns its figure in the trial's
unit. All of it is synchronous: an asynchronous side has its own `asyncio.Runner`, so that only its loop runs while it
is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from bench.measures import Count, Exponent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

Run: TypeAlias = Callable[[int], float]
"""One repetition. Its number is unique, including warm-up, so it can be part of names."""


class Effort(Struct, frozen=True, kw_only=True):
    """Effort of a run. A scenario does less per repetition if `quick` is set, to end within a minute."""

    rounds: int
    warmups: int
    batch_seconds: float
    quick: bool


# 10 ms is 10^5 times what reading the clock costs.
FULL = Effort(rounds=25, warmups=3, batch_seconds=0.010, quick=False)
QUICK = Effort(rounds=5, warmups=1, batch_seconds=0.010, quick=True)


class Side(Struct, frozen=True):
    """One side of a comparison: name, setup and version."""

    name: str
    setup: Callable[[], AbstractContextManager[Run]]
    version: str | None = None


class Trial(Struct, frozen=True, kw_only=True):
    """Interleaved sides, the unit of their figures, and the measures taken from them."""

    sides: tuple[Side, ...]
    unit: str
    counts: tuple[Count, ...]
    at_most: int | None = None
    """Maximum of rounds, for trials that take minutes each; at least two, to measure noise."""
    warmed: int | None = None
    """Warm-up rounds, for trials whose rounds start new processes and need fewer."""

    def __post_init__(self) -> None:
        names = [side.name for side in self.sides]
        if len(set(names)) < len(names):
            raise ValueError(f"two sides of one trial have the same name: {', '.join(names)}")
        if self.at_most is not None and self.at_most < 2:
            raise ValueError(f"a trial has two rounds or more, not {self.at_most}")

    def rounds(self, effort: Effort) -> int:
        """Number of rounds that count."""
        return min(effort.rounds, self.at_most or effort.rounds)

    def warmups(self, effort: Effort) -> int:
        """Number of warm-up rounds."""
        return effort.warmups if self.warmed is None else self.warmed

    def versions(self) -> Mapping[str, str]:
        """Versions of the sides that have one."""
        return {side.name: side.version for side in self.sides if side.version}


class Scenario(Struct, frozen=True, kw_only=True):
    """One `make bench-NAME`. The ids are declared, so that a result can be traced to its scenario."""

    name: str
    summary: str
    ids: tuple[str, ...]
    setup: Callable[[Effort], AbstractContextManager[tuple[Trial, ...]]]

    @property
    def command(self) -> str:
        """Command that repeats the measurement."""
        return f"make bench-{self.name}"


def each_turn(run: Run) -> Callable[[], AbstractContextManager[Run]]:
    """Return the setup of a side that needs only the number of its turn."""

    @contextmanager
    def setup() -> Iterator[Run]:
        yield run

    return setup


def growth(
    *,
    count: str,
    what: str,
    goal: str | None,
    sizes: tuple[int, ...],
    at: Callable[[int], AbstractContextManager[Run]],
    unit: str = "ns",
) -> Trial:
    """Return a trial of one operation `at` several sizes; its measure is the exponent of growth."""
    sides = tuple(Side(str(size), partial(at, size)) for size in sizes)
    return Trial(sides=sides, unit=unit, counts=(Exponent(id=count, what=what, goal=goal, sizes=sizes),))

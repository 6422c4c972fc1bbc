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
"""One repetition. Its number is new each time, warming included: good for names that must not meet again."""


class Effort(Struct, frozen=True, kw_only=True):
    """How long to look. A scenario asks `quick` where it must do less in a repetition to end within a minute."""

    rounds: int
    warmups: int
    batch_seconds: float
    quick: bool


# 10 ms is 10^5 times what reading the clock costs.
FULL = Effort(rounds=25, warmups=3, batch_seconds=0.010, quick=False)
QUICK = Effort(rounds=5, warmups=1, batch_seconds=0.010, quick=True)


class Side(Struct, frozen=True):
    """One of those that are compared: a name, how it is brought up and taken down, and which version it is."""

    name: str
    setup: Callable[[], AbstractContextManager[Run]]
    version: str | None = None


class Trial(Struct, frozen=True, kw_only=True):
    """Sides that take turns, the unit of what they return, and what is counted from it."""

    sides: tuple[Side, ...]
    unit: str
    counts: tuple[Count, ...]
    at_most: int | None = None
    """Rounds, for trials that take minutes each; two at least, or nothing could be said about noise."""
    warmed: int | None = None
    """Turns that do not count, where each begins with new processes and need not be warmed as often."""

    def __post_init__(self) -> None:
        names = [side.name for side in self.sides]
        if len(set(names)) < len(names):
            raise ValueError(f"two sides of one trial have the same name: {', '.join(names)}")
        if self.at_most is not None and self.at_most < 2:
            raise ValueError(f"a trial has two rounds or more, not {self.at_most}")

    def rounds(self, effort: Effort) -> int:
        """How many rounds count."""
        return min(effort.rounds, self.at_most or effort.rounds)

    def warmups(self, effort: Effort) -> int:
        """How many turns before them do not."""
        return effort.warmups if self.warmed is None else self.warmed

    def versions(self) -> Mapping[str, str]:
        """Who took part, where it matters which one."""
        return {side.name: side.version for side in self.sides if side.version}


class Scenario(Struct, frozen=True, kw_only=True):
    """One `make bench-NAME`. The ids are declared, so that a result can be traced to its scenario."""

    name: str
    summary: str
    ids: tuple[str, ...]
    setup: Callable[[Effort], AbstractContextManager[tuple[Trial, ...]]]

    @property
    def command(self) -> str:
        """What a person types to measure this again."""
        return f"make bench-{self.name}"


def each_turn(run: Run) -> Callable[[], AbstractContextManager[Run]]:
    """The setup of a side that needs nothing but its turn."""

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
    """A trial whose sides are one operation `at` several sizes; the exponent of its cost is what counts."""
    sides = tuple(Side(str(size), partial(at, size)) for size in sizes)
    return Trial(sides=sides, unit=unit, counts=(Exponent(id=count, what=what, goal=goal, sizes=sizes),))

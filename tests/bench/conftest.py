"""Sides that need no clock, and a place to keep results that is not docs/."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from bench.measures import Median, Ratio
from bench.results import Result
from bench.scenario import Effort, Run, Scenario, Side, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    MakeResult = Callable[..., Result]
    MakeSide = Callable[[str, Sequence[float]], Side]
    MakeScenario = Callable[..., Scenario]


@pytest.fixture
def diary() -> list[str]:
    """What happened to the sides, in order."""
    return []


@pytest.fixture
def make_side(diary: list[str]) -> MakeSide:
    """A side whose figures are given: the first ones are for warming, and the last one is repeated."""

    def make(name: str, figures: Sequence[float]) -> Side:
        @contextmanager
        def setup() -> Iterator[Run]:
            def run(repetition: int) -> float:
                diary.append(f"{name}{repetition}")
                return figures[min(repetition, len(figures) - 1)]

            diary.append(f"{name} up")
            yield run
            diary.append(f"{name} down")

        return Side(name, setup, version=f"version of {name}")

    return make


@pytest.fixture
def make_scenario(make_side: MakeSide) -> MakeScenario:
    """A scenario `NAME` that compares two sides of constant cost and measures `NAME-ratio` and `NAME-figure`."""

    def make(name: str, *, ours: Sequence[float] = (2,), theirs: Sequence[float] = (8,)) -> Scenario:
        ratio = Ratio(id=f"{name}-ratio", what="us", goal=">= 5", ours="ours", theirs="theirs", better="lower")
        figure = Median(id=f"{name}-figure", what="ours alone", side="ours")

        @contextmanager
        def setup(_: Effort) -> Iterator[tuple[Trial, ...]]:
            sides = (make_side("ours", ours), make_side("theirs", theirs))
            yield (Trial(sides=sides, unit="ms", counts=(ratio, figure)),)

        return Scenario(name=name, summary=f"the sentence of {name}", ids=(ratio.id, figure.id), setup=setup)

    return make


@pytest.fixture
def make_result() -> MakeResult:
    """A result, of which a test says only what it is about."""

    def make(name: str, **differences: object) -> Result:
        usual = {
            "what": f"what {name} is",
            "value": 4.0,
            "unit": "ratio",
            "goal": ">= 5",
            "ours": 2.0,
            "theirs": 8.0,
            "measured_in": "ms",
            "spread": 0.03,
            "command": "make bench-some",
            "when": "2024-02-03T04:05:06+00:00",
        }
        return Result(id=name, **(usual | differences))  # type: ignore[arg-type] # tests hand in what fits

    return make

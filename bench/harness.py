"""Runs a scenario: every side is warmed, sides take turns, and each count is read from the same rounds.

The order turns around with every round (A B, B A, A B, ...), so that a machine that gets slower or faster during a
trial does so for all sides alike. Sides of one trial are all up at once; figures of the first turns are thrown away.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import floor, log10
from typing import TYPE_CHECKING

from msgspec import Struct

from bench.book import NOISY_ABOVE, Result
from bench.timing import without_gc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from bench.book import Figures
    from bench.counts import Count, Samples
    from bench.scenario import Effort, Scenario, Trial


class Outcome(Struct, frozen=True, kw_only=True):
    """What a scenario measured, and the versions of those who took part."""

    results: tuple[Result, ...]
    versions: Mapping[str, str]


def measure(
    scenario: Scenario,
    effort: Effort,
    *,
    now: Callable[[], datetime],
    tell: Callable[[str], None],
) -> Outcome:
    """Run all trials of a scenario, one after the other."""
    results: list[Result] = []
    versions: dict[str, str] = {}
    with scenario.setup(effort) as trials:
        check_ids(scenario, trials)
        for trial in trials:
            tell(f"{scenario.name}: {', '.join(count.id for count in trial.counts)} ...")
            samples = sample(trial, effort)
            when = now().isoformat(timespec="seconds")
            results += [result(count, trial.unit, samples, scenario.command, when) for count in trial.counts]
            versions |= trial.versions()
    return Outcome(results=tuple(results), versions=versions)


def check_ids(scenario: Scenario, trials: tuple[Trial, ...]) -> None:
    """Hold a scenario to the ids that it declared."""
    counted = sorted(count.id for trial in trials for count in trial.counts)
    if counted != sorted(scenario.ids):
        raise ValueError(f"{scenario.name} declares {sorted(scenario.ids)} and counts {counted}")


def sample(trial: Trial, effort: Effort) -> Samples:
    """Let the sides take turns; what the warming turns gave is left out."""
    figures: dict[str, list[float]] = {side.name: [] for side in trial.sides}
    warmups = trial.warmups(effort)
    with ExitStack() as up:
        runs = [(side.name, up.enter_context(side.setup())) for side in trial.sides]
        for turn in range(warmups + trial.rounds(effort)):
            for name, run in runs if turn % 2 == 0 else reversed(runs):
                with without_gc():
                    figures[name].append(run(turn))
    return {name: all_figures[warmups:] for name, all_figures in figures.items()}


def result(count: Count, unit: str, samples: Samples, command: str, when: str) -> Result:
    """Read one count from the samples of its trial."""
    reading = count.read(samples)
    return Result(
        id=count.id,
        what=count.what,
        value=rounded(reading.value),
        unit=reading.unit or unit,
        goal=count.goal,
        ours=_rounded_all(reading.ours),
        theirs=None if reading.theirs is None else _rounded_all(reading.theirs),
        measured_in=unit,
        spread=rounded(reading.spread),
        noisy=reading.spread > NOISY_ABOVE,
        command=command,
        when=when,
    )


def rounded(figure: float) -> float:
    """Four significant digits: more than any of these figures deserves, few enough to read a difference."""
    return round(figure, 3 - floor(log10(abs(figure)))) if figure else 0.0


def _rounded_all(figures: Figures) -> Figures:
    if isinstance(figures, dict):
        return {name: rounded(figure) for name, figure in figures.items()}
    return rounded(figures)

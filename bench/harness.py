"""Runs a scenario: warm-up, interleaved sides, and all measures from the same rounds.

The order of the sides alternates (A B, B A, A B, ...), so that drift of the machine affects all sides alike. All
sides of a trial are up at once; warm-up rounds are discarded.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import floor, log10
from typing import TYPE_CHECKING

from msgspec import Struct

from bench.results import NOISY_ABOVE, Result
from bench.timing import without_gc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from bench.measures import Count, Samples
    from bench.results import Figures
    from bench.scenario import Effort, Scenario, Trial


class Outcome(Struct, frozen=True, kw_only=True):
    """Results of a scenario, and the versions of its participants."""

    results: tuple[Result, ...]
    versions: Mapping[str, str]


def measure(
    scenario: Scenario,
    effort: Effort,
    *,
    now: Callable[[], datetime],
    log: Callable[[str], None],
) -> Outcome:
    """Run all trials of a scenario."""
    results: list[Result] = []
    versions: dict[str, str] = {}
    with scenario.setup(effort) as trials:
        check_ids(scenario, trials)
        for trial in trials:
            log(f"{scenario.name}: {', '.join(count.id for count in trial.counts)} ...")
            samples = sample(trial, effort)
            when = now().isoformat(timespec="seconds")
            results += [result(count, trial.unit, samples, scenario.command, when) for count in trial.counts]
            versions |= trial.versions()
    return Outcome(results=tuple(results), versions=versions)


def check_ids(scenario: Scenario, trials: tuple[Trial, ...]) -> None:
    """Raise an error unless the scenario measures exactly the ids that it declares."""
    counted = sorted(count.id for trial in trials for count in trial.counts)
    if counted != sorted(scenario.ids):
        raise ValueError(f"{scenario.name} declares {sorted(scenario.ids)} and counts {counted}")


def sample(trial: Trial, effort: Effort) -> Samples:
    """Run the sides in turns and return their figures without warm-up."""
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
    """Compute one measure from the samples of its trial."""
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
    """Round to four significant digits."""
    return round(figure, 3 - floor(log10(abs(figure)))) if figure else 0.0


def _rounded_all(figures: Figures) -> Figures:
    if isinstance(figures, dict):
        return {name: rounded(figure) for name, figure in figures.items()}
    return rounded(figures)

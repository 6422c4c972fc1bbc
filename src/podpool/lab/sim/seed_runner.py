"""Runs seeds, and shrinks the scenario of a violation.

A failure is reported with its seed, the events that reproduce it, the violation, and the state of every component.
Every exception becomes such a report: what a worker process raised would have to be pickled for its parent.
"""

import traceback
from collections.abc import Callable, Iterable

import msgspec

from podpool.lab.sim.profiles import PROFILES, Profile
from podpool.lab.sim.scenario import ScenarioEvent, draw
from podpool.lab.sim.scenario_runner import FAILURES, ScenarioRunner

MAX_RUNS = 200
"""Runs that shrinking may take."""


class SeedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A seed that failed, with its shrunk scenario."""

    seed: int
    profile: str
    error: str
    events: tuple[ScenarioEvent, ...]
    drawn: int
    """The number of events before shrinking."""
    state: str
    """The state of every component at the failure."""
    traceback: str

    def __str__(self) -> str:
        events = (f"  {event}" for event in self.events)
        count = f"{len(self.events)} of {self.drawn} events reproduce it:"
        title = f"seed {self.seed} of {self.profile}: {self.error}"
        return "\n".join((title, count, *events, *filter(None, (self.state, self.traceback))))


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run."""

    seed: int
    steps: int
    error: str | None = None
    state: str = ""
    """The state of every component at the failure."""
    traceback: str = ""


def run_scenario(seed: int, events: Iterable[ScenarioEvent], profile: Profile) -> RunResult:
    """Run one scenario."""
    runner = None
    try:
        runner = ScenarioRunner(seed, profile)
        runner.run(list(events))
    except FAILURES as error:
        return RunResult(
            seed=seed,
            steps=runner.steps if runner else 0,
            error=_described(error),
            state=runner.state_at_failure if runner else "",
            traceback=_traceback(error),
        )
    return RunResult(seed=seed, steps=runner.steps)


def run_and_shrink(seed: int, name: str) -> RunResult | SeedFailure:
    """Run a seed of a profile; on failure shrink its scenario as long as the same kind of error occurs."""
    try:
        return _run_and_shrink(seed, name)
    except FAILURES as error:
        return SeedFailure(
            seed=seed,
            profile=name,
            error=_described(error),
            events=(),
            drawn=0,
            state="",
            traceback=_traceback(error),
        )


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _run_and_shrink(seed: int, name: str) -> RunResult | SeedFailure:
    profile = PROFILES[name]
    scenario = draw(seed, profile)
    first = run_scenario(seed, scenario, profile)
    if first.error is None:
        return first
    kind, last = first.error.split(":")[:2], first

    def fails(events: list[ScenarioEvent]) -> bool:
        nonlocal last
        result = run_scenario(seed, events, profile)
        if result.error is None or result.error.split(":")[:2] != kind:
            return False
        last = result
        return True

    shrunk = shrink(scenario, fails)
    return SeedFailure(
        seed=seed,
        profile=name,
        error=last.error or first.error,
        events=tuple(shrunk),
        drawn=len(scenario),
        state=last.state,
        traceback=last.traceback,
    )


def shrink(
    events: list[ScenarioEvent], fails: Callable[[list[ScenarioEvent]], bool], *, runs: int = MAX_RUNS
) -> list[ScenarioEvent]:
    """Omit ever smaller parts of a scenario as long as it still fails."""
    size = len(events) // 2
    while size and runs > 0:
        at = 0
        while at < len(events) and runs > 0:
            fewer = events[:at] + events[at + size :]
            runs -= 1
            if fails(fewer):
                events = fewer
            else:
                at += size
        size //= 2
    return events

"""Runs seeds, and shrinks the scenario of a violation.

A failure is reported with its seed, the events that reproduce it, the violation, and the state of every component.
"""

from collections.abc import Callable, Iterable

import msgspec

from podpool.lab.sim.profiles import PROFILES, Profile
from podpool.lab.sim.runner import ScenarioRunner
from podpool.lab.sim.scenario import ScenarioEvent, draw

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

    def __str__(self) -> str:
        history = "\n".join(f"  {event}" for event in self.events)
        count = f"{len(self.events)} of {self.drawn} events reproduce it"
        return f"seed {self.seed} of {self.profile}: {self.error}\n{count}:\n{history}\n{self.state}"


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run."""

    seed: int
    steps: int
    error: str | None = None
    state: str = ""
    """The state of every component at the failure."""


def run_scenario(seed: int, events: Iterable[ScenarioEvent], profile: Profile) -> RunResult:
    """Run one scenario."""
    runner = ScenarioRunner(seed, profile)
    try:
        runner.run(list(events))
    except Exception as error:  # noqa: BLE001  every exception is a finding
        text = f"{type(error).__name__}: {error}"
        return RunResult(seed=seed, steps=runner.steps, error=text, state=runner.dump_state())
    return RunResult(seed=seed, steps=runner.steps)


def run_and_shrink(seed: int, name: str) -> RunResult | SeedFailure:
    """Run a seed of a profile; on failure shrink its scenario as long as the same kind of error occurs."""
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

"""Runs seeds, and makes the history of a violation as short as it can.

A violation is told with its seed, the events that are needed to show it, and the sentence of what is wrong.
"""

from collections.abc import Callable, Iterable

import msgspec

from podpool.lab.sim.runner import Stage
from podpool.lab.sim.scenario import CLIMATES, Climate, Event, draw

MOST_RUNS = 200
"""Runs that shortening may take."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A seed that went wrong."""

    seed: int
    climate: str
    error: str
    events: tuple[Event, ...]
    drawn: int
    state: str
    """Every part as it then was, in words."""

    def __str__(self) -> str:
        history = "\n".join(f"  {event}" for event in self.events)
        shown = f"{len(self.events)} of {self.drawn} events show it"
        return f"seed {self.seed} of {self.climate}: {self.error}\n{shown}:\n{history}\n{self.state}"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A seed that was played."""

    seed: int
    steps: int
    error: str | None = None
    state: str = ""
    """Every part as it was when it went wrong, in words."""


def play(seed: int, events: Iterable[Event], climate: Climate) -> Run:
    """Play one plan."""
    stage = Stage(seed, climate)
    try:
        stage.play(list(events))
    except Exception as error:  # noqa: BLE001  whatever it is, it is what the search is for
        wrong = f"{type(error).__name__}: {error}"
        return Run(seed=seed, steps=stage.steps, error=wrong, state=stage.describe())
    return Run(seed=seed, steps=stage.steps)


def search(seed: int, name: str) -> Run | Finding:
    """Play a seed in a climate; when it goes wrong, shorten its plan as long as the same kind of thing goes wrong."""
    climate = CLIMATES[name]
    plan = draw(seed, climate)
    run = play(seed, plan, climate)
    if run.error is None:
        return run
    kind, shown = run.error.split(":")[:2], run

    def same(events: list[Event]) -> bool:
        nonlocal shown
        again = play(seed, events, climate)
        if again.error is None or again.error.split(":")[:2] != kind:
            return False
        shown = again
        return True

    shortest = shorten(plan, same)
    return Finding(
        seed=seed,
        climate=name,
        error=shown.error or run.error,
        events=tuple(shortest),
        drawn=len(plan),
        state=shown.state,
    )


def shorten(events: list[Event], still: Callable[[list[Event]], bool], *, runs: int = MOST_RUNS) -> list[Event]:
    """Leave out ever smaller pieces, as long as what is left still shows it."""
    piece = len(events) // 2
    while piece and runs > 0:
        at = 0
        while at < len(events) and runs > 0:
            fewer = events[:at] + events[at + piece :]
            runs -= 1
            if still(fewer):
                events = fewer
            else:
                at += piece
        piece //= 2
    return events

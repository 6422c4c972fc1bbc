"""`podpool sim`: run many seeds on all cores, or one seed in detail."""

import asyncio
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import Progress

from podpool.cli.errors import FAILED
from podpool.core.errors import InvalidInput
from podpool.lab.sim.event_loop import PROCESS
from podpool.lab.sim.profiles import PROFILES, Profile
from podpool.lab.sim.scenario import draw
from podpool.lab.sim.shrink import RunResult, SeedFailure, run_and_shrink, run_scenario

_console = Console(highlight=False)


def simulate(*, seed: str, seeds: str, profile: str, trace: bool) -> int:
    """Run one seed or a range of seeds."""
    succeeded = run_seed(_seed(seed), profile, trace=trace) if seed else run_seeds(seeds, profile)
    return 0 if succeeded else FAILED


def run_seed(seed: int, climate: str, *, trace: bool) -> bool:
    """Play one seed; tell what went wrong, with the shortest history that shows it, or all of it as it happens."""
    chosen = climate_of(climate)
    if trace:
        return _trace(seed, chosen)
    with _quiet():
        return _tell(run_and_shrink(seed, climate))


def _trace(seed: int, climate: Profile) -> bool:
    plan = draw(seed, climate)
    _console.print("planned:", *map(str, plan), sep="\n", markup=False)
    with _told():
        run = run_scenario(seed, plan, climate)
    _console.print(f"seed {seed}: {run.error or 'all is well'} after {run.steps} steps", markup=False)
    if run.error:
        _console.print(run.state, markup=False)
    return run.error is None


@contextmanager
def _told() -> Iterator[None]:
    """Print what the parts log: when, in virtual time, and which process."""
    handler, root = logging.StreamHandler(sys.stdout), logging.getLogger()
    handler.setFormatter(_Line())
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        loop, process = asyncio.get_running_loop(), PROCESS.get()
        return f"{loop.time():12.6f} {process.name if process else 'world'}: {record.getMessage()}"


def run_seeds(seeds: str, climate: str) -> bool:
    """Play many seeds; those that go wrong are told, shortened."""
    first, last = _range(seeds)
    climate_of(climate)
    begun, steps, wrong = time.monotonic(), 0, 0
    with (
        multiprocessing.Pool(os.cpu_count(), initializer=logging.disable, initargs=(logging.CRITICAL,)) as pool,
        Progress(console=_console, transient=True, disable=not _console.is_terminal) as progress,
    ):
        played = pool.imap_unordered(partial(run_and_shrink, name=climate), range(first, last + 1), chunksize=4)
        for outcome in progress.track(played, total=last - first + 1, description=climate):
            if isinstance(outcome, SeedFailure):
                wrong += 1
                _tell(outcome)
            else:
                steps += outcome.steps
    seconds = time.monotonic() - begun
    _console.print(
        f"{climate}: seeds {first}-{last}, {wrong} went wrong; {steps} steps, {steps / seconds:.0f} per second"
    )
    return not wrong


@contextmanager
def _quiet() -> Iterator[None]:
    """Faults are logged by the thousand; nobody reads that of a search."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def climate_of(name: str) -> Profile:
    """Find a climate by its name."""
    if name not in PROFILES:
        raise InvalidInput("--profile", name, f"use one of {', '.join(PROFILES)}")
    return PROFILES[name]


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInput("--seed", text, "is not a seed: use an integer")
    return int(text)


def _range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and dash and int(first) <= int(last)):
        raise InvalidInput("--seeds", text, "is not a range, such as 1-200")
    return int(first), int(last)


def _tell(outcome: RunResult | SeedFailure) -> bool:
    if isinstance(outcome, SeedFailure):
        _console.print(str(outcome), markup=False)
        return False
    _console.print(f"seed {outcome.seed}: all is well after {outcome.steps} steps")
    return True

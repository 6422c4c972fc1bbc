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
from podpool.runtime.logging import TextFormatter

_console = Console(highlight=False)


def simulate(*, seed: str, seeds: str, profile: str, trace: bool) -> int:
    """Run one seed or a range of seeds."""
    succeeded = run_seed(_seed(seed), profile, trace=trace) if seed else run_seeds(seeds, profile)
    return 0 if succeeded else FAILED


def run_seed(seed: int, profile: str, *, trace: bool) -> bool:
    """Run one seed; print a failure with its shortest scenario, or with `trace` everything as it happens."""
    chosen = find_profile(profile)
    if trace:
        return _trace(seed, chosen)
    with _quiet():
        return _print_result(run_and_shrink(seed, profile))


def _trace(seed: int, profile: Profile) -> bool:
    scenario = draw(seed, profile)
    _console.print("scenario:", *map(str, scenario), sep="\n", markup=False)
    with _log_lines():
        run = run_scenario(seed, scenario, profile)
    _console.print(f"seed {seed}: {run.error or 'no violation'} after {run.steps} steps", markup=False)
    if run.error:
        _console.print(run.state, markup=False)
    return run.error is None


@contextmanager
def _log_lines() -> Iterator[None]:
    """Print log lines with virtual time and process."""
    handler, root = logging.StreamHandler(sys.stdout), logging.getLogger()
    handler.setFormatter(_VirtualTimeFormatter())
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class _VirtualTimeFormatter(TextFormatter):
    def __init__(self) -> None:
        super().__init__("%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        loop, process = asyncio.get_running_loop(), PROCESS.get()
        return f"{loop.time():12.6f} {process.name if process else 'simulator'}: {super().format(record)}"


def run_seeds(seeds: str, profile: str) -> bool:
    """Run many seeds; print failures with their shortest scenario."""
    first, last = _range(seeds)
    find_profile(profile)
    started, steps, failed = time.monotonic(), 0, 0
    with (
        multiprocessing.Pool(os.cpu_count(), initializer=logging.disable, initargs=(logging.CRITICAL,)) as pool,
        Progress(console=_console, transient=True, disable=not _console.is_terminal) as progress,
    ):
        results = pool.imap_unordered(partial(run_and_shrink, name=profile), range(first, last + 1))
        for result in progress.track(results, total=last - first + 1, description=profile):
            if isinstance(result, SeedFailure):
                failed += 1
                _print_result(result)
            else:
                steps += result.steps
    seconds = time.monotonic() - started
    _console.print(f"{profile}: seeds {first}-{last}, {failed} failed; {steps} steps, {steps / seconds:.0f} per second")
    return not failed


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable logging: a search logs thousands of injected faults."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def find_profile(name: str) -> Profile:
    """Return a profile by its name."""
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


def _print_result(result: RunResult | SeedFailure) -> bool:
    if isinstance(result, SeedFailure):
        _console.print(str(result), markup=False)
        return False
    _console.print(f"seed {result.seed}: no violation after {result.steps} steps")
    return True

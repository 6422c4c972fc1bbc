"""`podpool sim`: run many seeds on all cores, or one seed in detail."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from podpool.cli.errors import FAILED
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.lab.sim.event_loop import PROCESS
from podpool.lab.sim.profiles import PROFILES, Profile
from podpool.lab.sim.scenario import draw
from podpool.lab.sim.seed_runner import RunResult, SeedFailure, run_and_shrink, run_scenario
from podpool.runtime.logging import TextFormatter

_console = Console(highlight=False)


_SHOWN_SEEDS = 10
"""Seeds that an error names."""


class WorkerDied(PodpoolError):
    """A worker process ended before it returned the results of its seeds."""

    def __init__(self, profile: str, seeds: list[int]) -> None:
        first = ", ".join(map(str, seeds[:_SHOWN_SEEDS]))
        super().__init__(
            f"a worker process of the simulator was killed, or is out of memory: {len(seeds)} seeds of {profile} have "
            f"no result, the first are {first}. Run them one by one with --seed to find the one that ends its process"
        )


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
    handler.addFilter(lambda _: (process := PROCESS.get()) is None or process.alive)  # not what a shutdown cancels
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
    for result in _results(range(first, last + 1), profile):
        if isinstance(result, SeedFailure):
            failed += 1
            _print_result(result)
        else:
            steps += result.steps
    seconds = time.monotonic() - started
    _console.print(f"{profile}: seeds {first}-{last}, {failed} failed; {steps} steps, {steps / seconds:.0f} per second")
    return not failed


def _results(seeds: range, profile: str) -> Iterator[RunResult | SeedFailure]:
    """Run seeds on all cores, and yield their results as they come; raises `WorkerDied`."""
    pool = ProcessPoolExecutor(os.cpu_count(), initializer=logging.disable, initargs=(logging.CRITICAL,))
    try:
        runs = {pool.submit(run_and_shrink, seed, profile): seed for seed in seeds}
        with Progress(console=_console, transient=True, disable=not _console.is_terminal) as progress:
            for run in progress.track(as_completed(runs), total=len(runs), description=profile):
                if not _is_lost(run):
                    yield run.result()
        lost = [seed for run, seed in runs.items() if _is_lost(run)]
        if lost:
            raise WorkerDied(profile, lost)
    finally:
        pool.shutdown(cancel_futures=True)


def _is_lost(run: Future[RunResult | SeedFailure]) -> bool:
    return isinstance(run.exception(), BrokenProcessPool)


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

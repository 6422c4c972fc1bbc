"""Scenario sim: steps per second of the simulator, and seeds that CI runs."""

from __future__ import annotations

import logging
import re
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measures import Median
from bench.scenario import Effort, Run, Scenario, Side, Trial
from podpool.lab.sim.profiles import PROFILES
from podpool.lab.sim.scenario import draw
from podpool.lab.sim.seed_runner import run_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"
STORM = PROFILES["storm"]


@contextmanager
def stepping() -> Iterator[Run]:
    """Run seeds in sequence in one process."""
    logging.disable(logging.CRITICAL)

    def run(repetition: int) -> float:
        seed = 10_000 + repetition
        begun = time.process_time()
        steps = run_scenario(seed, draw(seed, STORM), STORM).steps
        return steps / (time.process_time() - begun)

    try:
        yield run
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def counting() -> Iterator[Run]:
    """Count the seeds that `make sim` names."""
    ranges = re.findall(r"podpool sim --seeds (\d+)-(\d+)", MAKEFILE.read_text())
    seeds = sum(int(last) - int(first) + 1 for first, last in ranges)
    yield lambda _: float(seeds)


@contextmanager
def trials(_: Effort) -> Iterator[tuple[Trial, ...]]:
    """Yield the trials; they share nothing."""
    steps = Median(id="sim-steps-per-second", what="steps of the storm profile, one process", goal=None, side="podpool")
    seeds = Median(id="sim-seeds-in-ci", what="runs of `make sim`", goal=None, side="podpool")
    yield (
        Trial(sides=(Side("podpool", stepping),), unit="steps/s", counts=(steps,), at_most=10),
        Trial(sides=(Side("podpool", counting),), unit="seeds", counts=(seeds,), at_most=2),
    )


SCENARIO = Scenario(
    name="sim",
    summary="how fast histories are played",
    ids=("sim-steps-per-second", "sim-seeds-in-ci"),
    setup=trials,
)

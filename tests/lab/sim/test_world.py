"""Histories: the same seed gives the same one, and in none is anything wrong."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podpool.lab.sim.scenario import CLIMATES, draw
from podpool.lab.sim.shrink import play

pytestmark = pytest.mark.histories

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults are logged by the thousand."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("climate", ["storm", "narrow-shared", "slices"])
def test_the_same_seed_gives_the_same_history(climate: str) -> None:
    """Byte for byte, in whichever process, and in whichever order that has its sets."""
    told = {_history(climate, seed=11, hashes=hashes) for hashes in ("1", "2")}
    assert 1 == len(told)
    assert told != {_history(climate, seed=12, hashes="1")}


def _history(climate: str, *, seed: int, hashes: str) -> str:
    words = [sys.executable, "-m", "tests.lab.sim.history", climate, str(seed)]
    done = subprocess.run(
        words, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


@pytest.mark.parametrize("climate", ["calm", "storm", "shared", "narrow-shared"])
@pytest.mark.parametrize("seeds", [range(first, first + 5) for first in range(1000, 1020, 5)], ids=str)
def test_no_history_shows_anything_wrong(climate: str, seeds: range) -> None:
    for seed in seeds:
        run = play(seed, draw(seed, CLIMATES[climate]), CLIMATES[climate])
        assert run.error is None, f"podpool sim --seed {seed} --climate {climate}"

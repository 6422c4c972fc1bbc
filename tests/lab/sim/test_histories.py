"""Random scenarios: the same seed gives the same history. `make sim` runs many and checks the invariants."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from podpool.lab.sim.profiles import PROFILES
from podpool.lab.sim.scenario import draw
from podpool.lab.sim.scenario_runner import ScenarioRunner

pytestmark = pytest.mark.simulation

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("profile", ["storm", "narrow-shared-subnet", "slices"])
def test_the_same_seed_gives_the_same_history(profile: str) -> None:
    """Byte for byte, in any process and with any hash seed."""
    fingerprints = {_fingerprint(profile, seed=11, hash_seed=hash_seed) for hash_seed in ("1", "2")}
    assert 1 == len(fingerprints)
    assert fingerprints != {_fingerprint(profile, seed=12, hash_seed="1")}


def test_no_garbage_is_collected_during_a_run() -> None:
    """A collection closes abandoned coroutines: it would decide how many steps follow (narrow-tight, seed 1)."""
    profile, collections = PROFILES["narrow-tight"], list[float]()
    runner = ScenarioRunner(1, profile)
    gc.callbacks.append(lambda phase, _: collections.append(runner.first.loop.time()) if phase == "start" else None)
    try:
        runner.run(draw(1, profile))
    finally:
        gc.callbacks.pop()
    assert gc.isenabled()
    assert set(collections) <= {runner.first.loop.time()}


def _fingerprint(profile: str, *, seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.lab.sim.fingerprint", profile, str(seed)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, check=True, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True).stdout

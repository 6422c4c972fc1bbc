"""Seeds that once failed, as listed in docs/simulator.md, with the scenarios that they draw or drew then."""

import msgspec
import pytest

from podpool.lab.sim.profiles import PROFILES, Profile
from podpool.lab.sim.scenario import ScenarioEvent, draw
from podpool.lab.sim.seed_runner import run_scenario

pytestmark = pytest.mark.simulation

FAILED_SEEDS = {
    "narrow-damaged-journals": (1223, 1866, 1989, 2022, 2058, 2117, 2119, 3312),
    "narrow-lost-dels-pods-only": (134,),
    "slices": (10027, 10117, 10174, 10253, 11086),
    "slices-restores": (1, 10175, 10527, 10631, 10715, 10786, 10884, 11055, 11121, 12325),
}

ADDED_SINCE = ("resize-range", "share-range", "partition-controller", "set-clock", "overlap-agents", "fail-sync")
"""Actions that were added later: each changes the scenarios of all seeds."""

FAILED_SINCE = {
    "narrow-clock-steps": (300035, 340040),
    "narrow-lost-dels-pods-only": (18, 20, 360148),
    "narrow-manual-edits": (320354,),
    "narrow-restores": (229,),
    "restore-both": (320008, 320012, 360012),
    "slices": (1, 2, 28, 38, 43, 88, 320158, 370091, 370227, 370279, 370411),
    "slices-replacements": (28,),
    "slices-restores": (3, 14, 21, 23, 36, 39, 115, 4373, 370238, 370280, 370368, 370428, 381350),
}
"""Seeds that failed with the present actions."""

SHRUNK = {
    ("slices", 320158): (
        ScenarioEvent(3.10, "join", "node-1"),
        ScenarioEvent(7.99, "share-range", "node-0", 8.0),
        ScenarioEvent(13.41, "bind-burst", "node-1", 1.8),
        ScenarioEvent(20.21, "reboot", "node-1", 1.3),
    )
}
"""The events that reproduced a failure, of seeds in which others would hide it."""


def of_then(name: str) -> Profile:
    profile, former = PROFILES[name], PROFILES["narrow"]
    added: tuple[str, ...] = ADDED_SINCE
    if name == "narrow-damaged-journals":  # it was as short as `narrow`, and no sandbox outlived its Pod
        profile = msgspec.structs.replace(profile, duration=former.duration, events=former.events)
        added = (*added, "outlive-pod")
    weights = {action: weight for action, weight in profile.weights.items() if action not in added}
    return msgspec.structs.replace(profile, weights=weights)


def pairs(seeds: dict[str, tuple[int, ...]]) -> list[tuple[str, int]]:
    return [(name, seed) for name, of_profile in seeds.items() for seed in of_profile]


@pytest.mark.parametrize(("name", "seed"), pairs(FAILED_SEEDS))
def test_the_seed_of_then_passes(name: str, seed: int) -> None:
    result = run_scenario(seed, draw(seed, of_then(name)), of_then(name))
    assert result.error is None, result.state


@pytest.mark.parametrize(("name", "seed"), pairs(FAILED_SINCE))
def test_the_seed_passes(name: str, seed: int) -> None:
    result = run_scenario(seed, draw(seed, PROFILES[name]), PROFILES[name])
    assert result.error is None, result.state


@pytest.mark.parametrize(("name", "seed"), SHRUNK)
def test_the_shrunk_scenario_passes(name: str, seed: int) -> None:
    result = run_scenario(seed, SHRUNK[name, seed], PROFILES[name])
    assert result.error is None, result.state

"""Seeds that once failed, as listed in docs/simulator.md, with the scenarios that they draw or drew then."""

import msgspec
import pytest

from podpool.lab.sim.profiles import PROFILES, Profile
from podpool.lab.sim.scenario import draw
from podpool.lab.sim.shrink import run_scenario

pytestmark = pytest.mark.simulation

FAILED_SEEDS = {
    "narrow-damaged-journals": (1223, 1866, 1989, 2022, 2058, 2117, 2119, 3312),
    "narrow-lost-dels-pods-only": (134,),
    "slices": (10027, 10117, 10174, 10253, 11086),
    "slices-restores": (1, 10175, 10527, 10631, 10715, 10786, 10884, 11055, 11121, 12325),
}

ADDED_SINCE = ("resize-range", "share-range", "partition-controller", "set-clock", "overlap-agents", "fail-sync")
"""Actions that were added later: each changes the scenarios of all seeds."""


def without_added(profile: Profile) -> Profile:
    weights = {action: weight for action, weight in profile.weights.items() if action not in ADDED_SINCE}
    return msgspec.structs.replace(profile, weights=weights)


@pytest.mark.parametrize(("profile", "seed"), [(name, seed) for name, seeds in FAILED_SEEDS.items() for seed in seeds])
def test_the_seed_passes(profile: str, seed: int) -> None:
    result = run_scenario(seed, draw(seed, without_added(PROFILES[profile])), PROFILES[profile])
    assert result.error is None, result.state

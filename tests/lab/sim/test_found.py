"""Histories that went wrong once, as docs/simulator.md tells them: seeds of plans as they are or were drawn."""

import msgspec
import pytest

from podpool.lab.sim.scenario import CLIMATES, Climate, draw
from podpool.lab.sim.shrink import play

pytestmark = pytest.mark.histories

FOUND = {
    "narrow-spoilt": (1223, 1866, 1989, 2022, 2058, 2117, 2119, 3312),
    "slices": (10027, 10117, 10174, 10253, 11086),
    "slices-restores": (1, 10175, 10527, 10631, 10715, 10786, 10884, 11055, 11121, 12325),
}

SINCE = ("change-range", "share", "cut-controller", "set-clock")
"""What happens only since: each kind of event more makes other plans of all seeds."""


def as_it_was(climate: Climate) -> Climate:
    weights = {kind: weight for kind, weight in climate.weights.items() if kind not in SINCE}
    return msgspec.structs.replace(climate, weights=weights)


@pytest.mark.parametrize(("climate", "seed"), [(name, seed) for name, seeds in FOUND.items() for seed in seeds])
def test_they_go_well_now(climate: str, seed: int) -> None:
    run = play(seed, draw(seed, as_it_was(CLIMATES[climate])), CLIMATES[climate])
    assert run.error is None, run.state

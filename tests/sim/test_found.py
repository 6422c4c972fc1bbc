"""Histories that went wrong once, as docs/simulator.md tells them: seeds of plans as they are drawn now."""

import pytest

from podpool.sim.plan import CLIMATES, draw
from podpool.sim.search import play

pytestmark = pytest.mark.histories

FOUND = {
    "slices": (10027, 10117, 10174, 10253, 11086),
    "slices-restores": (1, 10175, 10527, 10631, 10715, 10786, 10884, 11055, 11121, 12325),
}


@pytest.mark.parametrize(("climate", "seed"), [(name, seed) for name, seeds in FOUND.items() for seed in seeds])
def test_they_go_well_now(climate: str, seed: int) -> None:
    run = play(seed, draw(seed, CLIMATES[climate]), CLIMATES[climate])
    assert run.error is None, run.state

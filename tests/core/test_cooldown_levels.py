"""Cooldown levels of subnets and slices, and what a node applies."""

import pytest

from podpool.core.cooldown_levels import CooldownInForce, CooldownLevels
from podpool.core.settings import Settings

LEVELS = Settings().cooldown_levels


@pytest.mark.parametrize(
    ("exhausted", "configured_batch", "level"),
    [(False, True, 130.0), (False, False, 30.0), (True, True, 5.0), (True, False, 5.0)],
)
def test_of_a_subnet_by_its_batch_and_exhaustion(exhausted: bool, configured_batch: bool, level: float) -> None:
    assert level == LEVELS.of_subnet(exhausted=exhausted, configured_batch=configured_batch)


@pytest.mark.parametrize(
    ("unassigned", "size", "level"),
    [(254, 254, 130.0), (26, 100, 130.0), (25, 100, 30.0), (5, 100, 30.0), (4, 100, 5.0), (0, 6, 5.0), (0, 0, 30.0)],
)
def test_of_a_slice_by_the_share_that_is_unassigned(unassigned: int, size: int, level: float) -> None:
    assert level == LEVELS.of_slice(unassigned=unassigned, size=size)


@pytest.mark.parametrize(
    ("level", "applied"),
    [
        pytest.param(130.0, CooldownInForce(130.0, 30.0, 5.0), id="a node keeps no address for longer than filling"),
        pytest.param(30.0, CooldownInForce(30.0, 30.0, 5.0), id="filling"),
        pytest.param(5.0, CooldownInForce(5.0, 5.0, 5.0), id="exhausted"),
        pytest.param(1.0, CooldownInForce(1.0, 1.0, 1.0), id="the subnet's levels are shorter than the node's"),
    ],
)
def test_what_a_node_applies(level: float, applied: CooldownInForce) -> None:
    assert applied == CooldownLevels(130.0, 30.0, 5.0).in_force(level)


@pytest.mark.parametrize(
    ("level", "shortest", "applied"),
    [
        pytest.param(60.0, 60.0, CooldownInForce(60.0, 60.0, 60.0), id="longer than the node's own"),
        pytest.param(130.0, 10.0, CooldownInForce(130.0, 30.0, 10.0), id="between the node's own"),
        pytest.param(130.0, 0.0, CooldownInForce(130.0, 30.0, 0.0), id="none"),
        pytest.param(5.0, 10.0, CooldownInForce(5.0, 5.0, 5.0), id="longer than the level"),
    ],
)
def test_the_shortest_time_is_that_of_the_subnet(level: float, shortest: float, applied: CooldownInForce) -> None:
    assert applied == CooldownLevels(130.0, 30.0, 5.0).in_force(level, shortest=shortest)

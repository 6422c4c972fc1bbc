"""What agents know about their subnet, from the settings through ledger, controller and API server."""

import msgspec
import pytest

from podpool.agent.scaling_decision import ScalingParameters
from podpool.lab.sim.profiles import SimConfig
from tests.lab.sim.driver import NARROW, SETTINGS, WIDE, ScenarioDriver, run_scenario

pytestmark = pytest.mark.simulation


def known_to(driver: ScenarioDriver, node: str) -> ScalingParameters:
    agent = driver.cluster.hosts[node].agent
    assert agent
    parameters = agent.metrics_snapshot().parameters
    assert parameters
    return parameters


def test_the_max_buffer_of_the_settings() -> None:
    config = SimConfig(settings=msgspec.structs.replace(SETTINGS, max_buffer=300))

    async def scenario(driver: ScenarioDriver) -> None:
        await driver.join("a")
        assert 300 == known_to(driver, "a").max_buffer

    run_scenario(scenario, seed=1, config=config)


def test_the_number_of_nodes_is_written_when_it_doubles() -> None:
    async def scenario(driver: ScenarioDriver) -> None:
        published = []
        for name in "abcdefgh":
            await driver.join(name)
            published.append(known_to(driver, "a").nodes)
        assert [1, 2, 4, 4, 8, 8, 8, 8] == published

    run_scenario(scenario, seed=1, config=WIDE)


def test_the_cooldown_follows_the_subnet() -> None:
    async def scenario(driver: ScenarioDriver) -> None:
        await driver.join("a", "b")
        assert SETTINGS.cooldown_roomy == known_to(driver, "b").cooldown.level
        pods = driver.bind("b", 11)
        await driver.wait_until(lambda: known_to(driver, "b").cooldown.level == SETTINGS.cooldown_exhausted)
        await driver.run_for(20)
        driver.delete_pods(pods)
        levels = [known_to(driver, "b").cooldown.level]
        for _ in range(240):
            await driver.run_for(0.5)
            level = known_to(driver, "b").cooldown.level
            levels += [level] if level != levels[-1] else []
        assert SETTINGS.cooldown_roomy == levels[-1]
        assert sorted(levels) == levels  # it does not oscillate

    settings = msgspec.structs.replace(SETTINGS, reserved_for_primaries=0)
    run_scenario(scenario, seed=1, config=msgspec.structs.replace(NARROW, settings=settings))

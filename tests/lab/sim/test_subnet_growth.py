"""A full subnet gets more addresses, and the waiting Pods are served."""

import pytest

from tests.lab.sim.driver import NARROW, ScenarioDriver, run_scenario

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("cidr", ["10.0.0.0/26", "10.9.0.0/27"], ids=["larger", "additional"])
def test_waiting_pods_are_served_when_the_subnet_grows(cidr: str, seed: int) -> None:
    async def scenario(driver: ScenarioDriver) -> None:
        await driver.join("a", "b")
        driver.bind("a", 12)
        await driver.run_for(30)
        assert driver.served("a") < 12
        driver.cluster.ledger_host.grow(cidr)
        await driver.wait_until(lambda: driver.served("a") == 12)
        await driver.converge(60)

    run_scenario(scenario, seed=seed, config=NARROW)

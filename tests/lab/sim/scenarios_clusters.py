"""Scenarios of several clusters on one subnet that is full."""

from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.cluster import SimCluster
from tests.lab.sim.driver import ScenarioDriver


async def a_greedy_cluster_waits_first(driver: ScenarioDriver) -> None:
    """Its Pods fill the subnet and more wait; then a small cluster comes, and addresses become free one by one."""
    await driver.join("a", "b")
    idle = await driver.serve_pods("b", 5)
    driver.bind("a", 20)
    await driver.run_for(10)
    small = SimCluster(driver.cluster.seed, driver.cluster.config, first=driver.cluster, name="small-")
    await small.start()
    guest = ScenarioDriver(small)
    guest.cluster.add_host("small-node")
    await driver.run_for(5)
    guest.bind("small-node", 3)
    await driver.run_for(10)
    before = driver.served("a")
    for pod in idle[:3]:
        driver.delete_pods([pod])
        await driver.run_for(15)
    served, taken = guest.served("small-node"), driver.served("a") - before
    if served < 3:
        raise Violation(
            "fair share", f"{served} of 3 Pods of the small cluster have addresses, {taken} went to the other"
        )
    await driver.run_for(10)

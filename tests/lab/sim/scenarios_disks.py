"""Hand-written scenarios about the agent's disk."""

from tests.lab.sim.driver import ScenarioDriver


async def a_second_agent_is_started(driver: ScenarioDriver) -> None:
    """The first runs on for a while, as after its Pod was deleted by force, or in an upgrade.

    Of the Pods that start meanwhile, one stays: the one with the address that was granted last, which an agent without
    a record of it would release first.
    """
    cluster = driver.cluster
    await driver.join("a")
    first = cluster.hosts["a"].agent_process
    assert first
    cluster.start_agent("a")
    await driver.run_for(1)
    pods = await driver.serve_pods("a")
    uses = cluster.oracle.uses_on("a")
    listed = driver.listed_addresses("a")
    last = max(pods, key=lambda pod: listed.index(uses[pod].address))
    driver.delete_pods([each for each in pods if each != last])
    await driver.run_for(20)
    first.kill()
    await driver.serve_pods("a", 2)
    await driver.converge(40)

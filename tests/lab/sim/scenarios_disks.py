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


async def a_journal_is_lost_while_a_sandbox_outlives_its_pod(driver: ScenarioDriver) -> None:
    """A Pod was force-deleted, its sandbox runs on, and the node then needs all addresses of the subnet."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a", 2)
    await driver.run_for(10)
    uid, pod = next(iter(cluster.pods_on("a").items()))
    host = cluster.hosts["a"]
    assert host.kubelet
    host.kubelet.outlive(uid, pod)
    cluster.delete_pod(pod)
    await driver.run_for(2)
    cluster.kill_agent("a")
    host.machine.journal_faults += 1
    for name in host.machine.disk.names():
        host.machine.disk.remove(name)
    cluster.start_agent("a")
    await driver.run_for(150)
    driver.bind("a", 9)
    await driver.run_for(60)
    host.kubelet.end_outliving(uid)
    await driver.converge(200)

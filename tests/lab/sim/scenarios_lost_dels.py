"""Scenarios of sandboxes that end without a DEL, or seem to.

Where the agent sees network namespaces, they protect sandboxes that run: scenarios of other rules hide them.
"""

from podpool.lab.sim.container_runtime import SimRuntime, SocketState
from tests.lab.sim.driver import ScenarioDriver

SEEN = 100.0
"""Seconds in which an agent has listed the sandboxes, and would have made two observations."""
FOUND = 200.0


def _runtime(driver: ScenarioDriver) -> SimRuntime:
    return driver.cluster.hosts["a"].runtime


async def _hide_sandboxes(driver: ScenarioDriver, *, pods: int, listed: int) -> None:
    """Start Pods, and then list only the sandboxes of some; network namespaces cannot be seen."""
    await driver.join("a")
    await driver.serve_pods("a", pods)
    await driver.run_for(SEEN)
    _runtime(driver).namespace_directory_visible = False
    _runtime(driver).hidden = {use.sandbox for use in driver.cluster.oracle.uses()[listed:]}


async def a_runtime_loses_dels(driver: ScenarioDriver) -> None:
    """Two of four Pods are deleted, and their DELs are lost."""
    await driver.join("a")
    pods = await driver.serve_pods("a", 4)
    await driver.run_for(SEEN)
    _runtime(driver).loses_dels = True
    driver.delete_pods(pods[:2])
    await driver.run_for(FOUND)
    _runtime(driver).loses_dels = False
    await driver.converge(SEEN)


async def all_deferred_dels_are_deleted(driver: ScenarioDriver) -> None:
    """All Pods are deleted while the agent is down, and so are the DELs that are left for it."""
    await driver.join("a")
    pods = await driver.serve_pods("a", 6)
    driver.cluster.kill_agent("a")
    driver.delete_pods(pods)
    runtime = _runtime(driver)
    await driver.wait_until(lambda: len(runtime.deferred_deletes.names()) == len(pods))
    for name, (uid, _) in zip(runtime.deferred_deletes.names(), enumerate(pods), strict=True):
        runtime.lose(name, f"gone-{uid}")
        runtime.deferred_deletes.remove(name)
    driver.cluster.start_agent("a")
    await driver.run_for(FOUND)
    await driver.converge(SEEN)


async def a_runtime_is_killed_while_it_creates_sandboxes(driver: ScenarioDriver) -> None:
    """It forgets them; their Pods get new ones, and the addresses of the first are found after the longest chain."""
    await driver.join("a")
    await driver.serve_pods("a", 4)
    _runtime(driver).chain_seconds = 5.0
    driver.bind("a", 2)
    await driver.wait_until(lambda: driver.served("a") == 6)
    kubelet = driver.cluster.hosts["a"].kubelet
    assert kubelet
    kubelet.restart()
    _runtime(driver).chain_seconds = 0.0
    await driver.run_for(600.0 + FOUND)
    await driver.converge(SEEN)


async def a_list_lacks_a_sandbox_once(driver: ScenarioDriver) -> None:
    """The runtime restarts, and lists a sandbox again after a while."""
    await _hide_sandboxes(driver, pods=3, listed=2)
    await driver.run_for(40)
    _runtime(driver).hidden = set()
    await driver.converge(SEEN)


async def a_runtime_loses_its_state(driver: ScenarioDriver) -> None:
    """It lists two of eight sandboxes, and the others run on."""
    await _hide_sandboxes(driver, pods=8, listed=2)
    await driver.converge(FOUND)


async def the_socket_is_of_another_runtime(driver: ScenarioDriver) -> None:
    """None of three sandboxes is in its list."""
    await driver.join("a")
    await driver.serve_pods("a", 3)
    await driver.run_for(SEEN)
    _runtime(driver).namespace_directory_visible = False
    _runtime(driver).socket = SocketState.OTHER_RUNTIME
    await driver.converge(FOUND)


async def an_add_chain_is_slow(driver: ScenarioDriver) -> None:
    """A sandbox has its address for minutes before it is listed."""
    await driver.join("a")
    await driver.serve_pods("a", 2)
    _runtime(driver).namespace_directory_visible = False
    _runtime(driver).chain_seconds = 300.0
    await driver.serve_pods("a", 1)
    await driver.run_for(FOUND)
    _runtime(driver).chain_seconds = 0.0
    await driver.converge(SEEN + 300.0)


async def a_sandbox_outlives_its_pod(driver: ScenarioDriver) -> None:
    """A Pod is force-deleted, and its sandbox runs on."""
    await driver.join("a")
    await driver.serve_pods("a", 2)
    uid, pod = next(iter(driver.cluster.pods_on("a").items()))
    kubelet = driver.cluster.hosts["a"].kubelet
    assert kubelet
    kubelet.outlive(uid, pod)
    driver.cluster.delete_pod(pod)
    await driver.run_for(FOUND)
    kubelet.end_outliving(uid)
    await driver.converge(SEEN)


async def namespaces_of_static_pods_are_hidden(driver: ScenarioDriver) -> None:
    """The agent sees no network namespace, and no Pod with the UID of a static Pod's sandbox."""
    await driver.join("a")
    for _ in range(2):
        driver.cluster.bind("a", static=True)
    await driver.wait_until(lambda: driver.served("a") == 2)
    _runtime(driver).namespaces_visible = False
    await driver.converge(FOUND)

"""Scenarios of Nodes that are deleted, return, or seem to be gone."""

from collections.abc import Callable

from podpool.kube.expectations import WATCH_DELAY
from podpool.lab.sim.cluster import NODES
from podpool.lab.sim.convergence import check_quiet, write_state
from podpool.lab.sim.network import MessageFilter
from tests.lab.sim.driver import ScenarioDriver, nnc_patches_of, reads_of

NODE_GC_SECONDS = 60.0
"""Seconds after which an absent Node is collected: the node GC delay, and a scan."""


async def a_node_is_deleted_while_its_pods_run(driver: ScenarioDriver) -> None:
    """Deleting it and its Pods asserts that they have stopped. They have not, and no component can know."""
    await _delete_and_reuse(driver, driver.cluster.isolate)


async def a_node_is_deleted_after_its_pods_stopped(driver: ScenarioDriver) -> None:
    """The same, and the assertion is true: the machine is partitioned, and its Pods have stopped."""
    await _delete_and_reuse(driver, lambda name: driver.cluster.network.partition(name, "api"))


async def _delete_and_reuse(driver: ScenarioDriver, stop: Callable[[str], None]) -> None:
    cluster = driver.cluster
    await driver.join("a", "b")
    pods = await driver.serve_pods("a")
    stop("a")
    driver.delete_pods(pods)
    cluster.delete_node("a")
    await driver.run_for(NODE_GC_SECONDS + 10)
    driver.bind("b", 9)
    await driver.run_for(30)


async def a_node_is_reregistered_unseen(driver: ScenarioDriver) -> None:
    """It is deleted and registered again; the leader, whose cache lags, does not see that it returned."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cluster.delete_node("a")
    await driver.run_for(1)
    lag = driver.hold(reads_of("nodes", "controller"), limit=None, responses=True)
    cluster.register("a")
    await driver.run_for(NODE_GC_SECONDS)
    lag.release()
    await driver.converge(60)


async def a_node_returns_during_node_gc(driver: ScenarioDriver) -> None:
    """The leader's call that closes its NC is in flight, and Pods are bound to the Node again."""
    cluster = driver.cluster
    await driver.join("a")
    call = await driver.hold_node_gc("a")
    cluster.register("a")
    driver.bind("a", 2)
    await driver.run_for(10)
    call.release()
    await driver.converge(60)


async def a_wall_clock_is_set(driver: ScenarioDriver) -> None:
    """By more than the fence time, right after a confirmation; the next one is further away than an ADD waits."""
    await driver.join("a")
    for step in (1000.0, -2000.0, 3000.0):
        driver.cluster.hosts["a"].machine.clock.wall_error += step
        await driver.serve_pods("a", 1)


async def a_ledger_clock_is_set_after_node_gc(driver: ScenarioDriver) -> None:
    """A network container is closed while another node's Pods wait for its addresses: they have not cooled down."""
    cluster = driver.cluster
    await driver.join("a", "b")
    await driver.serve_pods("a", 3)
    cluster.remove_host("a")
    driver.bind("b", 9)
    await driver.wait_until(lambda: "a" not in cluster.nc_records(), within=NODE_GC_SECONDS + 60)
    cluster.ledger_host.clock.wall_error += 86_400.0
    await driver.converge(60)


async def a_bookmark_is_read_late(driver: ScenarioDriver) -> None:
    """It is in the buffer of an agent that is paused while its Node is deleted and collected."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.run_for(59 - cluster.loop.time())
    cluster.store.update(
        NODES, "a", lambda node: {**node, "status": {**node["status"], "phase": "Running"}}, subresource="status"
    )
    await driver.run_for(0.5)
    agent = cluster.hosts["a"].agent_process
    assert agent
    agent.pause()
    await driver.run_for(3)
    cluster.delete_node("a")
    await driver.run_for(NODE_GC_SECONDS)
    driver.bind("a", 2)
    await driver.run_for(1)
    agent.resume()
    await driver.run_for(10)


async def a_rebooted_node_is_reregistered(driver: ScenarioDriver) -> None:
    """The machine has a new boot ID, which the paused controllers know neither from Node nor NNC."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    driver.pause_controllers()
    cluster.reboot("a")
    await driver.wait_until(lambda: driver.served("a") == 6)
    await driver.run_for(6)  # the agent reports its boot ID
    cluster.delete_node("a")
    cluster.register("a")
    await driver.run_for(3)
    driver.resume_controllers()
    await driver.converge(2 * NODE_GC_SECONDS)


async def an_unreported_node_is_reregistered(driver: ScenarioDriver) -> None:
    """No report of its agent has arrived before the reboot: it gets another NC, and claims the one in its journal."""
    cluster = driver.cluster
    reports = driver.hold(nnc_patches_of("a"), limit=None)
    cluster.add_host("a")
    await driver.wait_until(lambda: reports.messages)
    cluster.reboot("a")
    cluster.delete_node("a")
    cluster.register("a")
    await driver.run_for(3)
    reports.release()
    driver.bind("a", 2)
    await driver.converge(NODE_GC_SECONDS / 2)


async def a_machine_is_replaced(driver: ScenarioDriver) -> None:
    """At once, and Pods run on it: the former machine's NC is not theirs."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cluster.remove_host("a")
    cluster.add_host("a")
    driver.bind("a", 2)
    await driver.converge(2 * NODE_GC_SECONDS)


async def a_node_is_absent_longer_than_the_gc_delay(driver: ScenarioDriver) -> None:
    """Its machine and its bound Pods run on; then it is registered again."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cluster.delete_node("a")
    await driver.run_for(2 * NODE_GC_SECONDS)
    cluster.register("a")
    await driver.converge(60)


async def a_node_is_reregistered(driver: ScenarioDriver) -> None:
    """After a moment, with its Pods still running; then the node GC delay passes."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cluster.delete_node("a")
    await driver.run_for(3)
    cluster.register("a")
    await driver.converge(2 * NODE_GC_SECONDS)


async def a_node_is_absent_shorter_than_the_gc_delay(driver: ScenarioDriver) -> None:
    """No Pod is bound to it meanwhile."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.run_for(5)
    cluster.delete_node("a")
    await driver.run_for(30)
    cluster.register("a")
    await driver.converge(30)


async def a_partitioned_node_is_collected(driver: ScenarioDriver) -> None:
    """It has no Pods and is partitioned; others have its addresses when Pods are bound to it again."""
    cluster = driver.cluster
    await driver.join("a", "b")
    cluster.network.partition("a", "api")
    cluster.delete_node("a")
    await driver.run_for(NODE_GC_SECONDS + 10)
    driver.bind("b", 9)
    await driver.run_for(20)
    cluster.register("a")
    driver.bind("a", 2)
    await driver.run_for(20)


async def a_node_is_partitioned(driver: ScenarioDriver) -> None:
    """Its Node stays, nothing is taken from it, and Pods are bound to it after the fence time."""
    cluster = driver.cluster
    await driver.join("a")
    cluster.network.partition("a", "api")
    await driver.run_for(35)
    driver.bind("a", 2)
    await driver.run_for(15)
    cluster.network.heal("a", "api")
    await driver.converge(30)


async def a_confirmation_is_answered_late(driver: ScenarioDriver) -> None:
    """The reads take four seconds, no others are answered, and Pods are bound after the fence time."""
    await driver.join("a")
    late = driver.hold(_read_of("a"), responses=True)
    await driver.wait_until(lambda: late.messages)
    await driver.run_for(4)
    unanswered = driver.hold(_read_of("a"), limit=None)
    late.release()
    await driver.run_for(27)
    driver.bind("a", 2)
    await driver.run_for(5)
    unanswered.release()
    await driver.converge(30)


def _read_of(name: str) -> MessageFilter:
    return lambda each: (
        each.source == name and each.request.method == "GET" and each.request.path.endswith(f"/nodes/{name}")
    )


async def nothing_happens(driver: ScenarioDriver) -> None:
    """Nodes have what they need, and no component has a reason to write."""
    cluster = driver.cluster
    await driver.join("a", "b")
    await driver.converge(30)
    before = write_state(cluster)
    await driver.run_for(30)
    check_quiet(before, write_state(cluster))


async def a_call_of_a_former_leader_arrives_late(driver: ScenarioDriver) -> None:
    """It closes a Node's NC and is paused; under the next leader the Node is back with Pods."""
    cluster = driver.cluster
    await driver.join("a")
    for _ in range(3):
        driver.delete_pods(await driver.serve_pods("a"))
        await driver.run_for(20)
    call = await driver.hold_node_gc("a")
    cluster.controllers[call.messages[0].source].pause()
    cluster.register("a")
    driver.bind("a", 2)
    await driver.wait_until(lambda: driver.served("a") == 2, within=60)
    call.release()
    await driver.converge(30)


async def a_call_arrives_after_its_timeout(driver: ScenarioDriver) -> None:
    """The leader's call timed out, and in the same term it created the Node's NNC again."""
    cluster = driver.cluster
    await driver.join("a")
    call = await driver.hold_node_gc("a")
    cluster.register("a")
    driver.bind("a", 2)
    await driver.wait_until(lambda: driver.served("a") == 2, within=60)
    call.release()
    await driver.converge(30)


async def the_leader_does_not_see_an_nnc(driver: ScenarioDriver) -> None:
    """A new machine's Node is deleted and registered again, while the leader's cache lacks its NNC."""
    cluster = driver.cluster
    await driver.run_for(2)
    cache = driver.hold(reads_of("nodenetworkconfigs", "controller"), limit=None, responses=True)
    cluster.add_host("a")
    await driver.run_for(2)
    cluster.delete_node("a")
    cluster.register("a")
    await driver.run_for(WATCH_DELAY + 2)
    cache.release()
    driver.bind("a", 2)
    await driver.converge(20)


async def the_leader_does_not_see_a_node(driver: ScenarioDriver) -> None:
    """It is registered again, its NNC is created again, and the leader's cache has the former Node."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cache = driver.hold(reads_of("nodes", "controller"), limit=None, responses=True)
    cluster.delete_node("a")
    cluster.register("a")
    await driver.run_for(5)
    before = write_state(cluster)
    await driver.run_for(10)
    check_quiet(before, write_state(cluster))
    cache.release()
    await driver.converge(60)

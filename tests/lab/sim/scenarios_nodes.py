"""Stories of Nodes that go, come back, or are taken for gone."""

from collections.abc import Callable

from podpool.kube.expectations import WATCH_DELAY
from podpool.lab.sim.convergence import check_quiet
from podpool.lab.sim.network import MessageFilter
from podpool.lab.sim.cluster import NODES
from tests.lab.sim.driver import ScenarioDriver, reads_of

NODE_GC_SECONDS = 60.0
"""Seconds after which a Node that nobody sees has been given up: the gone time, and a look."""


async def a_node_is_deleted_while_its_pods_run(driver: ScenarioDriver) -> None:
    """Whoever deletes it, and its Pods, says that they have stopped. They have not, and nobody can know."""
    await _deleted(driver, driver.cluster.isolate)


async def a_node_is_deleted_after_its_pods_stopped(driver: ScenarioDriver) -> None:
    """The same, and what was said is true: the machine is cut off, and its Pods are no more."""
    await _deleted(driver, lambda name: driver.cluster.network.partition(name, "api"))


async def _deleted(driver: ScenarioDriver, lose: Callable[[str], None]) -> None:
    cluster = driver.cluster
    await driver.join("a", "b")
    pods = await driver.serve_pods("a")
    lose("a")
    driver.delete_pods(pods)
    cluster.delete_node("a")
    await driver.run_for(NODE_GC_SECONDS + 10)
    driver.bind("b", 9)
    await driver.run_for(30)


async def a_node_is_reregistered_unseen(driver: ScenarioDriver) -> None:
    """It is deleted and registered again; the leader, whose cache lags, never sees that it is back."""
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
    """The leader's last word on its container is under way to the ledger, and Pods are bound to the Node again."""
    cluster = driver.cluster
    await driver.join("a")
    word = await driver.hold_node_gc("a")
    cluster.register("a")
    driver.bind("a", 2)
    await driver.run_for(10)
    word.release()
    await driver.converge(60)


async def a_bookmark_is_read_late(driver: ScenarioDriver) -> None:
    """It lies in the buffer of an agent that is paused while its Node is deleted and given up."""
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
    """The machine has a new boot id, which the controllers, paused, know neither from its Node nor from its NNC."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    driver.pause_controllers()
    cluster.reboot("a")
    await driver.wait_until(lambda: driver.served("a") == 6)
    cluster.delete_node("a")
    cluster.register("a")
    await driver.run_for(3)
    driver.resume_controllers()
    await driver.converge(2 * NODE_GC_SECONDS)


async def a_machine_is_replaced(driver: ScenarioDriver) -> None:
    """At once, and Pods run on it: the container of the machine before is not theirs."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cluster.remove_host("a")
    cluster.add_host("a")
    driver.bind("a", 2)
    await driver.converge(2 * NODE_GC_SECONDS)


async def a_node_is_absent_longer_than_the_gc_delay(driver: ScenarioDriver) -> None:
    """Its machine and its Pods live on, and are bound to it; then it is registered again."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cluster.delete_node("a")
    await driver.run_for(2 * NODE_GC_SECONDS)
    cluster.register("a")
    await driver.converge(60)


async def a_node_is_reregistered(driver: ScenarioDriver) -> None:
    """After a moment, its Pods still running; then the gone time passes."""
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
    """It has no Pods and cannot be reached; others have its addresses when Pods are bound to it again."""
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
    """Its Node stays, nobody takes anything from it, and Pods are bound to it when the fence time has passed."""
    cluster = driver.cluster
    await driver.join("a")
    cluster.network.partition("a", "api")
    await driver.run_for(35)
    driver.bind("a", 2)
    await driver.run_for(15)
    cluster.network.heal("a", "api")
    await driver.converge(30)


async def a_confirmation_is_answered_late(driver: ScenarioDriver) -> None:
    """The reads take four seconds, no others are answered, and Pods are bound when the fence time has passed."""
    await driver.join("a")
    late = driver.hold(_read_of("a"), responses=True)
    await driver.wait_until(lambda: late.messages)
    await driver.run_for(4)
    deaf = driver.hold(_read_of("a"), limit=None)
    late.release()
    await driver.run_for(27)
    driver.bind("a", 2)
    await driver.run_for(5)
    deaf.release()
    await driver.converge(30)


def _read_of(name: str) -> MessageFilter:
    return lambda each: (
        each.source == name and each.request.method == "GET" and each.request.path.endswith(f"/nodes/{name}")
    )


async def nothing_happens(driver: ScenarioDriver) -> None:
    """Nodes have what they need, and nobody has a reason to write."""
    cluster = driver.cluster
    await driver.join("a", "b")
    await driver.converge(30)
    before = cluster.written()
    await driver.run_for(30)
    check_quiet(before, cluster.written())


async def a_call_of_a_former_leader_arrives_late(driver: ScenarioDriver) -> None:
    """It gives a Node up, and is paused; under the next leader the Node is back, and Pods run on it."""
    cluster = driver.cluster
    await driver.join("a")
    for _ in range(3):
        driver.delete_pods(await driver.serve_pods("a"))
        await driver.run_for(20)
    word = await driver.hold_node_gc("a")
    cluster.controllers[word.messages[0].source].pause()
    cluster.register("a")
    driver.bind("a", 2)
    await driver.wait_until(lambda: driver.served("a") == 2, within=60)
    word.release()
    await driver.converge(30)


async def a_call_arrives_after_its_timeout(driver: ScenarioDriver) -> None:
    """The leader has given up waiting for an answer, and in the same term made the Node's NNC anew."""
    cluster = driver.cluster
    await driver.join("a")
    word = await driver.hold_node_gc("a")
    cluster.register("a")
    driver.bind("a", 2)
    await driver.wait_until(lambda: driver.served("a") == 2, within=60)
    word.release()
    await driver.converge(30)


async def the_leader_does_not_see_an_nnc(driver: ScenarioDriver) -> None:
    """A machine has just joined, its Node is deleted and registered again, and the leader's cache long has no NNC."""
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
    """It is registered again under its NNC, which is made anew, and the leader's cache still has the Node of before."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cache = driver.hold(reads_of("nodes", "controller"), limit=None, responses=True)
    cluster.delete_node("a")
    cluster.register("a")
    await driver.run_for(5)
    before = cluster.written()
    await driver.run_for(10)
    check_quiet(before, cluster.written())
    cache.release()
    await driver.converge(60)

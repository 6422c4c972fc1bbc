"""Scenarios of node slices: slices that are withdrawn too early, held by another node, or known too late."""

from functools import partial

from podpool.api.builtin import LEASES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS, NODE_UID_LABEL
from podpool.lab.sim import nads
from podpool.lab.sim.nads import AttachedNetwork
from podpool.lab.sim.network import MessageFilter
from podpool.lab.sim.slice_convergence import check_slices_converged
from podpool.lab.sim.slice_invariants import ippools, leases
from tests.lab.sim.driver import ScenarioDriver

NODE_SLICE_POOL = "kube-system/red"
NODE_GC_SECONDS = 60.0
"""Seconds after which an absent Node is collected: the node GC delay, and a scan."""


async def join(driver: ScenarioDriver, *names: str) -> None:
    """Add machines, and wait until they hold the slices that they are offered."""
    for name in names:
        driver.cluster.add_host(name)
        await driver.wait_until(partial(holders, driver, name))


def network(driver: ScenarioDriver) -> AttachedNetwork:
    """Return the only network of the cluster."""
    return nads.networks(driver.cluster.config)[0]


def holders(driver: ScenarioDriver, node: str) -> list[str]:
    """Return the slices that a node's agent holds, by the keys of their Leases."""
    found = leases(driver.cluster).items()
    return [key for key, each in found if each.get("spec", {}).get("holderIdentity", "").startswith(f"{node}/")]


def slices(driver: ScenarioDriver) -> list[str]:
    """Return the slices of all nodes, by the keys of their IPPools."""
    return [
        key for key, each in ippools(driver.cluster).items() if NODE_UID_LABEL in each["metadata"].get("labels", {})
    ]


async def a_nad_is_deleted_with_running_pods(driver: ScenarioDriver) -> None:
    """They keep their addresses; after the last Pod the slice is returned and removed."""
    await join(driver, "a")
    pods = await driver.serve_pods("a", 3)
    nads.delete(driver.cluster.store, network(driver))
    await driver.run_for(20)
    assert 3 == driver.served("a")
    driver.delete_pods(pods)
    await driver.wait_until(lambda: not ippools(driver.cluster), within=60)


async def a_range_is_resized(driver: ScenarioDriver) -> None:
    """With running Pods: slices stay and serve the present range; a node that lost its slice gets another."""
    cluster, red = driver.cluster, network(driver)
    await join(driver, "a", "b", "c")
    await driver.serve_pods("a", 2)
    for changed in (red.larger, red, red.smaller):
        nads.write(cluster.store, changed)
        await driver.run_for(5)
        driver.bind("a", 1)
        await driver.run_for(NODE_GC_SECONDS)
        check_slices_converged(cluster)
    nads.write(cluster.store, red)
    await driver.run_for(NODE_GC_SECONDS)
    assert 5 == driver.served("a")
    check_slices_converged(cluster)


async def a_slice_is_taken_while_it_is_withdrawn(driver: ScenarioDriver) -> None:
    """No agent had taken it when the leader decided; when the delete arrives, one has."""
    cluster = driver.cluster
    taking = driver.hold(writes_of(LEASES.plural, "a"))
    cluster.add_host("a")
    await driver.wait_until(lambda: taking.messages)
    delete = driver.hold(lambda each: each.request.method == "DELETE" and "/leases/" in each.request.path)
    nads.delete(cluster.store, network(driver))
    await driver.wait_until(lambda: delete.messages)
    taking.release()
    await driver.wait_until(lambda: holders(driver, "a"))
    delete.release()
    await driver.run_for(5)
    nads.write(cluster.store, network(driver))
    await driver.run_for(60)
    check_slices_converged(cluster)


async def a_node_is_reregistered_unseen(driver: ScenarioDriver) -> None:
    """It is registered again in the same boot; the leader, whose cache lags, does not see that it returned."""
    cluster = driver.cluster
    await join(driver, "a")
    await driver.serve_pods("a", 3)
    cluster.delete_node("a")
    await driver.run_for(1)
    lag = driver.hold(watches_of("nodes", "controller"), limit=None, responses=True)
    cluster.register("a")
    await driver.run_for(NODE_GC_SECONDS)
    lag.release()
    await driver.run_for(60)
    check_slices_converged(cluster)


async def a_new_leader_has_a_stale_cache(driver: ScenarioDriver) -> None:
    """It has seen no slice, and the NodeSlicePool is deleted: only IPPools that it has not seen show the owners.

    The first node's slice is the third's by now, and the second has another than it would be assigned.
    """
    cluster = driver.cluster
    first, second = cluster.controllers
    cluster.controllers[second].kill()
    await driver.run_for(25)
    cluster.start_controller(second)
    await driver.run_for(5)
    for kind in (IP_POOLS.plural, LEASES.plural):
        driver.hold(watches_of(kind, second), limit=None, responses=True)
    await join(driver, "a", "b")
    cluster.remove_host("a")
    await driver.wait_until(lambda: len(slices(driver)) == 1, within=NODE_GC_SECONDS)
    await join(driver, "c")
    cluster.controllers[first].kill()
    cluster.store.delete(cluster.store.registry.of(NODE_SLICE_POOLS), NODE_SLICE_POOL)
    await driver.run_for(60)


async def a_machine_returns_after_node_gc(driver: ScenarioDriver) -> None:
    """It was isolated, its Node deleted, its slice assigned to a waiting node; then it returns and has Pods."""
    cluster = driver.cluster
    await join(driver, "a", "b", "c", "d")
    cluster.add_host("e")
    cluster.isolate("a")
    cluster.delete_node("a")
    await driver.wait_until(lambda: holders(driver, "e"), within=NODE_GC_SECONDS + 30)
    driver.bind("e", 6)
    await driver.wait_until(lambda: driver.served("e") == 6)
    cluster.hosts["a"].isolated_pods = None
    cluster.register("a")
    cluster.network.heal("a", cluster.api.name)
    driver.bind("a", 3)
    await driver.run_for(40)
    assert 0 == driver.served("a")
    cluster.remove_host("b")
    await driver.wait_until(lambda: driver.served("a") == 3, within=NODE_GC_SECONDS + 60)


async def a_restored_api_server_lacks_slices(driver: ScenarioDriver) -> None:
    """It is restored to before two nodes got their slices, and would assign each the other's.

    The agents report what they have, and get it again.
    """
    await restore_without_slices(driver)
    await driver.run_for(2 * NODE_GC_SECONDS)
    driver.bind("a", 2)
    await driver.run_for(NODE_GC_SECONDS)
    assert 5 == driver.served("a")
    check_slices_converged(driver.cluster)


async def an_agent_is_partitioned_after_a_restore(driver: ScenarioDriver) -> None:
    """The same, and one of the two is partitioned: nothing is assigned before it has reported."""
    cluster = driver.cluster
    await restore_without_slices(driver, away="b")
    driver.bind("a", 2)
    await driver.run_for(2 * NODE_GC_SECONDS)
    cluster.network.heal("b", cluster.api.name)
    await driver.run_for(3 * NODE_GC_SECONDS)
    assert 5 == driver.served("a")
    check_slices_converged(cluster)


async def restore_without_slices(driver: ScenarioDriver, *, away: str = "") -> None:
    """Let b have the first slice, and a the second, in use; then restore a copy without any.

    In the copy a is the first to be served: it was registered again since.
    """
    cluster = driver.cluster
    first, second = cluster.controllers
    cluster.controllers[second].kill()
    await driver.run_for(25)
    cluster.start_controller(second)
    nads.delete(cluster.store, network(driver))
    for name, pods in (("a", 3), ("b", 6)):
        cluster.add_host(name)
        driver.bind(name, pods)
        await driver.run_for(2)
    copy = cluster.store.snapshot()
    cluster.delete_node("a")
    await driver.run_for(2)
    cluster.register("a")
    nads.write(cluster.store, network(driver))
    await driver.wait_until(lambda: (driver.served("a"), driver.served("b")) == (3, 6), within=60)
    if away:
        cluster.network.partition(away, cluster.api.name)
    cluster.controllers[first].kill()  # who leads would remember
    cluster.restore_api(copy)
    nads.write(cluster.store, network(driver))


async def a_restored_lease_is_not_acknowledged(driver: ScenarioDriver) -> None:
    """A machine did not take an offered slice, a waiting node has it by now, and a copy shows the offer."""
    cluster = driver.cluster
    taking = driver.hold(writes_of(LEASES.plural, "a"))
    cluster.add_host("a")
    await driver.wait_until(lambda: taking.messages)
    await join(driver, "c", "d", "e")
    cluster.add_host("b")
    driver.bind("b", 6)
    await driver.run_for(5)
    copy = cluster.store.snapshot()
    cluster.remove_host("a")
    await driver.wait_until(lambda: driver.served("b") == 6, within=60)
    cluster.add_host("a")
    cluster.restore_api(copy)
    driver.bind("a", 3)
    await driver.run_for(4 * NODE_GC_SECONDS)
    assert (0, 6) == (driver.served("a"), driver.served("b"))
    check_slices_converged(cluster)


async def join_shared(driver: ScenarioDriver, *names: str) -> None:
    """Share the range among all nodes, and add machines one after the other."""
    nads.write(driver.cluster.store, network(driver), "")
    for name in names:
        driver.cluster.add_host(name)
        await driver.run_for(3)


async def a_shared_range_is_sliced_with_running_pods(driver: ScenarioDriver) -> None:
    """They keep their addresses; a node that joined earlier gets a slice without these.

    When the Pods are deleted, their slice is assigned too.
    """
    cluster = driver.cluster
    await join_shared(driver, "b", "a")
    pods = await driver.serve_pods("a", 3)
    nads.write(cluster.store, network(driver))
    driver.bind("b", 4)
    driver.bind("a", 2)
    await driver.wait_until(lambda: (driver.served("a"), driver.served("b")) == (5, 4))
    await driver.run_for(2)
    check_slices_converged(cluster)
    await join(driver, "c")
    cluster.add_host("d")
    await driver.run_for(10)
    assert not holders(driver, "d")
    driver.delete_pods(pods)
    await driver.wait_until(lambda: holders(driver, "d"))
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)


async def a_machine_reboots_after_its_range_was_sliced(driver: ScenarioDriver) -> None:
    """Its Pods get addresses of a slice, and the shared IPPool has no entry of theirs after the cooldown."""
    cluster = driver.cluster
    await join_shared(driver, "a")
    await driver.serve_pods("a", 3)
    nads.write(cluster.store, network(driver))
    await driver.wait_until(lambda: holders(driver, "a"))
    cluster.reboot("a")
    await driver.wait_until(lambda: driver.served("a") == 3, within=60)
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)


async def an_entry_arrives_while_its_range_is_sliced(driver: ScenarioDriver) -> None:
    """An agent has read the shared IPPool, and its patch arrives when another node has a slice."""
    cluster = driver.cluster
    await join_shared(driver, "b", "a")
    driver.delete_pods(await driver.serve_pods("a", 1))
    await driver.run_for(5)
    patch = driver.hold(writes_of(IP_POOLS.plural, "a"))
    driver.bind("a", 1)
    await driver.wait_until(lambda: patch.messages)
    nads.write(cluster.store, network(driver))
    driver.bind("b", 6)
    await driver.wait_until(lambda: driver.served("b") == 6, within=15)
    patch.release()
    await driver.wait_until(lambda: driver.served("a") == 1)
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)


async def a_range_is_shared_again_with_running_pods(driver: ScenarioDriver) -> None:
    """One node has Pods and keeps its slice; the other returned its own, and waits for all."""
    cluster = driver.cluster
    await join(driver, "a", "b")
    pods = await driver.serve_pods("a", 3)
    nads.write(cluster.store, network(driver), "")
    await driver.wait_until(lambda: not holders(driver, "b"))
    await driver.run_for(5)
    driver.bind("b", 2)
    await driver.run_for(20)
    assert (3, 0) == (driver.served("a"), driver.served("b"))
    driver.delete_pods(pods)
    await driver.wait_until(lambda: driver.served("b") == 2, within=NODE_GC_SECONDS)
    assert not slices(driver)


def watches_of(plural: str, source: str) -> MessageFilter:
    """Match watches of a resource."""
    return lambda each: (
        each.source.startswith(source) and "watch" in each.request.query and each.request.path.endswith(f"/{plural}")
    )


def writes_of(plural: str, source: str) -> MessageFilter:
    """Match patches of objects of a resource."""
    return lambda each: each.source == source and each.request.method == "PATCH" and f"/{plural}/" in each.request.path

"""Scenarios of node slices: slices that are withdrawn too early, held by another node, or known too late."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from podpool.api.crds import multus_crd_manifest
from podpool.api.node_slices import NODE_SLICES, NodeSlices
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.lab.apiserver.registry import CRDS
from podpool.lab.sim import nads
from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.convergence import check_quiet, write_state
from podpool.lab.sim.nads import AttachedNetwork
from podpool.lab.sim.network import MessageFilter, MessageHold
from podpool.lab.sim.slice_convergence import check_slices_converged
from podpool.lab.sim.slice_state import OwnedAssignment, all_owned, node_slices
from tests.lab.sim.driver import ScenarioDriver

NODE_SLICE_POOL = "kube-system/red"
NODE_GC_SECONDS = 60.0
"""Seconds after which an absent Node is collected: the node GC delay, and a scan."""
SILENT_SECONDS = 8.0
"""Seconds after which the Node of a partitioned machine is not ready."""


async def join(driver: ScenarioDriver, *names: str) -> None:
    """Add machines, and wait until they hold the slices that they are offered."""
    for name in names:
        driver.cluster.add_host(name)
        await driver.wait_until(partial(held, driver, name), within=60)


def network(driver: ScenarioDriver) -> AttachedNetwork:
    """Return the first network of the cluster."""
    return nads.networks(driver.cluster.config)[0]


def of_node(driver: ScenarioDriver, node: str) -> list[OwnedAssignment]:
    """Return the assignments of a node, without those of former Nodes of its name."""
    return [each for each in all_owned(driver.cluster) if each.node == node and not each.former]


def held(driver: ScenarioDriver, node: str) -> list[str]:
    """Return the slices that the agent of a node's present machine holds and the controller has confirmed."""
    host, of = driver.cluster.hosts.get(node), shown(driver, node)
    if host is None or of.status.boot_id != host.machine.boot_id:
        return []
    found = of_node(driver, node)
    return [each.assignment.slice for each in found if each.status and each.status.held and each.is_confirmed]


def slices(driver: ScenarioDriver) -> list[str]:
    """Return the slices of all nodes."""
    return [each.assignment.slice for each in all_owned(driver.cluster)]


def shown(driver: ScenarioDriver, node: str) -> NodeSlices:
    """Return the NodeSlices of a node; an empty one if it has none."""
    return node_slices(driver.cluster).get(node, NodeSlices())


async def a_nad_is_deleted_with_running_pods(driver: ScenarioDriver) -> None:
    """They keep their addresses; after the last Pod the slice is returned and removed."""
    await join(driver, "a")
    pods = await driver.serve_pods("a", 3)
    nads.delete(driver.cluster.store, network(driver))
    await driver.run_for(20)
    assert 3 == driver.served("a")
    driver.delete_pods(pods)
    await driver.wait_until(lambda: not slices(driver), within=60)


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
    """No agent had acknowledged it when the leader decided; when the patch arrives, one has."""
    cluster = driver.cluster
    taking = await offer(driver, "a")
    withdrawal = driver.hold(spec_writes_of("a"))
    nads.delete(cluster.store, network(driver))
    await driver.wait_until(lambda: withdrawal.messages)
    taking.release()
    await driver.wait_until(lambda: shown(driver, "a").status.slices)
    withdrawal.release()
    await driver.run_for(5)
    nads.write(cluster.store, network(driver))
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)


async def offer(driver: ScenarioDriver, node: str) -> MessageHold:
    """Let a node return a slice, offer it another, and hold its acknowledgement."""
    store, red = driver.cluster.store, network(driver)
    await join(driver, node)
    nads.delete(store, red)
    await driver.wait_until(lambda: not of_node(driver, node) and not shown(driver, node).status.slices, within=60)
    taking = driver.hold(status_writes_of(node))
    nads.write(store, red)
    await driver.wait_until(lambda: taking.messages and of_node(driver, node))
    return taking


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


async def a_node_is_reregistered(driver: ScenarioDriver) -> None:
    """In the same boot: its slices, their IDs and its Pods stay, and it serves more."""
    cluster = driver.cluster
    await join(driver, "a", "b")
    await driver.serve_pods("a", 3)
    before = [each.assignment.id for each in of_node(driver, "a")]
    cluster.delete_node("a")
    await driver.run_for(5)
    cluster.register("a")
    await driver.run_for(2 * NODE_GC_SECONDS)
    await driver.serve_pods("a", 2)
    await driver.run_for(5)
    assert before == [each.assignment.id for each in of_node(driver, "a")]
    check_slices_converged(cluster)


async def a_node_is_replaced_while_its_machine_is_cut_off(driver: ScenarioDriver) -> None:
    """Another machine has its name at once, and gets another slice; the first one's stays until node GC."""
    cluster = driver.cluster
    await join(driver, "a", "b", "c")
    pods = await driver.serve_pods("a", 6)
    first = held(driver, "a")
    cut_off = cluster.cut_off("a")
    driver.delete_pods(pods)
    cluster.delete_node("a")
    await driver.run_for(2)
    await join(driver, "a")
    assert not {*first} & {*held(driver, "a")}
    await driver.serve_pods("a", 6)
    cluster.add_host("d")
    driver.bind("d", 6)
    await driver.run_for(20)
    assert not held(driver, "d")
    cluster.end(cut_off)
    await driver.wait_until(lambda: driver.served("d") == 6, within=NODE_GC_SECONDS + 30)
    await driver.run_for(10)
    check_slices_converged(cluster)


async def a_new_leader_has_a_stale_cache(driver: ScenarioDriver) -> None:
    """It has seen no slice, and the NodeSlicePool is deleted: only NodeSlices that it has not seen show the owners.

    The first node's slice is the fourth's by now, the third has another than it would be assigned, and a node joins.
    """
    cluster = driver.cluster
    first, second = cluster.controllers
    cluster.controllers[second].kill()
    await driver.run_for(25)
    cluster.start_controller(second)
    await driver.run_for(5)
    for kind in (NODE_SLICES.plural, IP_POOLS.plural):
        driver.hold(watches_of(kind, second), limit=None, responses=True)
        driver.hold(cached_lists_of(kind, second), limit=None, responses=True)
    for name in ("b", "c"):
        driver.hold(reads_of_slices(name, second), limit=None, responses=True)
    await join(driver, "a", "e", "b")
    for name in ("a", "e"):
        cluster.remove_host(name)
    await driver.wait_until(lambda: len(slices(driver)) == 1, within=NODE_GC_SECONDS)
    await join(driver, "c")
    cluster.controllers[first].kill()
    cluster.store.delete(cluster.store.registry.of(NODE_SLICE_POOLS), NODE_SLICE_POOL)
    cluster.add_host("d")
    await driver.run_for(90)


async def a_machine_returns_after_node_gc(driver: ScenarioDriver) -> None:
    """It was isolated, its Node deleted, its slice assigned to a waiting node; then it returns and has Pods."""
    cluster = driver.cluster
    await collect_and_reuse(driver)
    cluster.hosts["a"].isolated_pods = None
    cluster.register("a")
    cluster.network.heal("a", cluster.api.name)
    driver.bind("a", 3)
    await driver.run_for(40)
    assert 0 == driver.served("a")
    cluster.remove_host("b")
    await driver.wait_until(lambda: driver.served("a") == 3, within=NODE_GC_SECONDS + 60)


async def collect_and_reuse(driver: ScenarioDriver) -> None:
    """Isolate a machine and delete its Node, until its slice is assigned to a waiting node and all of it is in use."""
    cluster = driver.cluster
    await join(driver, "a", "b", "c", "d")
    cluster.add_host("e")
    cluster.isolate("a")
    cluster.delete_node("a")
    await driver.wait_until(lambda: held(driver, "e"), within=NODE_GC_SECONDS + 30)
    driver.bind("e", 6)
    await driver.wait_until(lambda: driver.served("e") == 6)


async def a_collected_machine_returns_with_a_copy(driver: ScenarioDriver) -> None:
    """Its slice was assigned to a waiting node, and a copy shows it as its own, held and confirmed.

    The waiting node is partitioned, so that it cannot report that it has the slice.
    """
    cluster = driver.cluster
    await join(driver, "a", "b", "c", "d")
    cluster.add_host("e")
    driver.bind("e", 6)
    await driver.run_for(5)
    copy = cluster.store.snapshot()
    cluster.isolate("a")
    cluster.delete_node("a")
    await driver.wait_until(lambda: driver.served("e") == 6, within=NODE_GC_SECONDS + 60)
    cluster.network.partition("e", cluster.api.name)
    cluster.restore_api(copy)
    cluster.hosts["a"].isolated_pods = None
    cluster.network.heal("a", cluster.api.name)
    driver.bind("a", 3)
    await driver.run_for(25)
    assert 0 == driver.served("a")
    cluster.network.heal("e", cluster.api.name)
    await driver.run_for(3 * NODE_GC_SECONDS)
    assert (0, 6) == (driver.served("a"), driver.served("e"))
    check_slices_converged(cluster)


async def a_machine_reboots_while_no_controller_runs(driver: ScenarioDriver) -> None:
    """Its Node shows the new boot, but nobody confirms its slice in it: its Pods wait."""
    cluster = driver.cluster
    await join(driver, "a")
    await driver.serve_pods("a", 3)
    driver.pause_controllers()
    cluster.reboot("a")
    await driver.run_for(20)
    assert 0 == driver.served("a")
    driver.resume_controllers()
    await driver.wait_until(lambda: driver.served("a") == 3, within=60)
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)


async def a_return_lands_after_its_agent_was_killed(driver: ScenarioDriver) -> None:
    """The API server is unreachable for the next agent, whose Pods get nothing from the returned slice."""
    cluster, red = driver.cluster, network(driver)
    await join(driver, "a", "b", "c", "d")
    cluster.add_host("e")
    returns = driver.hold(status_writes_of("a", lambda status: any(map(is_returned, status.get("slices", ())))))
    nads.write(cluster.store, red, nads.SLICE_SIZES[1])
    await driver.wait_until(lambda: returns.messages, within=60)
    cluster.kill_agent("a")
    nads.write(cluster.store, red)
    cluster.network.partition("a", cluster.api.name)
    returns.release()
    cluster.start_agent("a")
    driver.bind("a", 3)
    driver.bind("e", 6)
    await driver.run_for(20)
    cluster.network.heal("a", cluster.api.name)
    await driver.run_for(2 * NODE_GC_SECONDS)


async def the_answer_to_held_is_lost(driver: ScenarioDriver) -> None:
    """The agent is killed, too, and its successor uses the slice: the journal counts."""
    cluster = driver.cluster
    answers = driver.hold(
        status_writes_of("a", lambda status: any(each.get("held") for each in status.get("slices", ()))),
        responses=True,
    )
    cluster.add_host("a")
    driver.bind("a", 3)
    await driver.wait_until(lambda: answers.messages)
    await driver.wait_until(lambda: driver.served("a") == 3)
    driver.restart_agent("a")
    answers.release()
    await driver.serve_pods("a", 2)
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)


async def an_agent_without_a_status_uses_a_slice(driver: ScenarioDriver) -> None:
    """An agent of another version, which writes no status: everything that is assigned to it is its own."""
    cluster, red = driver.cluster, network(driver)
    silent = driver.hold(lambda each: each.source == "a" and each.request.path.endswith("/status"), limit=None)
    cluster.add_host("a")
    await driver.wait_until(lambda: of_node(driver, "a"), within=60)
    assert 0 == shown(driver, "a").status.protocol
    before = of_node(driver, "a")
    nads.write(cluster.store, red.larger, nads.SLICE_SIZES[1])
    await driver.run_for(20)
    nads.delete(cluster.store, red)
    await driver.run_for(2 * NODE_GC_SECONDS)
    assert {each.assignment.id for each in before} <= {each.assignment.id for each in of_node(driver, "a")}
    nads.write(cluster.store, red)
    silent.release()
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)


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
    """The same, one of the two is partitioned, and the other reports late: nothing is assigned before both have."""
    cluster = driver.cluster
    report = driver.hold(lambda each: bool(cluster.restores) and status_writes_of("a")(each), limit=None)
    await restore_without_slices(driver, away="b")
    await driver.run_for(NODE_GC_SECONDS / 2)
    report.release()
    driver.bind("a", 2)
    await driver.run_for(2 * NODE_GC_SECONDS)
    cluster.network.heal("b", cluster.api.name)
    await driver.run_for(3 * NODE_GC_SECONDS)
    assert 5 == driver.served("a")
    check_slices_converged(cluster)


async def lead_with_first(driver: ScenarioDriver) -> str:
    """Let the first controller lead, and return its name."""
    first, second = driver.cluster.controllers
    driver.cluster.controllers[second].kill()
    await driver.run_for(25)
    driver.cluster.start_controller(second)
    return first


async def restore_without_slices(driver: ScenarioDriver, *, away: str = "") -> None:
    """Let b have the first slice, and a the second, in use; then restore a copy without any.

    In the copy a is the first to be served: it was registered again since.
    """
    cluster = driver.cluster
    first = await lead_with_first(driver)
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


async def a_restored_assignment_is_not_confirmed(driver: ScenarioDriver) -> None:
    """A machine did not take an offered slice, a waiting node has it by now, and a copy shows the offer."""
    cluster = driver.cluster
    await restore_an_offer(driver)
    driver.bind("a", 3)
    await driver.run_for(4 * NODE_GC_SECONDS)
    assert (0, 6) == (driver.served("a"), driver.served("b"))
    check_slices_converged(cluster)


async def a_slice_is_acknowledged_before_the_inventory(driver: ScenarioDriver) -> None:
    """The same, and the waiting node is partitioned: nothing is confirmed before it has reported."""
    cluster = driver.cluster
    await restore_an_offer(driver, away="b")
    driver.bind("a", 3)
    await driver.run_for(2 * NODE_GC_SECONDS)
    assert 0 == driver.served("a")
    cluster.network.heal("b", cluster.api.name)
    await driver.run_for(3 * NODE_GC_SECONDS)
    assert (0, 6) == (driver.served("a"), driver.served("b"))
    check_slices_converged(cluster)


async def restore_an_offer(driver: ScenarioDriver, *, away: str = "") -> None:
    """Offer a machine a slice that it does not take, let another have it in use, and restore the offer."""
    cluster = driver.cluster
    first = await lead_with_first(driver)
    taking = driver.hold(status_writes_of("a"), limit=None)
    cluster.add_host("a")
    await driver.wait_until(lambda: taking.messages)
    await join(driver, "c", "d", "e")
    cluster.add_host("b")
    driver.bind("b", 6)
    await driver.run_for(5)
    copy = cluster.store.snapshot()
    cluster.remove_host("a")
    await driver.wait_until(lambda: driver.served("b") == 6, within=90)
    if away:
        cluster.network.partition(away, cluster.api.name)
        await driver.run_for(SILENT_SECONDS)
    cluster.add_host("a")
    await driver.run_for(2)
    cluster.controllers[first].kill()  # who leads would remember
    cluster.restore_api(copy)
    taking.release()


async def a_restore_is_seen_by_an_agent_alone(driver: ScenarioDriver) -> None:
    """No controller ran, and one of two nodes with lost slices is partitioned: the other reports the restore."""
    await restore_unseen(driver)
    await end_partition(driver)


async def the_leader_changes_during_an_inventory(driver: ScenarioDriver) -> None:
    """The same; the other node has answered, and the leader that awaits the partitioned one is replaced."""
    await restore_unseen(driver)
    await driver.run_for(NODE_GC_SECONDS)
    await restart_controllers(driver)
    await end_partition(driver)


async def restore_unseen(driver: ScenarioDriver) -> None:
    """Restore the API server to before two nodes had their slices, while no controller runs and b is partitioned."""
    cluster = driver.cluster
    await join(driver, "a")
    copy = cluster.store.snapshot()
    await move_to_another_slice(driver, "a")
    await join(driver, "c", "b")
    await driver.serve_pods("b", 6)
    cluster.remove_host("c")  # so that it is served after b, which would get another slice
    for process in cluster.controllers.values():
        process.kill()
    cluster.network.partition("b", cluster.api.name)
    await driver.run_for(SILENT_SECONDS)
    cluster.restore_api(copy)
    await driver.run_for(SILENT_SECONDS)
    await restart_controllers(driver)
    for name in ("c", "d", "e"):
        cluster.add_host(name)
        driver.bind(name, 6)


async def restart_controllers(driver: ScenarioDriver) -> None:
    """Replace all controllers by new processes."""
    for name, process in list(driver.cluster.controllers.items()):
        process.kill()
        driver.cluster.start_controller(name)


async def end_partition(driver: ScenarioDriver) -> None:
    """Wait for longer than node GC takes, then let the partitioned machine b return."""
    await driver.run_for(2 * NODE_GC_SECONDS)
    driver.cluster.network.heal("b", driver.cluster.api.name)
    await driver.run_for(3 * NODE_GC_SECONDS)
    check_slices_converged(driver.cluster)


async def move_to_another_slice(driver: ScenarioDriver, node: str) -> None:
    """Let a node return its slice, and hold another one of the same size."""
    cluster, red = driver.cluster, network(driver)
    before = {each.assignment.id for each in of_node(driver, node)}
    nads.write(cluster.store, red, nads.SLICE_SIZES[1])
    await driver.wait_until(lambda: not before & {each.assignment.id for each in of_node(driver, node)}, within=60)
    nads.write(cluster.store, red)
    await driver.run_for(NODE_GC_SECONDS)


async def a_silent_node_has_a_slice_that_looks_unheld(driver: ScenarioDriver) -> None:
    """A copy shows a slice as never acknowledged, its machine is silent, and a new leader finds it unwanted.

    No controller saw the restore. The slice is in use.
    """
    cluster, red = driver.cluster, network(driver)
    taking = await offer(driver, "a")
    driver.bind("a", 3)
    copy = cluster.store.snapshot()
    taking.release()
    await driver.wait_until(lambda: driver.served("a") == 3, within=60)
    for process in cluster.controllers.values():
        process.kill()
    cluster.network.partition("a", cluster.api.name)
    await driver.run_for(SILENT_SECONDS)
    cluster.restore_api(copy)
    nads.delete(cluster.store, red)
    for name in list(cluster.controllers):
        cluster.start_controller(name)
    cluster.add_host("b")
    await driver.run_for(2 * NODE_GC_SECONDS)
    nads.write(cluster.store, red)
    driver.bind("b", 6)
    await driver.run_for(NODE_GC_SECONDS)
    cluster.network.heal("a", cluster.api.name)
    await driver.run_for(3 * NODE_GC_SECONDS)
    assert (3, 6) == (driver.served("a"), driver.served("b"))
    check_slices_converged(cluster)


async def all_nodes_are_deleted(driver: ScenarioDriver) -> None:
    """By mistake, with their Pods: nothing is released, and a new node gets another slice."""
    cluster, names = driver.cluster, ("a", "b", "c", "d", "e", "f")
    await join(driver, *names)
    for name in names:
        await driver.serve_pods(name, 2)
    for name in names:
        cluster.isolate(name)
        driver.delete_pods(list(cluster.pods_on(name).values()))
        cluster.delete_node(name)
    await driver.run_for(2 * NODE_GC_SECONDS)
    await join(driver, "g")
    await driver.serve_pods("g", 2)
    assert 7 == len({*slices(driver)})
    for name in names:
        cluster.hosts[name].isolated_pods = None
        cluster.register(name)
        cluster.network.heal(name, cluster.api.name)
    await driver.run_for(2 * NODE_GC_SECONDS)
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
    await driver.run_for(8)
    check_slices_converged(cluster)
    await join(driver, "c")
    cluster.add_host("d")
    await driver.run_for(10)
    assert not held(driver, "d")
    driver.delete_pods(pods)
    await driver.wait_until(lambda: held(driver, "d"))
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)


async def a_machine_reboots_after_its_range_was_sliced(driver: ScenarioDriver) -> None:
    """Its Pods get addresses of a slice, and the shared IPPool has no entry of theirs after the cooldown."""
    cluster = driver.cluster
    await join_shared(driver, "a")
    await driver.serve_pods("a", 3)
    nads.write(cluster.store, network(driver))
    await driver.wait_until(lambda: held(driver, "a"))
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
    await driver.wait_until(lambda: not held(driver, "b"))
    await driver.run_for(5)
    driver.bind("b", 2)
    await driver.run_for(20)
    assert (3, 0) == (driver.served("a"), driver.served("b"))
    driver.delete_pods(pods)
    await driver.wait_until(lambda: driver.served("b") == 2, within=NODE_GC_SECONDS)
    assert not slices(driver)


async def two_nads_share_a_range(driver: ScenarioDriver) -> None:
    """Of one network: a node has one slice for both. Another network has the same addresses once more."""
    cluster, red = driver.cluster, network(driver)
    await join(driver, "a", "b")
    nads.write_as(cluster.store, red, "red-again", network=red.name)
    nads.write_as(cluster.store, red, "other", network="other")
    await driver.wait_until(lambda: len(of_node(driver, "a")) == len(of_node(driver, "b")) == 2)
    assert {"red", "other"} == {each.assignment.network for each in of_node(driver, "a")}
    nads.delete(cluster.store, red)
    await driver.run_for(NODE_GC_SECONDS)
    assert {"red", "other"} == {each.assignment.network for each in of_node(driver, "a") if each.is_confirmed}


async def a_nad_is_inside_a_subnet_of_the_ledger(driver: ScenarioDriver) -> None:
    """Pods of the node pool have those addresses: only a network with a name of its own may have them again."""
    cluster = driver.cluster
    inside = AttachedNetwork("inside", cluster.config.cidr, "net1")
    cluster.store.create(CRDS, multus_crd_manifest())
    nads.write_as(cluster.store, inside, "inside", network="", size="/28")
    nads.write_as(cluster.store, inside, "apart", network="apart", size="/28")
    await driver.join("a", "b")
    await driver.run_for(2 * NODE_GC_SECONDS)
    assert of_node(driver, "a")
    for each in all_owned(cluster):
        if each.assignment.network != "apart":
            raise Violation("one owner", f"{each.assignment.slice} of {each.node} is in a subnet of the ledger")


async def nothing_happens(driver: ScenarioDriver) -> None:
    """Nodes have their slices, and no component has a reason to write."""
    cluster = driver.cluster
    await join(driver, "a", "b")
    await driver.serve_pods("a", 3)
    await driver.run_for(NODE_GC_SECONDS)
    check_slices_converged(cluster)
    before = write_state(cluster)
    await driver.run_for(NODE_GC_SECONDS)
    check_quiet(before, write_state(cluster))


# filters of messages to hold


def watches_of(plural: str, source: str) -> MessageFilter:
    """Match watches of a resource."""
    return lambda each: (
        each.source.startswith(source) and "watch" in each.request.query and each.request.path.endswith(f"/{plural}")
    )


def cached_lists_of(plural: str, source: str) -> MessageFilter:
    """Match lists of a resource that a cache may answer."""
    return lambda each: (
        each.source == source
        and each.request.query.get("resourceVersion") == "0"
        and each.request.path.endswith(f"/{plural}")
    )


def reads_of_slices(node: str, source: str) -> MessageFilter:
    """Match reads of the NodeSlices of a node."""
    path = f"/{NODE_SLICES.plural}/{node}"
    return lambda each: each.source == source and each.request.method == "GET" and each.request.path.endswith(path)


def writes_of(plural: str, source: str) -> MessageFilter:
    """Match patches of objects of a resource."""
    return lambda each: each.source == source and each.request.method == "PATCH" and f"/{plural}/" in each.request.path


def status_writes_of(node: str, matches: Callable[[dict[str, Any]], bool] = lambda _: True) -> MessageFilter:
    """Match an agent's patches of the status of its NodeSlices."""
    path = f"/{NODE_SLICES.plural}/{node}/status"
    return lambda each: (
        each.source == node
        and each.request.method == "PATCH"
        and each.request.path.endswith(path)
        and matches(status_in(each.request.body))
    )


def spec_writes_of(node: str) -> MessageFilter:
    """Match a controller's patches of a NodeSlices."""
    return lambda each: each.request.method == "PATCH" and each.request.path.endswith(f"/{NODE_SLICES.plural}/{node}")


def status_in(body: bytes) -> dict[str, Any]:
    """Return the status in a patch, a merge patch or a JSON patch."""
    patch = msgspec.json.decode(body)
    if isinstance(patch, list):
        patch = {"status": next((each["value"] for each in patch if each.get("path") == "/status"), {})}
    status: dict[str, Any] = patch.get("status") or {}
    return status


def is_returned(slice_: dict[str, Any]) -> bool:
    """Return whether a slice in a status is returned."""
    return bool(slice_.get("returned"))

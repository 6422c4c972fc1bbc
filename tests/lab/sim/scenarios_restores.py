"""Scenarios of leaders with stale caches, and of a ledger or API server restored from an older copy."""

from podpool.lab.sim.manual_edits import edit_request
from tests.lab.sim.driver import ScenarioDriver, nnc_patches_of, nnc_status_writes_of, reads_of, reconcile_calls


async def a_new_leader_has_a_stale_cache(driver: ScenarioDriver) -> None:
    """One leader has moved addresses from a node to another; the next still sees them at the first."""
    cluster = driver.cluster
    await driver.join("a", "b")
    pods = await driver.serve_pods("a", 8)
    cluster.start_controller("next")
    await driver.run_for(3)
    cache = driver.hold(reads_of("nodenetworkconfigs", "next"), limit=None, responses=True)
    driver.bind("b", 6)
    driver.delete_pods(pods[2:])
    await driver.wait_until(lambda: driver.served("b") == 6)
    cluster.controllers["controller-0"].kill()
    await driver.run_for(25)
    cache.release()
    driver.bind("a", 1)
    await driver.converge(60)


async def a_call_reaches_a_restored_ledger(driver: ScenarioDriver) -> None:
    """A node's Pods use what was granted after the backup, and a call for another node is in flight."""
    cluster = driver.cluster
    await driver.join("a", "b")
    image = cluster.ledger_host.image()
    await driver.serve_pods("a")
    call = driver.hold(reconcile_calls(lambda item: item.node == "b"))
    driver.bind("b", 6)
    await driver.wait_until(lambda: call.messages)
    cluster.ledger_host.restore(image)
    call.release()
    await driver.converge(90)


async def a_node_requests_from_a_restored_ledger(driver: ScenarioDriver) -> None:
    """Another node's Pods use what was granted after the backup, and no inventory was sent yet."""
    cluster = driver.cluster
    await driver.join("a", "b")
    image = cluster.ledger_host.image()
    await driver.serve_pods("a")
    cluster.ledger_host.restore(image)
    driver.bind("b", 6)
    await driver.converge(90)


async def a_status_arrives_after_the_inventory(driver: ScenarioDriver) -> None:
    """A paused leader's status of former grants is in flight; the next leader takes the inventory."""
    cluster = driver.cluster
    await driver.join("a", "b")
    image = cluster.ledger_host.image()
    status = driver.hold(nnc_status_writes_of("a"))
    driver.bind("a", 6)
    await driver.wait_until(lambda: status.messages)
    cluster.controllers[status.messages[0].source].pause()
    cluster.ledger_host.restore(image)
    inventory = driver.hold(lambda each: each.request.path == "/v1/inventory", responses=True)
    await driver.wait_until(lambda: inventory.messages, within=60)
    status.release()
    await driver.run_for(15)
    inventory.release()
    driver.bind("b", 6)
    await driver.converge(60)


async def the_restored_ledger_lacks_addresses_in_use(driver: ScenarioDriver) -> None:
    """They were granted after the backup; only the inventories have them. Nothing is requested meanwhile."""
    cluster = driver.cluster
    await driver.join("a")
    image = cluster.ledger_host.image()
    await driver.serve_pods("a")
    cluster.ledger_host.restore(image)
    await driver.converge(60)


async def the_ledger_waits_for_a_cluster_without_nodes(driver: ScenarioDriver) -> None:
    """Its last machine was removed after the backup, so it requests nothing from the ledger."""
    cluster = driver.cluster
    await driver.join("a")
    image = cluster.ledger_host.image()
    cluster.remove_host("a")
    await driver.run_for(70)
    cluster.ledger_host.restore(image)
    await driver.converge(90)


async def former_releases_are_written_again(driver: ScenarioDriver) -> None:
    """The restored ledger grants again what was released; then a person writes the former spec."""
    cluster = driver.cluster
    await driver.join("a")
    image = cluster.ledger_host.image()
    call = await driver.shrink("a", reconcile_calls(lambda item: item.released))
    released = driver.pending_release("a")
    call.release()
    await driver.wait_until(lambda: not driver.pending_release("a"))
    cluster.ledger_host.restore(image)
    await driver.run_for(20)
    await driver.serve_pods("a", 5)
    patch = driver.hold(nnc_patches_of("a"), limit=None)
    edit_request(cluster.store, "a", 7, released=released)
    await driver.run_for(2)
    patch.release()
    await driver.converge(60)


async def a_restored_status_shows_addresses_of_others(driver: ScenarioDriver) -> None:
    """The API server is restored to when a node's Pods had the addresses that another's have now."""
    cluster = driver.cluster
    await driver.join("a", "b")
    pods = await driver.serve_pods("a", 8)
    driver.bind("b", 6)
    await driver.run_for(5)
    copy = cluster.store.snapshot()
    driver.delete_pods(pods)
    await driver.wait_until(lambda: driver.served("b") == 6)
    await driver.run_for(20)
    driver.pause_controllers()
    cluster.restore_api(copy)
    await driver.run_for(20)
    driver.resume_controllers()
    await driver.run_for(60)


async def a_restored_status_is_older(driver: ScenarioDriver) -> None:
    """The API server is restored to when a node's Pods were bound, before the status with their addresses."""
    cluster = driver.cluster
    await driver.join("a")
    status = driver.hold(nnc_status_writes_of("a"))
    driver.bind("a", 6)
    await driver.wait_until(lambda: status.messages)
    copy = cluster.store.snapshot()
    status.release()
    await driver.wait_until(lambda: driver.served("a") == 6)
    cluster.restore_api(copy)
    await driver.converge(60)


async def a_restored_status_shows_a_closed_nc(driver: ScenarioDriver) -> None:
    """Its Node was gone and returned with another NC; the API server is restored to the first one."""
    cluster = driver.cluster
    await driver.join("a")
    copy = cluster.store.snapshot()
    cluster.delete_node("a")
    await driver.run_for(60)
    cluster.register("a")
    await driver.run_for(5)
    driver.pause_controllers()
    cluster.restore_api(copy)
    await driver.run_for(12)
    driver.bind("a", 2)
    await driver.run_for(5)
    driver.resume_controllers()
    await driver.converge(90)


async def requests_fail_during_an_inventory(driver: ScenarioDriver) -> None:
    """Both are restored to when a Node was registered again and its NNC was still that of the former Node.

    An agent knows more than the API server, so the next leader waits for the node GC delay. The fence of the other node
    closes meanwhile, before it has its NNC again; Pods are bound to it. Then some of the leader's reads time out.
    """
    cluster = driver.cluster
    await driver.join("a", "b")
    driver.pause_controllers()
    cluster.delete_node("a")
    cluster.register("a")
    image, copy = cluster.ledger_host.image(), cluster.store.snapshot()
    driver.resume_controllers()
    await driver.serve_pods("b")
    for process in cluster.controllers.values():
        process.kill()
    cluster.ledger_host.restore(image)
    cluster.restore_api(copy)
    cluster.start_controller("controller-next")
    await driver.run_for(32)
    driver.bind("a", 2)
    await driver.run_for(15)
    for _ in range(3):
        driver.hold(reads_of("nodes", "controller-next"))
        await driver.run_for(20)
    await driver.converge(10)

"""Scenarios of addresses between assignment and release: pending releases, cooldown, the journal."""

from podpool.lab.sim.manual_edits import edit_request
from tests.lab.sim.driver import ScenarioDriver, nnc_patches_of, reads_of, reconcile_calls


async def a_patch_lands_after_its_agent_was_killed(driver: ScenarioDriver) -> None:
    """It releases addresses that the next agent, which reads the NNC without the releases, could assign."""
    await driver.join("a")
    patch = await driver.shrink("a", nnc_patches_of("a"))
    driver.bind("a", 5)
    driver.restart_agent("a")
    await driver.wait_until(lambda: driver.served("a") == 6)
    patch.release()
    await driver.converge(30)


async def a_patch_lands_after_a_reboot(driver: ScenarioDriver) -> None:
    """As before, but the machine has lost power and booted again."""
    await driver.join("a")
    patch = await driver.shrink("a", nnc_patches_of("a"))
    driver.bind("a", 5)
    driver.cluster.reboot("a")
    await driver.wait_until(lambda: driver.served("a") == 6)
    patch.release()
    await driver.converge(30)


async def a_start_on_a_stale_list(driver: ScenarioDriver) -> None:
    """The releases are in the NNC, no controller has seen them yet, and the agent's first list lacks them."""
    cluster = driver.cluster
    await driver.join("a")
    pods = await driver.serve_pods("a")
    driver.delete_pods(pods[1:])
    await driver.run_for(8)
    driver.pause_controllers()
    before = cluster.store.revision
    await driver.wait_until(lambda: driver.pending_release("a"))
    driver.bind("a", 5)
    cluster.store.lag = lambda: cluster.store.revision - before
    later = driver.hold(
        lambda each: (
            each.source == "a"
            and "nodenetworkconfigs" in each.request.path
            and each.request.method == "GET"
            and each.request.query.get("resourceVersion") != "0"
        ),
        limit=None,
    )
    driver.restart_agent("a")
    await driver.run_for(5)
    cluster.store.lag = lambda: 0
    driver.resume_controllers()
    await driver.run_for(10)
    later.release()
    await driver.converge(60)


async def pods_are_bound_before_the_underlay_is_programmed(driver: ScenarioDriver) -> None:
    """A node has addresses for six Pods at once, and its host takes a while to program them."""
    driver.cluster.add_host("a")
    driver.bind("a", 6)
    await driver.wait_until(lambda: driver.served("a") == 6)
    await driver.converge(30)


async def demand_returns_during_a_release(driver: ScenarioDriver) -> None:
    """The controller has read the releases, its call to the ledger is in flight, and Pods are bound again."""
    await driver.join("a")
    call = await driver.shrink("a", reconcile_calls(lambda item: item.released))
    driver.bind("a", 5)
    await driver.run_for(4)
    call.release()
    await driver.converge(60)


async def released_addresses_return_as_new_grants(driver: ScenarioDriver) -> None:
    """In a full subnet, before the agent has removed the old releases from its NNC, which a person edits."""
    await driver.join("a")
    pods = await driver.serve_pods("a", 12)
    call = driver.hold(reconcile_calls(lambda item: item.released))
    driver.delete_pods(pods[4:])
    await driver.wait_until(lambda: call.messages)
    driver.bind("a", 8)
    await driver.wait_until(lambda: driver.nnc_spec("a")["requestedIPCount"] >= 12)
    patch = driver.hold(nnc_patches_of("a"), limit=None)
    call.release()
    await driver.run_for(4)
    edit_request(driver.cluster.store, "a", 14)
    await driver.run_for(4)
    patch.release()
    await driver.converge(60)


async def a_reboot_with_running_pods(driver: ScenarioDriver) -> None:
    """Their sandboxes are created again at once, and only one address was not in use before."""
    await driver.join("a")
    await driver.serve_pods("a")
    driver.cluster.reboot("a")
    await driver.converge(40)


async def a_reboot_during_a_partition(driver: ScenarioDriver) -> None:
    """The machine is partitioned, so that only its journal holds the version that it had accepted."""
    cluster = driver.cluster
    await driver.join("a")
    await driver.serve_pods("a")
    cluster.network.partition("a", "api")
    cluster.reboot("a")
    await driver.run_for(10)
    cluster.network.heal("a", "api")
    await driver.converge(60)


async def pods_need_idle_addresses(driver: ScenarioDriver) -> None:
    """One node has as many Pods as the subnet has addresses, the other has a buffer and no Pod."""
    await driver.join("a", "b")
    driver.bind("b", 9)
    await driver.converge(90)


async def pods_replace_each_other(driver: ScenarioDriver) -> None:
    """Some are deleted and others bound, on a node with few addresses, in a subnet with many."""
    await driver.join("a")
    for _ in range(4):
        driver.delete_pods(await driver.serve_pods("a", 2))
        await driver.run_for(3)
    await driver.converge(30)


async def pods_are_replaced_during_a_partition(driver: ScenarioDriver) -> None:
    """The node has one address more: each is needed again while it cools down, and no other can be requested."""
    await driver.join("a")
    pods = await driver.serve_pods("a")
    driver.cluster.network.partition("a", "api")
    driver.delete_pods(pods)
    driver.bind("a", 6)
    await driver.run_for(8)
    assert 6 == driver.served("a")
    driver.cluster.network.heal("a", "api")
    await driver.converge(60)


async def an_agent_is_killed_after_an_add(driver: ScenarioDriver) -> None:
    """A Pod has its address; the next agent knows what was written, and the next Pod needs one."""
    await driver.join("a")
    driver.bind("a", 1)
    await driver.wait_until(lambda: driver.served("a") == 1)
    driver.restart_agent("a")
    driver.bind("a", 1)
    await driver.converge(30)


async def the_pod_list_is_slow(driver: ScenarioDriver) -> None:
    """A machine joins, reads everything but its Pods, and must not request anything yet."""
    slow = driver.hold(reads_of("pods", "a"), limit=None)
    driver.cluster.add_host("a")
    await driver.run_for(8)
    slow.release()
    await driver.converge(60)

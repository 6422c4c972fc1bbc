"""Lost entries of shared ranges are restored after a restore of the API server."""

import asyncio

from podpool.api.meta import ObjectMeta
from podpool.api.whereabouts import IP_POOLS, IPPool, IPPoolSpec
from tests.agent.secondary.shared_range_env import SYSTEM, SharedRangeCluster, network, pod_interface, run_in
from tests.agent.secondary.test_shared_range_ipam import holders

ONE = network("10.0.0.0/24")
SOON = 5.0
"""Seconds in which lost entries are written again."""

in_cluster = run_in(SharedRangeCluster)


@in_cluster
async def test_entries_of_running_sandboxes_are_restored(cluster: SharedRangeCluster) -> None:
    node, copy = cluster.node("a"), cluster.server.store.snapshot()
    for each in ("p", "q", "r"):
        await node.add(pod_interface(each), ONE)
    await node.delete(pod_interface("q"), ONE)
    cluster.server.store.restore(copy)
    node.ipam.on_restored()
    await asyncio.sleep(SOON)
    assert {"10.0.0.1": "c-p", "10.0.0.3": "c-r"} == await holders(cluster)


@in_cluster
async def test_entries_are_restored_after_the_relist_interval_and_after_a_restart(cluster: SharedRangeCluster) -> None:
    node, copy = cluster.node("a"), cluster.server.store.snapshot()
    await node.add(pod_interface("p"), ONE)
    cluster.server.store.restore(copy)
    await asyncio.sleep(1800.0 + SOON)
    assert {"10.0.0.1": "c-p"} == await holders(cluster)
    cluster.server.store.restore(copy)
    await node.kill()
    node.start()
    await asyncio.sleep(SOON)
    assert {"10.0.0.1": "c-p"} == await holders(cluster)


@in_cluster
async def test_no_other_sandbox_of_the_node_gets_a_lost_address(cluster: SharedRangeCluster) -> None:
    node, copy = cluster.node("a"), cluster.server.store.snapshot()
    await node.add(pod_interface("p"), ONE)
    cluster.server.store.restore(copy)
    assert ("10.0.0.2",) == await node.add(pod_interface("q"), ONE)
    assert ("10.0.0.1",) == await node.add(pod_interface("p"), ONE)


@in_cluster
async def test_an_address_with_two_owners_is_logged_and_left_alone(cluster: SharedRangeCluster) -> None:
    node, other, copy = cluster.node("a"), cluster.node("b"), cluster.server.store.snapshot()
    await node.add(pod_interface("p"), ONE)
    cluster.server.store.restore(copy)
    assert ("10.0.0.1",) == await other.add(pod_interface("q"), ONE)
    for _ in range(2):
        node.ipam.on_restored()
        await asyncio.sleep(SOON)
    assert {"10.0.0.1": "c-q"} == await holders(cluster)
    (line,) = [each for each in cluster.log_lines.warnings if "two owners" in each]
    assert "address=10.0.0.1 pod=default/p other_pod=default/q" in line


@in_cluster
async def test_a_duplicate_that_ended_is_logged_again_when_it_returns(cluster: SharedRangeCluster) -> None:
    """What was logged is kept no longer than the duplicate lasts."""
    node, other, copy = cluster.node("a"), cluster.node("b"), cluster.server.store.snapshot()
    await node.add(pod_interface("p"), ONE)
    cluster.server.store.restore(copy)
    await other.add(pod_interface("q"), ONE)
    duplicate = cluster.server.store.snapshot()
    for state in (duplicate, copy, duplicate):
        cluster.server.store.restore(state)
        node.ipam.on_restored()
        await asyncio.sleep(SOON)
    assert 2 == sum("two owners" in each for each in cluster.log_lines.warnings)


@in_cluster
async def test_an_entry_that_is_released_meanwhile_is_not_restored(cluster: SharedRangeCluster) -> None:
    node = cluster.node("a")
    await node.add(pod_interface("first"), ONE)
    await node.delete(pod_interface("first"), ONE)
    copy = cluster.server.store.snapshot()
    for after in range(100):
        await node.add(pod_interface("p"), ONE)
        cluster.server.store.restore(copy)
        node.ipam.on_restored()
        await asyncio.sleep(after / 1000)
        await node.delete(pod_interface("p"), ONE)
        await asyncio.sleep(SOON)
        assert {} == await holders(cluster), after


@in_cluster
async def test_entries_of_the_former_boot_are_not_restored(cluster: SharedRangeCluster) -> None:
    node, copy = cluster.node("a"), cluster.server.store.snapshot()
    await node.add(pod_interface("p"), ONE)
    await asyncio.sleep(SOON)
    cluster.server.store.restore(copy)
    await node.reboot()
    node.start()
    await asyncio.sleep(SOON)
    assert {} == await holders(cluster)


@in_cluster
async def test_a_pool_that_cannot_be_written_does_not_keep_others_from_being_restored(
    cluster: SharedRangeCluster,
) -> None:
    """Each is logged once, and tried again."""
    node, copy = cluster.node("a"), cluster.server.store.snapshot()
    for number in range(4):
        await node.add(pod_interface(f"p{number}"), network(f"10.0.{number}.0/24"))
    cluster.server.store.restore(copy)
    node.transport.reject = lambda each: 403 if each.method != "GET" and b"10.0.1.0" in each.body else None
    node.ipam.on_restored()
    await asyncio.sleep(SOON)
    assert {"10.0.0.1": "c-p0", "10.0.2.1": "c-p2", "10.0.3.1": "c-p3"} == await holders(cluster)
    (line,) = [each for each in cluster.log_lines.warnings if "cannot restore" in each]
    assert "ippool=10.0.1.0-24" in line
    node.transport.reject = lambda _each: None
    await asyncio.sleep(60)
    assert "c-p1" == (await holders(cluster))["10.0.1.1"]


@in_cluster
async def test_a_damaged_pool_does_not_keep_others_from_being_restored(cluster: SharedRangeCluster) -> None:
    node, copy = cluster.node("a"), cluster.server.store.snapshot()
    for number in range(3):
        await node.add(pod_interface(f"p{number}"), network(f"10.0.{number}.0/24"))
    cluster.server.store.restore(copy)
    await cluster.kube.create(
        IP_POOLS,
        IPPool(metadata=ObjectMeta(name="10.0.0.0-24", namespace=SYSTEM), spec=IPPoolSpec(range="10.0.0.0/99")),
    )
    node.ipam.on_restored()
    await asyncio.sleep(SOON)
    pools = {each.metadata.name: each for each in (await cluster.kube.list(IP_POOLS, namespace=SYSTEM)).items}
    assert all(pools[f"10.0.{each}.0-24"].spec.allocations for each in (1, 2))
    (line,) = [each for each in cluster.log_lines.warnings if "cannot restore" in each]
    assert "ippool=10.0.0.0-24" in line

"""Recovery after the journal was lost: no address of a running Pod is assigned again, whatever the IPPool contains."""

import asyncio
import json

import pytest

from podpool.agent.secondary.slice_recovery import RECOVERY_INTERVAL
from podpool.api.builtin import PODS
from podpool.core.settings import Settings
from podpool.core.two_observations import OBSERVATION_INTERVAL
from tests.agent.disks import MemoryDisk
from tests.agent.node_env import SETTLE_TIME, NodeEnv, in_node_env
from tests.agent.secondary.slice_env import (
    IPAM,
    add,
    assign_slice,
    call,
    enable_slices,
    failed,
    is_held,
    is_returned,
    pool_entries,
    request_return,
)

WANTED, STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
SOON = OBSERVATION_INTERVAL + 2 * RECOVERY_INTERVAL + Settings().cooldown_exhausted


async def run_pod(env: NodeEnv, container: str, *addresses: str) -> None:
    """Create a Pod with a secondary network; with addresses it also has Multus' network status."""
    statuses = [{"name": "default/net", "interface": "net1", "ips": [*addresses]}]
    annotations = {WANTED: "net", **({STATUS: json.dumps(statuses)} if addresses else {})}
    meta = {"name": f"pod-{container}", "namespace": "default", "annotations": annotations}
    await env.kube.create(PODS, {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}})


async def lose_journal(env: NodeEnv) -> None:
    """Restart the agent in the same boot without a journal."""
    await env.kill()
    env.disk = MemoryDisk()
    env.transport.cut = False
    await env.start()


async def damage_journal(env: NodeEnv, record: bytes) -> None:
    """Restart the agent in the same boot with the last record that contains this damaged."""
    await env.kill()
    (segment,) = [each for each in env.disk.names() if each.startswith("segment")]
    content = bytearray(env.disk.written[segment])
    content[content.rindex(record)] ^= 1
    env.disk.written[segment] = bytes(content)
    env.transport.cut = False
    await env.start()


async def add_unwritten(env: NodeEnv, *containers: str) -> list[str]:
    """Assign addresses that are not written to the IPPool."""
    env.transport.cut = True
    given = [(await add(env, each))[0] for each in containers]
    return [each.partition("/")[0] for each in given]


@in_node_env
async def test_reported_addresses_are_recovered_and_others_assigned_when_all_pods_reported(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await add(env, "a")
    await run_pod(env, "a", "10.1.4.1")
    await asyncio.sleep(1.0)
    addresses = await add_unwritten(env, "b")
    await run_pod(env, "b", *addresses)
    await lose_journal(env)
    assert ["10.1.4.1/16"] == await add(env, "a")
    assert "journal was lost" in (await failed(env, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON)
    assert ["10.1.4.3/16"] == await add(env, "c")
    await asyncio.sleep(1.0)
    uid = (await env.kube.get(PODS, "pod-b", namespace="default")).metadata.uid
    assert {"1": "a", "2": uid, "3": "c"} == await pool_entries(env, name)


@in_node_env
async def test_a_pod_without_network_status_may_have_any_address(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    addresses = await add_unwritten(env, "a")
    await run_pod(env, "a")
    await lose_journal(env)
    await asyncio.sleep(2 * SOON)
    assert 11 == (await failed(env, "ADD", "c"))["code"]
    status = json.dumps([{"name": "default/net", "interface": "net1", "ips": addresses}])
    await env.kube.merge_patch(PODS, "pod-a", {"metadata": {"annotations": {STATUS: status}}}, namespace="default")
    await asyncio.sleep(SOON)
    assert ["10.1.4.2/16"] == await add(env, "c")


@in_node_env
async def test_a_pod_that_sent_an_add_has_no_former_address(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    await add_unwritten(env, "a")
    await run_pod(env, "a")
    await lose_journal(env)
    await failed(env, "ADD", "a")
    await asyncio.sleep(SOON)
    assert ["10.1.4.1/16"] == await add(env, "a")


@in_node_env
async def test_a_recovered_address_is_released_with_its_pod(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await run_pod(env, "a", *await add_unwritten(env, "a"))
    await lose_journal(env)
    await asyncio.sleep(SOON)
    assert 1 == len(await pool_entries(env, name))
    await env.remove("pod-a")
    await call(env, "DEL", "a")
    await asyncio.sleep(3 * OBSERVATION_INTERVAL)
    assert {} == await pool_entries(env, name)


@pytest.mark.parametrize(("network", "recovered"), [("calico", 0), ("kube-system/net", 1)])
def test_the_default_network_of_another_plugin_is_not_recovered(network: str, recovered: int) -> None:
    """Its addresses may be the same, of another routing domain; a default network with a NAD may be a slice's."""

    @in_node_env
    async def test(env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add_unwritten(env, "a")
        status = json.dumps([{"name": network, "interface": "eth0", "ips": ["10.1.4.5"], "default": True}])
        meta = {"name": "other", "namespace": "default", "annotations": {STATUS: status}}
        await env.kube.create(PODS, {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}})
        await run_pod(env, "a", "10.1.4.1")
        await lose_journal(env)
        await asyncio.sleep(SOON)
        assert 1 + recovered == len(await pool_entries(env, name))

    test()


@in_node_env
async def test_networks_with_the_same_addresses_are_independent(env: NodeEnv) -> None:
    """The network status has NAD names, which the agent cannot map to networks: known holders suffice."""
    enable_slices(env)
    names = [await assign_slice(env, network=each) for each in ("blue", "red")]
    await env.start()
    await add(env, "a", {**IPAM, "network_name": "red"})
    await asyncio.sleep(1.0)
    await run_pod(env, "a", "10.1.4.1")
    await lose_journal(env)
    await asyncio.sleep(SOON)
    assert [{}, {"1": "a"}] == [await pool_entries(env, each) for each in names]


@pytest.mark.parametrize("early", [False, True])
def test_a_slice_is_not_returned_before_it_is_recovered(early: bool) -> None:
    @in_node_env
    async def body(env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await run_pod(env, "a", *await add_unwritten(env, "a"))
        if early:
            await request_return(env, name)
        await lose_journal(env)
        if not early:
            await request_return(env, name)
        await asyncio.sleep(2 * SOON)
        assert await is_held(env, name)
        await env.remove("pod-a")
        await asyncio.sleep(4 * OBSERVATION_INTERVAL)
        assert await is_returned(env, name)

    body()


@in_node_env
async def test_a_slice_to_be_returned_is_used_again_if_the_request_is_withdrawn(env: NodeEnv) -> None:
    """A person deletes the NAD while the journal is lost, and creates it again."""
    name = await assign_slice(enable_slices(env))
    await env.start()
    await run_pod(env, "a", *await add_unwritten(env, "a"))
    await request_return(env, name)
    await lose_journal(env)
    await request_return(env, name, reason="")
    await asyncio.sleep(2 * SOON)
    assert ["10.1.4.2/16"] == await add(env, "b")


@pytest.mark.parametrize("moments", [0, 3, 6, 10, 20, 10_000])
def test_nothing_is_assigned_after_another_restart(moments: int) -> None:
    """The agent is killed at different points."""

    @in_node_env
    async def body(env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        await add_unwritten(env, "a")
        await run_pod(env, "a")
        await env.kill()
        env.disk = MemoryDisk()
        env.transport.cut = False
        await env.start(wait=False)
        for _ in range(moments):
            await asyncio.sleep(0)
        await env.kill()
        await env.start()
        await asyncio.sleep(2 * SOON)
        assert "journal was lost" in (await failed(env, "ADD", "c"))["msg"]

    body()


@in_node_env
async def test_a_damaged_journal_is_recovered_like_a_lost_one(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    await run_pod(env, "a", *await add_unwritten(env, "a"))
    await damage_journal(env, b"slice-assigned")
    assert "journal was lost" in (await failed(env, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON)
    assert ["10.1.4.2/16"] == await add(env, "c")


@in_node_env
async def test_reported_addresses_override_a_partial_journal(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await add(env, "a")
    await asyncio.sleep(1.0)
    await call(env, "DEL", "a")
    await asyncio.sleep(Settings().cooldown_roomy + SETTLE_TIME)
    assert ["10.1.4.1/16"] == await add(env, "b")
    await run_pod(env, "b", "10.1.4.1")
    await asyncio.sleep(1.0)
    await damage_journal(env, b"slice-unassigned")
    await asyncio.sleep(SOON + 3 * OBSERVATION_INTERVAL)
    assert ["10.1.4.2/16"] == await add(env, "c")
    await asyncio.sleep(1.0)
    uid = (await env.kube.get(PODS, "pod-b", namespace="default")).metadata.uid
    assert {"1": uid, "2": "c"} == await pool_entries(env, name)


@in_node_env
async def test_a_partial_journal_may_end_before_this_boot(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    await add(env, "a")
    await env.reboot("boot-2", clean=True)
    await env.report_boot("boot-2")
    await env.start()
    await run_pod(env, "b", *await add_unwritten(env, "b"))
    await damage_journal(env, b"boot-2")
    assert "journal was lost" in (await failed(env, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON + Settings().cooldown_roomy)
    assert [["10.1.4.1/16"], ["10.1.4.3/16"]] == [await add(env, each) for each in ("c", "d")]


@in_node_env
async def test_after_a_reboot_no_recovery_is_needed(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    await run_pod(env, "a", *await add_unwritten(env, "a"))
    await env.reboot("boot-2")
    env.disk = MemoryDisk()
    env.transport.cut = False
    await env.report_boot("boot-2")
    await env.start()
    assert ["10.1.4.1/16"] == await add(env, "c")


@in_node_env
async def test_after_a_reboot_entries_of_the_ippool_are_removed(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await add(env, "a")
    await run_pod(env, "a", "10.1.4.1")
    await asyncio.sleep(1.0)
    assert await pool_entries(env, name)
    await env.reboot("boot-2")
    env.disk = MemoryDisk()
    await env.report_boot("boot-2")
    await env.start()
    assert ["10.1.4.1/16"] == await add(env, "a-again")
    await asyncio.sleep(1.0)
    assert {"1": "a-again"} == await pool_entries(env, name)


@in_node_env
async def test_a_slice_cools_down_before_it_is_returned_although_its_ippool_is_empty(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await add_unwritten(env, "a")
    await env.reboot("boot-2")
    env.disk = MemoryDisk()
    env.transport.cut = False
    await env.report_boot("boot-2")
    await request_return(env, name)
    env.store.on_write.clear()  # not confirmed: another node may have those addresses
    await env.start()
    assert await is_held(env, name)
    await asyncio.sleep(Settings().cooldown_roomy + SETTLE_TIME)
    assert await is_returned(env, name)

"""After a journal was lost in a running boot: no Pod's address is given to another, whatever the IPPool had of it."""

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
    lease_of,
    pool_entries,
    request_return,
)

WANTED, STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
SOON = OBSERVATION_INTERVAL + 2 * RECOVERY_INTERVAL + Settings().cooldown_exhausted


async def run_pod(env: NodeEnv, container: str, *addresses: str) -> None:
    """A Pod that asked for a network; Multus tells of it when it has told its addresses."""
    told = [{"name": "default/net", "interface": "net1", "ips": [*addresses]}]
    notes = {WANTED: "net", **({STATUS: json.dumps(told)} if addresses else {})}
    meta = {"name": f"pod-{container}", "namespace": "default", "annotations": notes}
    await env.kube.create(PODS, {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}})


async def lose_journal(env: NodeEnv) -> None:
    """The next agent of this boot finds nothing."""
    await env.kill()
    env.disk = MemoryDisk()
    env.transport.cut = False
    await env.start()


async def damage_journal(env: NodeEnv, record: bytes) -> None:
    """The next agent of this boot finds that the last record with this in it is spoilt."""
    await env.kill()
    (segment,) = [each for each in env.disk.names() if each.startswith("segment")]
    content = bytearray(env.disk.written[segment])
    content[content.rindex(record)] ^= 1
    env.disk.written[segment] = bytes(content)
    env.transport.cut = False
    await env.start()


async def behind(env: NodeEnv, *containers: str) -> list[str]:
    """Give addresses that the IPPool never shows."""
    env.transport.cut = True
    given = [(await add(env, each))[0] for each in containers]
    return [each.partition("/")[0] for each in given]


@in_node_env
async def test_what_pods_show_is_theirs_and_the_rest_is_given_when_all_have_told(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await add(env, "a")
    await run_pod(env, "a", "10.1.4.1")
    await asyncio.sleep(1.0)
    given = await behind(env, "b")
    await run_pod(env, "b", *given)
    await lose_journal(env)
    assert ["10.1.4.1/16"] == await add(env, "a")
    assert "journal was lost" in (await failed(env, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON)
    assert ["10.1.4.3/16"] == await add(env, "c")
    await asyncio.sleep(1.0)
    uid = (await env.kube.get(PODS, "pod-b", namespace="default")).metadata.uid
    assert {"1": "a", "2": uid, "3": "c"} == await pool_entries(env, name)


@in_node_env
async def test_a_pod_that_tells_nothing_yet_may_have_any(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    given = await behind(env, "a")
    await run_pod(env, "a")
    await lose_journal(env)
    await asyncio.sleep(2 * SOON)
    assert 11 == (await failed(env, "ADD", "c"))["code"]
    told = json.dumps([{"name": "default/net", "interface": "net1", "ips": given}])
    await env.kube.merge_patch(PODS, "pod-a", {"metadata": {"annotations": {STATUS: told}}}, namespace="default")
    await asyncio.sleep(SOON)
    assert ["10.1.4.2/16"] == await add(env, "c")


@in_node_env
async def test_unless_it_has_asked_since(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    await behind(env, "a")
    await run_pod(env, "a")
    await lose_journal(env)
    await failed(env, "ADD", "a")
    await asyncio.sleep(SOON)
    assert ["10.1.4.1/16"] == await add(env, "a")


@in_node_env
async def test_one_whose_pod_goes_is_free_again(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await run_pod(env, "a", *await behind(env, "a"))
    await lose_journal(env)
    await asyncio.sleep(SOON)
    assert 1 == len(await pool_entries(env, name))
    await env.remove("pod-a")
    await call(env, "DEL", "a")
    await asyncio.sleep(3 * OBSERVATION_INTERVAL)
    assert {} == await pool_entries(env, name)


@in_node_env
async def test_networks_over_the_same_addresses_are_kept_apart(env: NodeEnv) -> None:
    """Pods' networks are told by their definitions' names, which the agent does not read: who is known is enough."""
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
def test_it_is_not_handed_back_before_that(early: bool) -> None:
    @in_node_env
    async def story(env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await run_pod(env, "a", *await behind(env, "a"))
        if early:
            await request_return(env, name)
        await lose_journal(env)
        if not early:
            await request_return(env, name)
        await asyncio.sleep(2 * SOON)
        lease = await lease_of(env, name)
        assert lease
        assert lease.spec.holder_identity
        await env.remove("pod-a")
        await asyncio.sleep(4 * OBSERVATION_INTERVAL)
        lease = await lease_of(env, name)
        assert lease
        assert not lease.spec.holder_identity

    story()


@pytest.mark.parametrize("moments", [0, 3, 6, 10, 20, 10_000])
def test_nor_is_anything_given_after_another_restart(moments: int) -> None:
    """Whatever the agent was doing when it was killed."""

    @in_node_env
    async def story(env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        await behind(env, "a")
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

    story()


@in_node_env
async def test_a_journal_that_is_damaged_is_as_good_as_lost(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    await run_pod(env, "a", *await behind(env, "a"))
    await damage_journal(env, b"slice-given")
    assert "journal was lost" in (await failed(env, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON)
    assert ["10.1.4.2/16"] == await add(env, "c")


@in_node_env
async def test_what_is_left_of_a_journal_may_be_older_than_what_pods_show(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await add(env, "a")
    await asyncio.sleep(1.0)
    await call(env, "DEL", "a")
    await asyncio.sleep(OBSERVATION_INTERVAL)
    assert ["10.1.4.1/16"] == await add(env, "b")
    await run_pod(env, "b", "10.1.4.1")
    await asyncio.sleep(1.0)
    await damage_journal(env, b"slice-returned")
    await asyncio.sleep(SOON + 3 * OBSERVATION_INTERVAL)
    assert ["10.1.4.2/16"] == await add(env, "c")
    await asyncio.sleep(1.0)
    uid = (await env.kube.get(PODS, "pod-b", namespace="default")).metadata.uid
    assert {"1": uid, "2": "c"} == await pool_entries(env, name)


@in_node_env
async def test_what_is_left_of_a_journal_may_end_before_this_boot(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    await add(env, "a")
    await env.reboot("boot-2", clean=True)
    await env.report_boot("boot-2")
    await env.start()
    await run_pod(env, "b", *await behind(env, "b"))
    await damage_journal(env, b"boot-2")
    assert "journal was lost" in (await failed(env, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON)
    assert [["10.1.4.1/16"], ["10.1.4.3/16"]] == [await add(env, each) for each in ("c", "d")]


@in_node_env
async def test_after_a_reboot_nobody_has_anything(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env))
    await env.start()
    await run_pod(env, "a", *await behind(env, "a"))
    await env.reboot("boot-2")
    env.disk = MemoryDisk()
    env.transport.cut = False
    await env.report_boot("boot-2")
    await env.start()
    assert ["10.1.4.1/16"] == await add(env, "c")


@in_node_env
async def test_after_a_reboot_nobody_has_what_the_ippool_still_shows(env: NodeEnv) -> None:
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
    assert ["10.1.4.1/16"] == await add(env, "a-anew")
    await asyncio.sleep(1.0)
    assert {"1": "a-anew"} == await pool_entries(env, name)


@in_node_env
async def test_a_slice_that_is_asked_back_rests_before_it_goes_although_the_ippool_shows_nothing(env: NodeEnv) -> None:
    name = await assign_slice(enable_slices(env))
    await env.start()
    await behind(env, "a")
    await env.reboot("boot-2")
    env.disk = MemoryDisk()
    env.transport.cut = False
    await env.report_boot("boot-2")
    await request_return(env, name)
    env.store.on_write.clear()  # nobody agrees to it: others may have those addresses by now
    await env.start()
    lease = await lease_of(env, name)
    assert lease
    assert lease.spec.holder_identity
    await asyncio.sleep(Settings().cooldown + SETTLE_TIME)
    lease = await lease_of(env, name)
    assert lease
    assert not lease.spec.holder_identity

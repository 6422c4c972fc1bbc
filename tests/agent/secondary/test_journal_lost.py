"""After a journal was lost in a running boot: no Pod's address is given to another, whatever the IPPool had of it."""

import asyncio
import json

import pytest

from podpool.agent.lost_grant_gc import APART
from podpool.agent.secondary.networks import RECOVERY_INTERVAL
from podpool.api.builtin import PODS
from podpool.core.settings import Settings
from tests.agent.disks import MemoryDisk
from tests.agent.secondary.slice_world import (
    IPAM,
    add,
    ask_to_leave,
    call,
    lease_of,
    offer,
    refused,
    shown,
    with_slices,
)
from tests.agent.worlds import SETTLED, World, in_world

WANTED, STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
SOON = APART + 2 * RECOVERY_INTERVAL + Settings().cooldown_exhausted


async def run_pod(world: World, container: str, *addresses: str) -> None:
    """A Pod that asked for a network; Multus tells of it when it has told its addresses."""
    told = [{"name": "default/net", "interface": "net1", "ips": [*addresses]}]
    notes = {WANTED: "net", **({STATUS: json.dumps(told)} if addresses else {})}
    meta = {"name": f"pod-{container}", "namespace": "default", "annotations": notes}
    await world.kube.create(PODS, {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}})


async def lose_journal(world: World) -> None:
    """The next agent of this boot finds nothing."""
    await world.kill()
    world.disk = MemoryDisk()
    world.road.cut = False
    await world.start()


async def damage_journal(world: World, record: bytes) -> None:
    """The next agent of this boot finds that the last record with this in it is spoilt."""
    await world.kill()
    (segment,) = [each for each in world.disk.names() if each.startswith("segment")]
    content = bytearray(world.disk.written[segment])
    content[content.rindex(record)] ^= 1
    world.disk.written[segment] = bytes(content)
    world.road.cut = False
    await world.start()


async def behind(world: World, *containers: str) -> list[str]:
    """Give addresses that the IPPool never shows."""
    world.road.cut = True
    given = [(await add(world, each))[0] for each in containers]
    return [each.partition("/")[0] for each in given]


@in_world
async def test_what_pods_show_is_theirs_and_the_rest_is_given_when_all_have_told(world: World) -> None:
    name = await offer(with_slices(world))
    await world.start()
    await add(world, "a")
    await run_pod(world, "a", "10.1.4.1")
    await asyncio.sleep(1.0)
    given = await behind(world, "b")
    await run_pod(world, "b", *given)
    await lose_journal(world)
    assert ["10.1.4.1/16"] == await add(world, "a")
    assert "journal was lost" in (await refused(world, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON)
    assert ["10.1.4.3/16"] == await add(world, "c")
    await asyncio.sleep(1.0)
    uid = (await world.kube.get(PODS, "pod-b", namespace="default")).metadata.uid
    assert {"1": "a", "2": uid, "3": "c"} == await shown(world, name)


@in_world
async def test_a_pod_that_tells_nothing_yet_may_have_any(world: World) -> None:
    await offer(with_slices(world))
    await world.start()
    given = await behind(world, "a")
    await run_pod(world, "a")
    await lose_journal(world)
    await asyncio.sleep(2 * SOON)
    assert 11 == (await refused(world, "ADD", "c"))["code"]
    told = json.dumps([{"name": "default/net", "interface": "net1", "ips": given}])
    await world.kube.merge(PODS, "pod-a", {"metadata": {"annotations": {STATUS: told}}}, namespace="default")
    await asyncio.sleep(SOON)
    assert ["10.1.4.2/16"] == await add(world, "c")


@in_world
async def test_unless_it_has_asked_since(world: World) -> None:
    await offer(with_slices(world))
    await world.start()
    await behind(world, "a")
    await run_pod(world, "a")
    await lose_journal(world)
    await refused(world, "ADD", "a")
    await asyncio.sleep(SOON)
    assert ["10.1.4.1/16"] == await add(world, "a")


@in_world
async def test_one_whose_pod_goes_is_free_again(world: World) -> None:
    name = await offer(with_slices(world))
    await world.start()
    await run_pod(world, "a", *await behind(world, "a"))
    await lose_journal(world)
    await asyncio.sleep(SOON)
    assert 1 == len(await shown(world, name))
    await world.remove("pod-a")
    await call(world, "DEL", "a")
    await asyncio.sleep(3 * APART)
    assert {} == await shown(world, name)


@in_world
async def test_networks_over_the_same_addresses_are_kept_apart(world: World) -> None:
    """Pods' networks are told by their definitions' names, which the agent does not read: who is known is enough."""
    with_slices(world)
    names = [await offer(world, network=each) for each in ("blue", "red")]
    await world.start()
    await add(world, "a", {**IPAM, "network_name": "red"})
    await asyncio.sleep(1.0)
    await run_pod(world, "a", "10.1.4.1")
    await lose_journal(world)
    await asyncio.sleep(SOON)
    assert [{}, {"1": "a"}] == [await shown(world, each) for each in names]


@pytest.mark.parametrize("early", [False, True])
def test_it_is_not_handed_back_before_that(early: bool) -> None:
    @in_world
    async def story(world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await run_pod(world, "a", *await behind(world, "a"))
        if early:
            await ask_to_leave(world, name)
        await lose_journal(world)
        if not early:
            await ask_to_leave(world, name)
        await asyncio.sleep(2 * SOON)
        lease = await lease_of(world, name)
        assert lease
        assert lease.spec.holder_identity
        await world.remove("pod-a")
        await asyncio.sleep(4 * APART)
        lease = await lease_of(world, name)
        assert lease
        assert not lease.spec.holder_identity

    story()


@pytest.mark.parametrize("moments", [0, 3, 6, 10, 20, 10_000])
def test_nor_is_anything_given_after_another_restart(moments: int) -> None:
    """Whatever the agent was doing when it was killed."""

    @in_world
    async def story(world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        await behind(world, "a")
        await run_pod(world, "a")
        await world.kill()
        world.disk = MemoryDisk()
        world.road.cut = False
        await world.start(wait=False)
        for _ in range(moments):
            await asyncio.sleep(0)
        await world.kill()
        await world.start()
        await asyncio.sleep(2 * SOON)
        assert "journal was lost" in (await refused(world, "ADD", "c"))["msg"]

    story()


@in_world
async def test_a_journal_that_is_damaged_is_as_good_as_lost(world: World) -> None:
    await offer(with_slices(world))
    await world.start()
    await run_pod(world, "a", *await behind(world, "a"))
    await damage_journal(world, b"slice-given")
    assert "journal was lost" in (await refused(world, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON)
    assert ["10.1.4.2/16"] == await add(world, "c")


@in_world
async def test_what_is_left_of_a_journal_may_be_older_than_what_pods_show(world: World) -> None:
    name = await offer(with_slices(world))
    await world.start()
    await add(world, "a")
    await asyncio.sleep(1.0)
    await call(world, "DEL", "a")
    await asyncio.sleep(APART)
    assert ["10.1.4.1/16"] == await add(world, "b")
    await run_pod(world, "b", "10.1.4.1")
    await asyncio.sleep(1.0)
    await damage_journal(world, b"slice-returned")
    await asyncio.sleep(SOON + 3 * APART)
    assert ["10.1.4.2/16"] == await add(world, "c")
    await asyncio.sleep(1.0)
    uid = (await world.kube.get(PODS, "pod-b", namespace="default")).metadata.uid
    assert {"1": uid, "2": "c"} == await shown(world, name)


@in_world
async def test_what_is_left_of_a_journal_may_end_before_this_boot(world: World) -> None:
    await offer(with_slices(world))
    await world.start()
    await add(world, "a")
    await world.reboot("boot-2", clean=True)
    await world.report_boot("boot-2")
    await world.start()
    await run_pod(world, "b", *await behind(world, "b"))
    await damage_journal(world, b"boot-2")
    assert "journal was lost" in (await refused(world, "ADD", "c"))["msg"]
    await asyncio.sleep(SOON)
    assert [["10.1.4.1/16"], ["10.1.4.3/16"]] == [await add(world, each) for each in ("c", "d")]


@in_world
async def test_after_a_reboot_nobody_has_anything(world: World) -> None:
    await offer(with_slices(world))
    await world.start()
    await run_pod(world, "a", *await behind(world, "a"))
    await world.reboot("boot-2")
    world.disk = MemoryDisk()
    world.road.cut = False
    await world.report_boot("boot-2")
    await world.start()
    assert ["10.1.4.1/16"] == await add(world, "c")


@in_world
async def test_after_a_reboot_nobody_has_what_the_ippool_still_shows(world: World) -> None:
    name = await offer(with_slices(world))
    await world.start()
    await add(world, "a")
    await run_pod(world, "a", "10.1.4.1")
    await asyncio.sleep(1.0)
    assert await shown(world, name)
    await world.reboot("boot-2")
    world.disk = MemoryDisk()
    await world.report_boot("boot-2")
    await world.start()
    assert ["10.1.4.1/16"] == await add(world, "a-anew")
    await asyncio.sleep(1.0)
    assert {"1": "a-anew"} == await shown(world, name)


@in_world
async def test_a_slice_that_is_asked_back_rests_before_it_goes_although_the_ippool_shows_nothing(world: World) -> None:
    name = await offer(with_slices(world))
    await world.start()
    await behind(world, "a")
    await world.reboot("boot-2")
    world.disk = MemoryDisk()
    world.road.cut = False
    await world.report_boot("boot-2")
    await ask_to_leave(world, name)
    world.store.on_write.clear()  # nobody agrees to it: others may have those addresses by now
    await world.start()
    lease = await lease_of(world, name)
    assert lease
    assert lease.spec.holder_identity
    await asyncio.sleep(Settings().cooldown + SETTLED)
    lease = await lease_of(world, name)
    assert lease
    assert not lease.spec.holder_identity

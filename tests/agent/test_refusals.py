"""A disk that refuses: nothing is lost, it is said, and with room again all goes on by itself."""

import asyncio
import json

from podpool.agent.disk_retry import PAUSE
from podpool.api.azure import AGENT_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.core.settings import Settings
from tests.agent.disks import FullDisk, MemoryDisk
from tests.agent.worlds import NODE, SETTLED, SYSTEM, World, in_world

CONFIRMED = 2 * Settings().confirmation_interval
"""Seconds in which an agent confirms its Node, and writes it down."""


def told_of_it(world: World) -> int:
    return sum("cannot write its journal" in sentence for sentence in world.told)


async def nobody_tells(world: World) -> None:
    """Have the NNC as one that was made anew."""
    untold = {"metadata": {"annotations": {AGENT_ANNOTATION: None}}}
    await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, untold, namespace=SYSTEM)


async def status(world: World) -> int:
    answer = await world.call("STATUS", "", version="1.1.0")
    return int(json.loads(answer.stdout)["code"]) if answer.exit_code else 0


@in_world
async def test_an_agent_whose_disk_is_full_serves_what_needs_no_write_and_says_so_once(world: World) -> None:
    disk = FullDisk()
    agent = await world.start(disk=disk)
    given = await world.add("a")
    disk.room = 0
    await asyncio.sleep(CONFIRMED)
    assert given == await world.add("a")
    assert 0 == (await world.call("CHECK", "a")).exit_code
    assert 5 == (await world.refused("b"))["code"]
    assert "disk" in (agent.missing() or "")
    assert 1 == told_of_it(world)


@in_world
async def test_with_room_again_it_gives_asks_and_stays_confirmed(world: World) -> None:
    disk = FullDisk()
    agent = await world.start(disk=disk)
    disk.room = 0
    await world.bind(*(f"pod-{n}" for n in range(20)))
    await asyncio.sleep(CONFIRMED)
    disk.room = None
    await asyncio.sleep(PAUSE + SETTLED)
    assert agent.missing() is None
    assert 20 == len({await world.add(f"box-{n}", pod=f"pod-{n}") for n in range(20)})
    assert 31 == (await world.config()).spec.requested
    await asyncio.sleep(2 * Settings().fence)
    assert not agent.fenced


@in_world
async def test_it_stays_fenced_when_it_could_not_write_for_long(world: World) -> None:
    disk = FullDisk()
    agent = await world.start(disk=disk)
    disk.room = 0
    await asyncio.sleep(2 * Settings().fence)
    assert agent.fenced
    disk.room = None
    await asyncio.sleep(PAUSE + SETTLED)
    assert not agent.fenced


@in_world
async def test_one_that_starts_on_a_full_disk_waits_for_room_and_knows_everything_then(world: World) -> None:
    await world.start()
    given = await world.add("a")
    await world.kill()
    disk = FullDisk()
    disk.written, disk.room = world.disk.written, 0
    agent = await world.start(disk=disk)
    for sandbox in "ab":
        assert 5 == (await world.refused(sandbox))["code"]
    assert 50 == await status(world)
    assert "disk" in (agent.missing() or "")
    await asyncio.sleep(CONFIRMED)
    assert 1 == told_of_it(world)
    disk.room = None
    await asyncio.sleep(PAUSE + SETTLED)
    assert (given, 0) == (await world.add("a"), await status(world))
    assert given != await world.add("b")


@in_world
async def test_what_a_new_agent_doubts_is_still_doubted_after_a_write_that_was_refused(world: World) -> None:
    """It has lost its journal, and nobody tells of it: Pods may have any address, whether there is room or not."""
    await world.start()
    await world.kill()
    for room in range(20, 400, 20):
        await nobody_tells(world)
        disk = FullDisk()
        agent = await world.start(disk=disk, wait=False)
        await asyncio.sleep(0)
        disk.room = room
        await asyncio.sleep(SETTLED)
        disk.room = None
        await asyncio.sleep(PAUSE + SETTLED)
        assert agent.pool.forgotten, room
        await world.stop(killed=True)


@in_world
async def test_what_a_new_agent_doubts_is_still_doubted_by_the_next_wherever_it_dies(world: World) -> None:
    await world.start()
    await world.kill()
    for budget in range(20, 400, 10):
        await nobody_tells(world)
        world.disk = MemoryDisk()
        world.disk.budget = budget
        await world.start()
        await world.kill()
        await nobody_tells(world)
        agent = await world.start()
        assert agent.pool.forgotten, budget
        await world.kill()


@in_world
async def test_it_ends_when_it_is_told_to_although_it_cannot_write_that_down(world: World) -> None:
    disk = FullDisk()
    await world.start(disk=disk)
    disk.room = 0
    await world.stop()
    assert any("every address rests" in sentence for sentence in world.told)

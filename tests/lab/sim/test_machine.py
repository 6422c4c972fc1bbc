"""Machines: what survives a kill, and what a reboot."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.machine import Machine, MachineDisk


@given(st.binary(), st.binary(), st.integers())
def test_a_reboot_keeps_what_was_synced_and_a_part_of_the_rest(synced: bytes, written: bytes, seed: int) -> None:
    disk = MachineDisk()
    disk.append("journal", synced)
    asyncio.run(disk.sync("journal"))
    disk.append("journal", written)
    assert synced + written == disk.read("journal")
    disk.lose_power(random.Random(seed))  # noqa: S311  a simulation
    left = disk.read("journal")
    assert left is not None
    assert left.startswith(synced)
    assert (synced + written).startswith(left)


def test_a_replaced_file_is_synced() -> None:
    disk = MachineDisk()
    disk.append("journal", b"old")
    asyncio.run(disk.replace("journal", b"new"))
    disk.truncate("journal", 2)
    disk.remove("other")
    disk.lose_power(random.Random(0))  # noqa: S311  a simulation
    assert b"new" == disk.read("journal")
    assert ["journal"] == disk.names()


def test_a_reboot_ends_the_processes_and_begins_a_new_boot() -> None:
    loop = VirtualLoop()
    machine = Machine("node", loop, random.Random(0))  # noqa: S311  a simulation
    process = machine.start("agent")
    before = machine.boot_id

    async def story() -> tuple[float, float]:
        await asyncio.sleep(100)
        old = machine.clock.boot()
        machine.reboot()
        await asyncio.sleep(1)
        return old, machine.clock.boot()

    assert (100.0, 1.0) == pytest.approx(loop.run_until_complete(story()), abs=0.001)
    assert before != machine.boot_id
    assert not process.alive


def test_what_is_being_synced_is_not_safe_yet() -> None:
    loop, disk = VirtualLoop(), MachineDisk(takes=lambda: 1.0)

    async def story() -> tuple[list[str], list[str]]:
        disk.append("journal", b"written")
        syncing = asyncio.ensure_future(disk.sync("journal"))
        await asyncio.sleep(0.5)
        before = disk.synced().names()
        await syncing
        return before, disk.synced().names()

    assert ([], ["journal"]) == loop.run_until_complete(story())


@given(st.integers())
def test_of_a_file_that_is_being_replaced_a_reboot_leaves_the_old_or_the_new_one(seed: int) -> None:
    loop, disk = VirtualLoop(), MachineDisk(takes=lambda: 1.0)

    async def story() -> bytes | None:
        await disk.replace("snapshot", b"old")
        replacing = asyncio.ensure_future(disk.replace("snapshot", b"new"))
        await asyncio.sleep(1.5)
        replacing.cancel()
        disk.lose_power(random.Random(seed))  # noqa: S311  a simulation
        return disk.read("snapshot")

    assert loop.run_until_complete(story()) in (b"old", b"new")

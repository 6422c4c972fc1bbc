"""Machines: what survives a kill, and what a reboot."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.machine import MachineDisk, SimMachine


@given(st.binary(), st.binary(), st.integers())
def test_a_reboot_keeps_synced_bytes_and_a_prefix_of_the_others(synced: bytes, written: bytes, seed: int) -> None:
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


def test_a_reboot_kills_processes_and_changes_the_boot_id() -> None:
    loop = VirtualLoop()
    machine = SimMachine("node", loop, random.Random(0))  # noqa: S311  a simulation
    process = machine.start("agent")
    before = machine.boot_id

    async def scenario() -> tuple[float, float]:
        await asyncio.sleep(100)
        old = machine.clock.boot()
        machine.reboot()
        await asyncio.sleep(1)
        return old, machine.clock.boot()

    assert (100.0, 1.0) == pytest.approx(loop.run_until_complete(scenario()), abs=0.001)
    assert before != machine.boot_id
    assert not process.alive


def test_a_sync_in_progress_has_no_effect_yet() -> None:
    loop, disk = VirtualLoop(), MachineDisk(sync_seconds=lambda: 1.0)

    async def scenario() -> tuple[list[str], list[str]]:
        disk.append("journal", b"written")
        syncing = asyncio.ensure_future(disk.sync("journal"))
        await asyncio.sleep(0.5)
        before = disk.synced().names()
        await syncing
        return before, disk.synced().names()

    assert ([], ["journal"]) == loop.run_until_complete(scenario())


@given(st.integers())
def test_a_reboot_during_a_replace_keeps_the_old_or_the_new_file(seed: int) -> None:
    loop, disk = VirtualLoop(), MachineDisk(sync_seconds=lambda: 1.0)

    async def scenario() -> bytes | None:
        await disk.replace("snapshot", b"old")
        replacing = asyncio.ensure_future(disk.replace("snapshot", b"new"))
        await asyncio.sleep(1.5)
        replacing.cancel()
        disk.lose_power(random.Random(seed))  # noqa: S311  a simulation
        return disk.read("snapshot")

    assert loop.run_until_complete(scenario()) in (b"old", b"new")


def test_one_process_locks_a_disk_until_it_is_killed() -> None:
    loop = VirtualLoop()
    machine = SimMachine("node", loop, random.Random(0))  # noqa: S311  a simulation
    first, second = machine.start("agent"), machine.start("agent")
    assert first.context.run(machine.disk.try_lock) is None
    assert first.context.run(machine.disk.try_lock) is None
    assert "node/agent" == second.context.run(machine.disk.try_lock)
    first.kill()
    assert second.context.run(machine.disk.try_lock) is None
    assert [second] == machine.running("agent")


def test_what_a_failed_sync_dropped_is_not_written_by_the_next() -> None:
    disk = MachineDisk()
    disk.append("journal", b"one")
    asyncio.run(disk.sync("journal"))
    disk.append("journal", b"two")
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        asyncio.run(disk.sync("journal"))
    disk.append("journal", b"three")
    asyncio.run(disk.sync("journal"))
    assert b"onetwothree" == disk.read("journal")
    disk.lose_power(random.Random(0))  # noqa: S311  a simulation
    assert b"one\0\0\0three" == disk.read("journal")

"""A loop whose time is made up."""

import asyncio

import pytest

from podpool.lab.sim.event_loop import Deadlock, VirtualLoop
from podpool.lab.sim.machine import Process


def test_time_jumps_to_the_next_timer() -> None:
    async def a_day() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert 86_400 == pytest.approx(VirtualLoop().run_until_complete(a_day()))


def test_what_asyncio_builds_on_a_loop_works() -> None:
    async def work() -> list[str]:
        told: list[str] = []
        gate = asyncio.Event()

        async def waiter(name: str) -> None:
            await gate.wait()
            told.append(name)

        async with asyncio.TaskGroup() as group:
            for name in ("a", "b"):
                group.create_task(waiter(name))
            await asyncio.sleep(1)
            gate.set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        told.append(f"{asyncio.get_running_loop().time():.1f}")
        return told

    assert ["a", "b", "6.0"] == VirtualLoop().run_until_complete(work())


def test_waiting_for_nothing_is_noticed() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        VirtualLoop().run_until_complete(never())


def test_a_killed_process_ends_between_two_awaits() -> None:
    """Not even its finally runs, and neither does what it started."""
    loop = VirtualLoop()
    told: list[str] = []

    async def child() -> None:
        await asyncio.sleep(1)
        told.append("child")

    async def work() -> None:
        try:
            started = asyncio.create_task(child())
            told.append("begun")
            await asyncio.sleep(2)
            await started
        finally:
            told.append("finally")

    process = Process("victim", loop)

    async def story() -> None:
        process.spawn(work())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(10)

    loop.run_until_complete(story())
    assert ["begun"] == told


def test_a_paused_process_goes_on_where_it_was() -> None:
    loop = VirtualLoop()
    ticks: list[float] = []
    process = Process("sleeper", loop)

    async def work() -> None:
        for _ in range(4):
            await asyncio.sleep(1)
            ticks.append(loop.time())

    async def story() -> None:
        process.spawn(work())
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(10)

    loop.run_until_complete(story())
    assert [1.0, 11.5, 12.5, 13.5] == pytest.approx(ticks, abs=0.001)


def test_what_nobody_awaits_is_remembered() -> None:
    loop = VirtualLoop()

    async def fail() -> None:
        raise ValueError("nobody asked")

    async def story() -> None:
        Process("loner", loop).spawn(fail())
        await asyncio.sleep(1)

    loop.run_until_complete(story())
    assert ["loner failed"] == [failure["message"] for failure in loop.failures]


def test_a_doomed_process_dies_in_the_midst_of_its_work() -> None:
    """After so many of its own steps, though the next is ready; whoever else is ready goes on."""
    loop = VirtualLoop()
    told: list[str] = []

    async def work(name: str) -> None:
        for _ in range(4):
            told.append(name)
            await asyncio.sleep(0)

    victim, other = Process("victim", loop), Process("other", loop)

    async def story() -> None:
        victim.spawn(work("victim"))
        other.spawn(work("other"))
        victim.doom(2, lambda: told.append("died"))
        await asyncio.sleep(1)

    loop.run_until_complete(story())
    assert ["victim", "other", "victim", "died", "other", "other", "other"] == told


def test_who_was_pardoned_lives_on() -> None:
    loop = VirtualLoop()
    process = Process("lucky", loop)

    async def story() -> None:
        process.doom(2, lambda: None)
        process.pardon()
        await process.spawn(asyncio.sleep(1))
        await asyncio.sleep(1)

    loop.run_until_complete(story())
    assert process.alive

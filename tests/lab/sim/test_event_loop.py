"""The event loop on virtual time."""

import asyncio

import pytest

from podpool.lab.sim.event_loop import Deadlock, VirtualLoop
from podpool.lab.sim.machine import SimProcess


def test_time_jumps_to_the_next_timer() -> None:
    async def a_day() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert 86_400 == pytest.approx(VirtualLoop().run_until_complete(a_day()))


def test_asyncio_primitives_work() -> None:
    async def work() -> list[str]:
        log: list[str] = []
        gate = asyncio.Event()

        async def waiter(name: str) -> None:
            await gate.wait()
            log.append(name)

        async with asyncio.TaskGroup() as group:
            for name in ("a", "b"):
                group.create_task(waiter(name))
            await asyncio.sleep(1)
            gate.set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        log.append(f"{asyncio.get_running_loop().time():.1f}")
        return log

    assert ["a", "b", "6.0"] == VirtualLoop().run_until_complete(work())


def test_a_deadlock_is_detected() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        VirtualLoop().run_until_complete(never())


def test_a_killed_process_ends_between_two_awaits() -> None:
    """Its `finally` blocks and its tasks do not run."""
    loop = VirtualLoop()
    log: list[str] = []

    async def child() -> None:
        await asyncio.sleep(1)
        log.append("child")

    async def work() -> None:
        try:
            started = asyncio.create_task(child())
            log.append("begun")
            await asyncio.sleep(2)
            await started
        finally:
            log.append("finally")

    process = SimProcess("victim", loop)

    async def scenario() -> None:
        process.spawn(work())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(10)

    loop.run_until_complete(scenario())
    assert ["begun"] == log


def test_a_resumed_process_continues() -> None:
    loop = VirtualLoop()
    ticks: list[float] = []
    process = SimProcess("sleeper", loop)

    async def work() -> None:
        for _ in range(4):
            await asyncio.sleep(1)
            ticks.append(loop.time())

    async def scenario() -> None:
        process.spawn(work())
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(10)

    loop.run_until_complete(scenario())
    assert [1.0, 11.5, 12.5, 13.5] == pytest.approx(ticks, abs=0.001)


def test_unawaited_exceptions_are_recorded() -> None:
    loop = VirtualLoop()

    async def fail() -> None:
        raise ValueError("not awaited")

    async def scenario() -> None:
        SimProcess("loner", loop).spawn(fail())
        await asyncio.sleep(1)

    loop.run_until_complete(scenario())
    assert ["loner failed"] == [failure["message"] for failure in loop.failures]


def test_a_scheduled_kill_happens_after_a_number_of_steps() -> None:
    """After a number of its own steps, although the next is ready; other processes run on."""
    loop = VirtualLoop()
    log: list[str] = []

    async def work(name: str) -> None:
        for _ in range(4):
            log.append(name)
            await asyncio.sleep(0)

    victim, other = SimProcess("victim", loop), SimProcess("other", loop)

    async def scenario() -> None:
        victim.spawn(work("victim"))
        other.spawn(work("other"))
        victim.schedule_kill(2, lambda: log.append("died"))
        await asyncio.sleep(1)

    loop.run_until_complete(scenario())
    assert ["victim", "other", "victim", "died", "other", "other", "other"] == log


def test_a_cancelled_kill_does_not_happen() -> None:
    loop = VirtualLoop()
    process = SimProcess("lucky", loop)

    async def scenario() -> None:
        process.schedule_kill(2, lambda: None)
        process.cancel_kill()
        await process.spawn(asyncio.sleep(1))
        await asyncio.sleep(1)

    loop.run_until_complete(scenario())
    assert process.alive

"""An ADD that is cancelled leaves no address behind, and takes none away."""

import asyncio
from collections.abc import Iterable

import pytest

from podpool.agent.abandoned_adds import AbandonedAdds
from podpool.agent.sandbox_gc import SandboxInterface
from podpool.cni.protocol import Attachment
from podpool.runtime.logging import get_logger
from tests.agent.disks import MemoryDisk
from tests.agent.node_env import NodeEnv, in_node_env

BOX = Attachment(container_id="box", ifname="eth0")
log = get_logger("test")


class Source:
    """Has the addresses of some attachments."""

    def __init__(self) -> None:
        self.assigned: set[Attachment] = set()

    def interfaces(self) -> Iterable[SandboxInterface]:
        return ()

    def has_address(self, attachment: Attachment) -> bool:
        return attachment in self.assigned

    def schedule_release(self, attachment: Attachment) -> None:
        self.assigned.discard(attachment)


class Node:
    """ADDs that are assigned an address at once and answered later."""

    def __init__(self) -> None:
        self.source = Source()
        self.abandoned = AbandonedAdds([self.source])

    async def add(self, answered: asyncio.Event, *, assign: bool = True) -> None:
        await self.abandoned.undo_if_cancelled(BOX, self._assign(answered, assign=assign), log)

    async def _assign(self, answered: asyncio.Event, *, assign: bool) -> None:
        if assign:
            self.source.assigned.add(BOX)
        await answered.wait()

    async def start(self, *, assign: bool = True) -> tuple[asyncio.Task[None], asyncio.Event]:
        answered = asyncio.Event()
        task = asyncio.create_task(self.add(answered, assign=assign))
        await asyncio.sleep(0)
        return task, answered


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_a_cancelled_add_was_assigned_is_released() -> None:
    async def run() -> None:
        node = Node()
        task, _ = await node.start()
        await cancel(task)
        assert set() == node.source.assigned

    asyncio.run(run())


def test_what_an_answered_add_was_assigned_stays() -> None:
    async def run() -> None:
        node = Node()
        task, answered = await node.start()
        answered.set()
        await task
        assert {BOX} == node.source.assigned

    asyncio.run(run())


def test_a_cancelled_repetition_of_an_answered_add_releases_nothing() -> None:
    async def run() -> None:
        node = Node()
        node.source.assigned.add(BOX)
        task, _ = await node.start()
        await cancel(task)
        assert {BOX} == node.source.assigned

    asyncio.run(run())


@pytest.mark.parametrize("first_is_cancelled", [True, False])
def test_of_two_at_once_the_answered_one_keeps_its_address(first_is_cancelled: bool) -> None:
    async def run() -> None:
        node = Node()
        tasks = [await node.start(), await node.start()]
        (cancelled, _), (task, answered) = tasks if first_is_cancelled else tasks[::-1]
        await cancel(cancelled)
        answered.set()
        await task
        assert {BOX} == node.source.assigned

    asyncio.run(run())


def test_one_that_is_cancelled_after_the_other_was_answered_releases_nothing() -> None:
    async def run() -> None:
        node = Node()
        first, answered = await node.start()
        second, _ = await node.start()
        answered.set()
        await first
        await cancel(second)
        assert {BOX} == node.source.assigned

    asyncio.run(run())


def test_when_both_are_cancelled_the_address_is_released() -> None:
    async def run() -> None:
        node = Node()
        tasks = [await node.start(), await node.start()]
        for task, _ in tasks:
            await cancel(task)
        assert set() == node.source.assigned

    asyncio.run(run())


def test_a_stopping_agent_writes_nothing() -> None:
    """Nothing may follow the clean-shutdown marker; the plugin repeats its ADD with the successor."""

    async def run() -> None:
        node = Node()
        task, _ = await node.start()
        node.abandoned.close()
        await cancel(task)
        assert {BOX} == node.source.assigned

    asyncio.run(run())


class CancellingDisk(MemoryDisk):
    """Cancels a task when the journal records an assignment, before the task can continue."""

    task: asyncio.Task[object] | None = None

    def append(self, name: str, data: bytes) -> None:
        super().append(name, data)
        if self.task and b'"assigned"' in data:
            self.task.cancel()


@in_node_env
async def test_an_add_that_is_cancelled_as_it_gets_its_address_leaves_none(env: NodeEnv) -> None:
    env.capacity = 0
    disk = CancellingDisk()
    agent = await env.start(disk=disk)
    disk.task = task = asyncio.create_task(env.call("ADD", "a"))
    await asyncio.sleep(1)
    env.capacity = 100
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [] == list(agent.pool.assigned)
    assert any("ADD abandoned by its plugin, address released" in line for line in env.logs)

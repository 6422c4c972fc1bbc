"""Overload: what nobody waits for is not run, the queue is bounded, and callers are answered after each commit."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from podpool.ledger.domain.deadline import within
from podpool.ledger.domain.repository import BatchTransaction, LargeTransaction, Repository
from podpool.ledger.domain.rows import ClusterRow
from podpool.ledger.errors import Unavailable
from podpool.ledger.storage.group_commit import MAX_GROUP_WEIGHT, MAX_QUEUED
from podpool.ledger.storage.sqlite.store import SqliteStore

Test: TypeAlias = Callable[["BusyStore"], Coroutine[Any, Any, None]]


class BusyStore:
    """A store whose writer is held up until `go_on`; `done` lists the transactions that were run."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path)
        self.done: list[object] = []
        self._begun, self._go_on = threading.Event(), threading.Event()

    async def hold_up(self) -> "asyncio.Future[None]":
        def wait(_: Repository) -> None:
            self._begun.set()
            self._go_on.wait(30)

        held = asyncio.ensure_future(self.store.write(wait))
        await asyncio.to_thread(self._begun.wait)
        return held

    def go_on(self) -> None:
        self._go_on.set()

    def job(self, name: object) -> "asyncio.Future[object]":
        """Queue a transaction; returns its result."""

        def transaction(_: Repository) -> object:
            self.done.append(name)
            return name

        return asyncio.ensure_future(self.store.write(transaction))


@pytest.fixture
def on_busy_store(tmp_path: Path) -> Callable[[Test], None]:
    """Runs a test on a store."""

    async def run(test: Test) -> None:
        busy = BusyStore(tmp_path / "ledger.db")
        try:
            async with asyncio.timeout(30):
                await test(busy)
        finally:
            busy.go_on()
            await busy.store.close()

    return lambda test: asyncio.run(run(test))


async def queued(jobs: list["asyncio.Future[object]"]) -> None:
    """Let the tasks of jobs begin."""
    assert jobs
    await asyncio.sleep(0)


def test_abandoned_transactions_are_not_run(on_busy_store: Callable[[Test], None]) -> None:
    async def run(busy: BusyStore) -> None:
        held = await busy.hold_up()
        abandoned, awaited = [busy.job(number) for number in range(100)], busy.job("awaited")
        await queued(abandoned)
        for each in abandoned:
            each.cancel()
        await asyncio.wait(abandoned)
        busy.go_on()
        await held
        assert "awaited" == await awaited
        assert (["awaited"], 100) == (busy.done, busy.store.queue().dropped)

    on_busy_store(run)


def test_transaction_past_its_deadline_is_not_run(on_busy_store: Callable[[Test], None]) -> None:
    async def run(busy: BusyStore) -> None:
        held = await busy.hold_up()
        with within(0.01):
            late = busy.job("late")
        with pytest.raises(Unavailable, match="the deadline of the request"):
            await late
        busy.go_on()
        await held
        await busy.job("next")
        assert ["next"] == busy.done

    on_busy_store(run)


def test_full_queue_rejects_callers_with_retry_after(on_busy_store: Callable[[Test], None]) -> None:
    async def run(busy: BusyStore) -> None:
        held = await busy.hold_up()
        accepted = [busy.job(number) for number in range(MAX_QUEUED)]
        await queued(accepted)
        with pytest.raises(Unavailable) as refused:
            await busy.job("one too many")
        assert (1, MAX_QUEUED) == (busy.store.queue().refused, busy.store.queue().waiting)
        assert refused.value.retry_after
        accepted[0].cancel()
        await asyncio.wait([accepted[0]])
        late = busy.job("in its place")
        await queued([late])
        busy.go_on()
        await held
        assert "in its place" == await late
        assert [*range(1, MAX_QUEUED), "in its place"] == busy.done

    on_busy_store(run)


@pytest.mark.parametrize("large", [LargeTransaction, BatchTransaction])
def test_large_transaction_shares_no_commit(on_busy_store: Callable[[Test], None], large: type) -> None:
    """Who was queued before it is answered before it is run."""

    async def run(busy: BusyStore) -> None:
        held = await busy.hold_up()
        order: list[str] = []
        first = asyncio.ensure_future(busy.store.write(lambda repo: repo.put_cluster(ClusterRow(id="a"))))
        first.add_done_callback(lambda _: order.append("answered"))
        answered = threading.Event()
        first.add_done_callback(lambda _: answered.set())

        def wait_for_the_first(*_: object) -> list[None]:
            order.append("large" if answered.wait(10) else "large, before the answer")
            return [None]

        weight = MAX_GROUP_WEIGHT + 1
        transaction = (
            LargeTransaction(wait_for_the_first, weight)
            if large is LargeTransaction
            else BatchTransaction(wait_for_the_first, None, weight=weight)
        )
        second = asyncio.ensure_future(busy.store.write(transaction))
        await asyncio.sleep(0)
        busy.go_on()
        await asyncio.gather(held, first, second)
        assert ["answered", "large"] == order

    on_busy_store(run)


def test_long_reads_neither_wait_for_the_writer_nor_hold_it_up(on_busy_store: Callable[[Test], None]) -> None:
    async def run(busy: BusyStore) -> None:
        await busy.store.write(lambda repo: repo.put_cluster(ClusterRow(id="seen")))
        held = await busy.hold_up()
        assert ["seen"] == [row.id for row in await busy.store.query(lambda repo: repo.clusters())]
        busy.go_on()
        await held
        reading, done = threading.Event(), threading.Event()

        def long(_: Repository) -> bool:
            reading.set()
            return done.wait(10)

        read = asyncio.ensure_future(busy.store.query(long))
        await asyncio.to_thread(reading.wait)
        assert "a grant" == await busy.job("a grant")
        done.set()
        assert await read

    on_busy_store(run)

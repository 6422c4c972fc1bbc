"""Utilisation from a cache that refreshes itself."""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.service import LedgerService, LedgerSettings
from podpool.ledger.domain.utilization_cache import UtilizationCache
from podpool.ledger.errors import NotFound
from podpool.ledger.messages import OpenTermRequest, ReconcileRequest, SubnetName, SubnetSpec
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from tests.ledger.harness import SUBNET, ManualClock, item

T = TypeVar("T")


class CountedStore(InlineSqliteStore):
    """Counts how often the books are read."""

    reads = 0

    async def read(self, work: Callable[[Repository], T]) -> T:
        self.reads += 1
        return await super().read(work)


class Scene:
    """A ledger with a cache, and one container."""

    def __init__(self, refresh: float) -> None:
        self.clock, self.store = ManualClock(), CountedStore()
        rng = random.Random(1)  # noqa: S311  the same each time
        self.ledger = LedgerService(
            self.store, clock=self.clock, rng=rng, settings=LedgerSettings(utilization_refresh=refresh)
        )
        self.number = 0

    async def begin(self) -> None:
        await self.ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
        self.term = (await self.ledger.open_term(OpenTermRequest(cluster="c1"))).term

    async def want(self, count: int) -> None:
        self.number += 1
        call = ReconcileRequest(cluster="c1", term=self.term, number=self.number, items=(item(wanted=count),))
        await self.ledger.reconcile(call)

    async def reserved(self) -> int:
        (told,) = await self.ledger.utilization(SUBNET)
        return told.reserved


def test_what_is_cached_does_not_touch_the_books() -> None:
    async def main() -> None:
        scene = Scene(refresh=3600.0)
        await scene.begin()
        assert 0 == await scene.reserved()
        before = scene.store.reads
        assert [0] * 100 == [await scene.reserved() for _ in range(100)]
        assert before == scene.store.reads

    asyncio.run(main())


def test_it_refreshes_itself_whoever_asks() -> None:
    async def main() -> None:
        scene = Scene(refresh=0.001)
        await scene.begin()
        assert 0 == await scene.reserved()
        await scene.want(9)
        assert 0 == await scene.reserved()
        running = asyncio.create_task(scene.ledger.run())
        while await scene.reserved() != 10:  # noqa: ASYNC110  what is waited for is that it happens by itself
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_it_tells_when_it_was_read() -> None:
    async def main() -> None:
        scene = Scene(refresh=3600.0)
        await scene.begin()
        (first,) = await scene.ledger.utilization(SUBNET)
        scene.clock.now += 60.0
        assert [first] == await scene.ledger.utilization(SUBNET)

    asyncio.run(main())


def test_what_nobody_asks_for_is_read_no_more() -> None:
    async def main() -> None:
        scene = Scene(refresh=1.0)
        await scene.begin()
        cache = UtilizationCache(scene.store, clock=scene.clock, interval=1.0)
        await cache.get(SUBNET)
        before = scene.store.reads
        await cache.refresh()
        assert before + 1 == scene.store.reads
        scene.clock.now += 601.0
        await cache.refresh()
        await cache.refresh()
        assert before + 1 == scene.store.reads

    asyncio.run(main())


def test_a_deleted_subnet_is_not_found_at_once_and_an_unknown_one_is_not_cached() -> None:
    async def main() -> None:
        scene = Scene(refresh=3600.0)
        await scene.begin()
        await scene.reserved()
        await scene.ledger.admin.delete(SUBNET)
        for name in (SUBNET, SubnetName(network="vnet", name="none")):
            with pytest.raises(NotFound):
                await scene.ledger.utilization(name)

    asyncio.run(main())

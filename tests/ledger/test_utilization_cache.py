"""The utilization cache."""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from podpool.ledger.domain.ledger_time import LedgerClock
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.service import LedgerService, LedgerSettings, UtilizationCache
from podpool.ledger.errors import NotFound
from podpool.ledger.messages import OpenTermRequest, ReconcileRequest, SubnetName, SubnetSpec
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from tests.ledger.harness import SUBNET, ManualClock, item

T = TypeVar("T")


class CountedStore(InlineSqliteStore):
    """Counts the read transactions."""

    reads = 0

    async def read(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        self.reads += 1
        return await super().read(transaction, network=network)


class CachedLedger:
    """A ledger with a utilization cache, and one NC."""

    def __init__(self, refresh: float) -> None:
        self.clock, self.store = ManualClock(), CountedStore()
        rng = random.Random(1)  # noqa: S311  reproducible
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
        (result,) = await self.ledger.utilization(SUBNET)
        return result.reserved


def test_cached_value_does_not_read_the_database() -> None:
    async def main() -> None:
        cached_ledger = CachedLedger(refresh=3600.0)
        await cached_ledger.begin()
        assert 0 == await cached_ledger.reserved()
        before = cached_ledger.store.reads
        assert [0] * 100 == [await cached_ledger.reserved() for _ in range(100)]
        assert before == cached_ledger.store.reads

    asyncio.run(main())


def test_cache_refreshes_itself() -> None:
    async def main() -> None:
        cached_ledger = CachedLedger(refresh=0.001)
        await cached_ledger.begin()
        assert 0 == await cached_ledger.reserved()
        await cached_ledger.want(9)
        assert 0 == await cached_ledger.reserved()
        running = asyncio.create_task(cached_ledger.ledger.run())
        while await cached_ledger.reserved() != 10:  # noqa: ASYNC110  it must refresh itself
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_value_has_the_time_of_its_read() -> None:
    async def main() -> None:
        cached_ledger = CachedLedger(refresh=3600.0)
        await cached_ledger.begin()
        (first,) = await cached_ledger.ledger.utilization(SUBNET)
        cached_ledger.clock.now += 60.0
        assert [first] == await cached_ledger.ledger.utilization(SUBNET)

    asyncio.run(main())


def test_unrequested_subnet_is_not_refreshed() -> None:
    async def main() -> None:
        cached_ledger = CachedLedger(refresh=1.0)
        await cached_ledger.begin()
        clock = LedgerClock(cached_ledger.clock)
        cache = UtilizationCache(cached_ledger.store, clock=clock, interval=1.0)
        await cache.get(SUBNET)
        before = cached_ledger.store.reads
        await cache.refresh()
        assert before + 1 == cached_ledger.store.reads
        cached_ledger.clock.now += 601.0
        await cache.refresh()
        await cache.refresh()
        assert before + 1 == cached_ledger.store.reads

    asyncio.run(main())


def test_deleted_subnet_is_dropped_and_unknown_one_not_cached() -> None:
    async def main() -> None:
        cached_ledger = CachedLedger(refresh=3600.0)
        await cached_ledger.begin()
        await cached_ledger.reserved()
        await cached_ledger.ledger.admin.delete(SUBNET)
        for name in (SUBNET, SubnetName(network="vnet", name="none")):
            with pytest.raises(NotFound):
                await cached_ledger.ledger.utilization(name)

    asyncio.run(main())

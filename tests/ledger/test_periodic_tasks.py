"""Periodic tasks: a failure in one subnet stops neither the others nor the ledger, and is counted."""

import asyncio
import random

import asyncpg
import pytest
from msgspec.structs import replace

from parts.polling import until
from parts.postgres import Postgres
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.app import build_app
from podpool.ledger.messages import SubnetName, SubnetSpec
from podpool.ledger.storage.postgres.store import PostgresStore
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Request
from tests.ledger.harness import LedgerHarness, run

NETWORK = "vnet"
NAMES = tuple(SubnetName(network=NETWORK, name=name) for name in ("one", "two"))


def break_subnet(repo: Repository) -> None:
    """Write a subnet whose rows violate what the code asserts; its timer is due, like that of the other."""
    broken, other = (repo.subnet(name) for name in NAMES)
    assert broken is not None
    assert other is not None
    repo.put_subnet(replace(broken, totals=(), due=0.0))
    repo.put_subnet(replace(other, due=0.0))


def mend_subnet(repo: Repository) -> None:
    broken, other = (repo.subnet(name) for name in NAMES)
    assert broken is not None
    assert other is not None
    repo.put_subnet(replace(broken, totals=other.totals))


@pytest.mark.usefixtures("backend")
class TestFaultInOneSubnet:
    def test_others_are_settled_and_the_fault_is_counted(self) -> None:
        harness = LedgerHarness()
        for number, name in enumerate(NAMES):
            harness.subnet(f"10.{number}.0.0/29", name=name.name, reserved_for_primaries=0)
        run(harness.store.write(break_subnet, network=NETWORK))
        harness.advance(1.0)
        assert 1 == harness.ledger.tasks.errors["timers"]
        assert [True, False] == [is_due(harness, name) for name in NAMES]
        run(harness.store.write(mend_subnet, network=NETWORK))
        harness.advance(1.0)
        assert 1 == harness.ledger.tasks.errors["timers"]
        assert not is_due(harness, NAMES[0])

    def test_metric_counts_errors_by_task(self) -> None:
        harness = LedgerHarness()
        page = run(metrics_page(harness))
        assert 'podpool_ledger_task_errors_total{task="timers"} 0.0' in page


def is_due(harness: LedgerHarness, name: SubnetName) -> bool:
    row = run(harness.store.read(lambda repo: repo.subnet(name), network=NETWORK))
    assert row is not None
    return row.due == 0.0


async def metrics_page(harness: LedgerHarness) -> str:
    app = build_app(harness.ledger, harness.store, clock=harness.clock)
    response = await app.health(Request(method="GET", path="/metrics"))
    return (await response.read()).decode()


@pytest.mark.real
@pytest.mark.xdist_group("postgres")
class TestPostgres:
    def test_lock_timeout_ends_neither_the_ledger_nor_a_call(self, postgres: Postgres) -> None:
        """Another replica holds the lock for longer than `lock_timeout`; then everything goes on."""
        postgres.psql("CREATE DATABASE timeouts")

        waits: set[str] = set()

        async def main() -> None:
            url = postgres.url("timeouts")
            separator = "&" if "?" in url else "?"
            store = await PostgresStore.open(f"{url}{separator}lock_timeout=200", rng=random.SystemRandom())
            ledger = LedgerService(store, clock=store.clock(SystemClock()), rng=random.SystemRandom())
            await ledger.start()
            for number, name in enumerate(NAMES):
                spec = SubnetSpec(network=name.network, name=name.name, cidr=f"10.{number}.0.0/29")
                await ledger.admin.create_subnet(spec)
            other = await asyncpg.connect(url)
            running = asyncio.create_task(ledger.run())
            try:
                async with other.transaction():
                    await other.execute("SELECT 1 FROM shard WHERE network = $1 FOR UPDATE", NETWORK)
                    call = asyncio.create_task(ledger.admin.drain(NAMES[0], draining=True))
                    await asyncio.to_thread(until, lambda: repeats(postgres, waits), "the ledger has tried three times")
                    assert not call.done()
                assert (await call).draining
                assert not running.done()
            finally:
                running.cancel()
                await asyncio.wait([running])
                await other.close()
                await store.close()

        try:
            asyncio.run(main())
        finally:
            postgres.server.settle()
            postgres.psql("DROP DATABASE timeouts")


def repeats(server: Postgres, waits: set[str]) -> bool:
    """Collect the transactions that wait for a lock; returns whether there were three."""
    waiting = "SELECT xact_start FROM pg_stat_activity WHERE datname = 'timeouts' AND wait_event_type = 'Lock'"
    waits.update(server.psql(waiting).split("\n"))
    waits.discard("")
    return len(waits) >= 3

"""The queries behind utilization: none while it is cached, else one indexed row."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from parts.postgres import Postgres
from podpool.ledger.domain.repository import LedgerStore
from podpool.ledger.domain.service import LedgerService, LedgerSettings
from podpool.ledger.messages import SubnetName, SubnetSpec
from podpool.ledger.storage.postgres.store import PostgresStore
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.clock import SystemClock
from tests.ledger.harness import SUBNET, run

MANY = 50


def cached(store: LedgerStore) -> LedgerService:
    return LedgerService(
        store, clock=SystemClock(), rng=random.SystemRandom(), settings=LedgerSettings(utilization_refresh=1.0)
    )


async def make_subnets(ledger: LedgerService) -> None:
    for number in range(MANY):
        cidr = f"10.{number}.0.0/16"
        await ledger.admin.create_subnet(SubnetSpec(network="vnet", name=f"pods{number or ''}", cidr=cidr))


class TestSqlite:
    @pytest.fixture
    def statements(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return the statements of all connections."""
        statements: list[str] = []
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect

        def listened(*arguments: object, **named: object) -> sqlite3.Connection:
            connection = connect(*arguments, **named)
            connection.set_trace_callback(statements.append)
            return connection

        monkeypatch.setattr(sqlite3, "connect", listened)
        return statements

    def test_first_request_reads_one_row_the_next_none(self, statements: list[str]) -> None:
        store = InlineSqliteStore()
        ledger = cached(store)
        run(make_subnets(ledger))
        statements.clear()
        (first,) = run(ledger.utilization(SUBNET))
        tables = {"shard", "ledger_time", "subnet"}
        reads = [each for each in statements if each.startswith("SELECT")]
        assert tables == {each.split(" FROM ")[1].split(" ")[0] for each in reads}
        (row,) = [each for each in reads if " FROM subnet " in each]
        assert "network = 'vnet' AND name = 'pods'" in row
        statements.clear()
        for _ in range(10):
            assert [first] == run(ledger.utilization(SUBNET))
        assert [] == statements
        run(store.close())

    def test_row_is_found_by_index(self) -> None:
        connection = sqlite3.connect(":memory:")
        connection.deserialize(InlineSqliteStore().image())
        (step,) = connection.execute(
            "EXPLAIN QUERY PLAN SELECT row FROM subnet WHERE network = 'vnet' AND name = 'pods'"
        ).fetchall()
        connection.close()
        assert "USING INDEX" in step[3]
        assert "(network=? AND name=?)" in step[3]


@pytest.mark.real
@pytest.mark.xdist_group("postgres")
class TestPostgres:
    @pytest.fixture
    def url(self, postgres: Postgres) -> Iterator[str]:
        postgres.psql("CREATE DATABASE utilization")
        postgres.psql("ALTER DATABASE utilization SET log_statement = 'all'")
        yield postgres.url("utilization")
        postgres.psql("DROP DATABASE utilization")

    def test_first_request_reads_one_row_the_next_none(self, postgres: Postgres, url: str) -> None:
        log = postgres.home / "log"

        def result(since: int) -> list[str]:
            waiters = log.read_text()[since:].splitlines()
            return [line.partition(": ")[2] for line in waiters if " LOG:  execute " in line]

        async def make() -> None:
            store = await PostgresStore.open(url, rng=random.SystemRandom())
            await make_subnets(cached(store))
            await store.close()

        async def request() -> tuple[list[str], list[str]]:
            store = await PostgresStore.open(url, rng=random.SystemRandom())
            ledger = cached(store)
            await ledger.start()
            await ledger.utilization(SubnetName(network="vnet", name="pods1"))  # the writer of the network connects
            before = len(log.read_text())
            (first,) = await ledger.utilization(SUBNET)
            uncached, since = result(before), len(log.read_text())
            for _ in range(10):
                assert [first] == await ledger.utilization(SUBNET)
            known = result(since)
            await store.close()
            return uncached, known

        asyncio.run(make())
        uncached, known = asyncio.run(request())
        assert [] == known
        reads = [each.split(" FROM ")[1] for each in uncached]
        assert ["subnet WHERE network = $1 AND name = $2", "shard WHERE network = $1"] == reads

"""The design that the ledger is compared with: `ROWS` gives the same guarantees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import pytest

from bench.skip_locked import ROWS, SUBNET, TERM

if TYPE_CHECKING:
    from parts.postgres import Postgres

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]

RunTest: TypeAlias = Callable[[Callable[["TwoConnections"], Awaitable[None]]], None]


class TwoConnections:
    """Two connections to tables with 64 addresses."""

    def __init__(self, one: asyncpg.Connection, other: asyncpg.Connection) -> None:
        self.one = one
        self.other = other

    async def call(
        self, number: int, *, node: str = "n", cluster: str = "cluster-0", term: int = TERM, wanted: int = 16
    ) -> dict[str, Any]:
        return await allocate(self.one, cluster, term, number, node, node, SUBNET, wanted)

    async def release(self, ips: list[int], *, ago: str) -> None:
        await self.one.execute(
            "UPDATE address SET owner = NULL, grant_id = NULL, free_since = now() - $2::text::interval"
            " WHERE ip = ANY($1::integer[])",
            ips,
            ago,
        )


async def allocate(connection: asyncpg.Connection, *arguments: object) -> dict[str, Any]:
    """Execute the statement; returns addresses and grants ordered by address."""
    (row,) = await connection.fetch(ROWS.allocate, *arguments)
    pairs = sorted(zip(row["ips"] or (), row["grants"] or (), strict=True))
    return dict(row) | {"ips": [ip for ip, _ in pairs], "grants": [grant for _, grant in pairs]}


@pytest.fixture
def run(started_postgres: Postgres) -> Iterator[RunTest]:
    """Run a test on new tables."""
    started_postgres.psql("CREATE DATABASE rows")
    url = started_postgres.url("rows")

    async def on_new_tables(test: Callable[[TwoConnections], Awaitable[None]]) -> None:
        one, other = await asyncpg.connect(url), await asyncpg.connect(url)
        try:
            await one.execute(ROWS.tables)
            await one.execute(ROWS.fill, 64)
            await test(TwoConnections(one, other))
        finally:
            await one.close()
            await other.close()

    yield lambda test: asyncio.run(on_new_tables(test))
    started_postgres.psql("DROP DATABASE rows")


def test_repeated_call_returns_the_same_addresses(run: RunTest) -> None:
    """A batch is allocated once: a repeated call gets the same, a larger call keeps it."""

    async def test(table: TwoConnections) -> None:
        first = await table.call(1)
        assert (first["changed"], first["version"], len(set(first["ips"])), first["reserved"]) == (True, 1, 16, 16)
        assert await table.call(2) == first
        more = await table.call(3, wanted=20)
        assert (more["container"], more["version"], more["reserved"]) == (first["container"], 2, 20)
        assert more["ips"][:16] == first["ips"]
        assert more["grants"][:16] == first["grants"]
        assert len(set(more["grants"])) == 20

    run(test)


def test_stale_call_changes_nothing(run: RunTest) -> None:
    """With a used number or an ended term; it returns the current state."""

    async def test(table: TwoConnections) -> None:
        first = await table.call(5)
        for stale in (await table.call(5, wanted=20), await table.call(4, wanted=20), await table.call(6, term=0)):
            assert stale == first | {"changed": False}
        unknown = await table.call(5, node="other")
        assert (unknown["changed"], unknown["container"], unknown["ips"]) == (False, None, [])

    run(test)


def test_two_clusters_have_different_addresses(run: RunTest) -> None:
    """Also for nodes of the same name; the reserved count includes both."""

    async def test(table: TwoConnections) -> None:
        first, second = await table.call(1), await table.call(1, cluster="cluster-1")
        assert not set(first["ips"]) & set(second["ips"])
        assert second["reserved"] == 32
        assert await table.one.fetchval("SELECT count(*) FROM event") == 2

    run(test)


def test_addresses_cool_down_and_the_longest_free_are_taken_first(run: RunTest) -> None:
    """What was released within the cooldown is not allocated."""

    async def test(table: TwoConnections) -> None:
        ips = (await table.call(1, wanted=64))["ips"]
        await table.release(ips[:4], ago="29 s")
        await table.release(ips[4:8], ago="31 s")
        await table.release(ips[8:12], ago="40 s")
        assert (await table.call(2, node="next", wanted=6))["ips"] == [*ips[4:6], *ips[8:12]]
        assert len((await table.call(3, node="last"))["ips"]) == 2

    run(test)


def test_call_that_waited_for_its_cluster_changes_nothing(run: RunTest) -> None:
    """Its snapshot is older than its wait: it is repeated, and then finds the node's container."""

    async def test(table: TwoConnections) -> None:
        transaction = table.other.transaction()
        await transaction.start()
        first = await allocate(table.other, "cluster-0", TERM, 1, "n", "n", SUBNET, 16)
        waiting = asyncio.create_task(table.call(2))
        while not await table.other.fetchval("SELECT count(*) FROM pg_locks, pg_sleep(0.001) WHERE NOT granted"):
            pass
        await transaction.commit()
        assert not (await waiting)["changed"]
        assert await table.call(2) == first

    run(test)

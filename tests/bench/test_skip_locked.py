"""The rows that the ledger is compared with: they promise what it promises."""

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

Play: TypeAlias = Callable[[Callable[["Table"], Awaitable[None]]], None]


class Table:
    """Sixty-four addresses, through two connections."""

    def __init__(self, one: asyncpg.Connection, other: asyncpg.Connection) -> None:
        self.one = one
        self.other = other

    async def ask(
        self, number: int, *, node: str = "n", cluster: str = "cluster-0", term: int = TERM, wanted: int = 16
    ) -> dict[str, Any]:
        return await take(self.one, cluster, term, number, node, node, SUBNET, wanted)

    async def release(self, ips: list[int], *, ago: str) -> None:
        await self.one.execute(
            "UPDATE address SET owner = NULL, grant_id = NULL, free_since = now() - $2::text::interval"
            " WHERE ip = ANY($1::integer[])",
            ips,
            ago,
        )


async def take(connection: asyncpg.Connection, *words: object) -> dict[str, Any]:
    """Send the statement; addresses and grants in the order of the addresses."""
    (answer,) = await connection.fetch(ROWS.take, *words)
    pairs = sorted(zip(answer["ips"] or (), answer["grants"] or (), strict=True))
    return dict(answer) | {"ips": [ip for ip, _ in pairs], "grants": [grant for _, grant in pairs]}


@pytest.fixture
def play(started_postgres: Postgres) -> Iterator[Play]:
    """Run a test on new tables."""
    started_postgres.psql("CREATE DATABASE rows")
    url = started_postgres.url("rows")

    async def played(test: Callable[[Table], Awaitable[None]]) -> None:
        one, other = await asyncpg.connect(url), await asyncpg.connect(url)
        try:
            await one.execute(ROWS.tables)
            await one.execute(ROWS.fill, 64)
            await test(Table(one, other))
        finally:
            await one.close()
            await other.close()

    yield lambda test: asyncio.run(played(test))
    started_postgres.psql("DROP DATABASE rows")


def test_a_node_has_its_addresses_and_a_version(play: Play) -> None:
    """A batch is given once: who asks again has the same, who asks for more keeps what it has."""

    async def test(table: Table) -> None:
        first = await table.ask(1)
        assert (first["changed"], first["version"], len(set(first["ips"])), first["reserved"]) == (True, 1, 16, 16)
        assert await table.ask(2) == first
        more = await table.ask(3, wanted=20)
        assert (more["container"], more["version"], more["reserved"]) == (first["container"], 2, 20)
        assert more["ips"][:16] == first["ips"]
        assert more["grants"][:16] == first["grants"]
        assert len(set(more["grants"])) == 20

    play(test)


def test_a_late_call_changes_nothing(play: Play) -> None:
    """Neither with a number that was used, nor with a term that has ended; it shows what is."""

    async def test(table: Table) -> None:
        first = await table.ask(5)
        for late in (await table.ask(5, wanted=20), await table.ask(4, wanted=20), await table.ask(6, term=0)):
            assert late == first | {"changed": False}
        stranger = await table.ask(5, node="other")
        assert (stranger["changed"], stranger["container"], stranger["ips"]) == (False, None, [])

    play(test)


def test_two_clusters_have_different_addresses(play: Play) -> None:
    """Also for nodes of one name; and what is reserved counts both."""

    async def test(table: Table) -> None:
        first, second = await table.ask(1), await table.ask(1, cluster="cluster-1")
        assert not set(first["ips"]) & set(second["ips"])
        assert second["reserved"] == 32
        assert await table.one.fetchval("SELECT count(*) FROM event") == 2

    play(test)


def test_addresses_rest_and_the_longest_free_come_first(play: Play) -> None:
    """What was released within the cooldown is not given, to whomever."""

    async def test(table: Table) -> None:
        given = (await table.ask(1, wanted=64))["ips"]
        await table.release(given[:4], ago="29 s")
        await table.release(given[4:8], ago="31 s")
        await table.release(given[8:12], ago="40 s")
        assert (await table.ask(2, node="next", wanted=6))["ips"] == [*given[4:6], *given[8:12]]
        assert len((await table.ask(3, node="last"))["ips"]) == 2

    play(test)


def test_who_has_waited_for_its_cluster_changes_nothing(play: Play) -> None:
    """It knows the containers as they were before it waited: it is sent again, and then finds the node's container."""

    async def test(table: Table) -> None:
        holding = table.other.transaction()
        await holding.start()
        held = await take(table.other, "cluster-0", TERM, 1, "n", "n", SUBNET, 16)
        waiting = asyncio.create_task(table.ask(2))
        while not await table.other.fetchval("SELECT count(*) FROM pg_locks, pg_sleep(0.001) WHERE NOT granted"):
            pass
        await holding.commit()
        assert not (await waiting)["changed"]
        assert await table.ask(2) == held

    play(test)

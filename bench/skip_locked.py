"""The other way to keep addresses in PostgreSQL: one row for each, taken with FOR UPDATE SKIP LOCKED.

As one statement, and at its best: each address has its owner and the identity of its grant, and one row tells what
happened. It keeps no versions and no rests. With `counted` it also keeps, as the ledger does, how many are taken in a
row of the subnet: so that somebody can be told without counting them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg
import uvloop

from bench.ledgers import BATCH, databases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.postgres import Postgres

_TABLES = """
CREATE TABLE address (ip integer PRIMARY KEY, owner bigint, grant_id uuid);
CREATE TABLE event (at timestamptz, owner bigint, ips integer[], grants uuid[]);
CREATE INDEX address_free ON address (ip) WHERE owner IS NULL;
CREATE TABLE subnet (reserved integer);
INSERT INTO subnet VALUES (0);
"""
_COUNT = ", counted AS (UPDATE subnet SET reserved = reserved + (SELECT count(*) FROM taken))"
_TAKE = """
WITH free AS (
  SELECT ip FROM address WHERE owner IS NULL ORDER BY ip LIMIT $2 FOR UPDATE SKIP LOCKED
), taken AS (
  UPDATE address SET owner = $1, grant_id = gen_random_uuid() FROM free WHERE address.ip = free.ip
  RETURNING address.ip, grant_id
), told AS (
  INSERT INTO event SELECT now(), $1, array_agg(ip), array_agg(grant_id) FROM taken
)%s
SELECT ip, grant_id FROM taken
"""


class Rows:
    """The table, and as many connections as there are callers."""

    def __init__(self, url: str, *, callers: int, counted: bool) -> None:
        self._statement = _TAKE % (_COUNT if counted else "")
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._pool = self._runner.run(self._connect(url, callers))

    async def _connect(self, url: str, callers: int) -> asyncpg.Pool:
        pool = await asyncpg.create_pool(url, min_size=callers, max_size=callers)
        await pool.execute(_TABLES)
        return pool

    def fill(self, addresses: int) -> None:
        """Have as many free addresses, and nothing else."""
        self._runner.run(self._fill(addresses))

    async def _fill(self, addresses: int) -> None:
        await self._pool.execute("TRUNCATE address, event")
        await self._pool.execute("INSERT INTO address SELECT generate_series(1, $1::integer)", addresses)
        await self._pool.execute("VACUUM ANALYZE address")

    def take(self, batches: int) -> float:
        """Take batches, all connections at once; tells how many there were in a second."""
        return self._runner.run(self._take(batches))

    async def _take(self, batches: int) -> float:
        owners = iter(range(1, batches + 1))
        begun = time.perf_counter()
        await asyncio.gather(*(self._caller(owners) for _ in range(self._pool.get_size())))
        return batches / (time.perf_counter() - begun)

    async def _caller(self, owners: Iterator[int]) -> None:
        async with self._pool.acquire() as connection:
            for owner in owners:
                taken = await connection.fetch(self._statement, owner, BATCH)
                if len(taken) < BATCH:
                    raise AssertionError(f"a batch was not granted: {len(taken)} addresses")

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._pool.close())
        self._runner.close()


@contextmanager
def rows(server: Postgres, *, callers: int, counted: bool) -> Iterator[Rows]:
    """The table in a database of its own."""
    name = f"bench{next(databases)}"
    server.psql(f"CREATE DATABASE {name}")
    table = Rows(server.url(name), callers=callers, counted=counted)
    try:
        yield table
    finally:
        table.close()
        server.psql(f"DROP DATABASE {name}")

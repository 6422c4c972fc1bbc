"""The other way to keep addresses in PostgreSQL: one row for each, taken with FOR UPDATE SKIP LOCKED.

Twice, each as one prepared statement and at its best: rows are found by the index of those that are free and changed
where they lie. `ROWS` answers the ledger's call with the ledger's promises: the cluster's term and number are checked
and raised, so that a late call changes nothing; the container has a row with its version, so that a node that asks
again has the same addresses; those whose rest is over are taken, longest free first; what is reserved is counted in the
subnet's row, and one row tells what happened. `BARE` promises nothing of this: it writes an owner and a grant into
whichever rows are free, and one row that tells so. Most of the difference is the counted row: whoever changes it holds
it until the commit, and the other callers wait.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import asyncpg
import uvloop
from msgspec import Struct

from bench.ledgers import BATCH, databases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parts.postgres import Postgres

TERM = 1
SUBNET = 1
CLUSTERS = 64

_ROWS_TABLES = f"""
CREATE TABLE cluster (id text PRIMARY KEY, term bigint NOT NULL, number bigint NOT NULL) WITH (fillfactor = 10);
INSERT INTO cluster SELECT 'cluster-' || each, {TERM}, 0 FROM generate_series(0, {CLUSTERS - 1}) AS each;
CREATE TABLE subnet (number integer PRIMARY KEY, reserved bigint NOT NULL, cooldown interval NOT NULL)
  WITH (fillfactor = 10);
INSERT INTO subnet VALUES ({SUBNET}, 0, '30 s');
CREATE SEQUENCE container_number CACHE 32;
CREATE TABLE container (
  number bigint PRIMARY KEY,
  id uuid NOT NULL,
  cluster text NOT NULL,
  node text NOT NULL,
  node_uid text NOT NULL,
  subnet integer NOT NULL,
  wanted integer NOT NULL,
  version bigint NOT NULL,
  ips integer[] NOT NULL,
  UNIQUE (cluster, node, node_uid, subnet)
);
CREATE TABLE address (
  subnet integer NOT NULL,
  ip integer NOT NULL,
  owner bigint,
  grant_id uuid,
  free_since timestamptz NOT NULL DEFAULT '-infinity',
  PRIMARY KEY (subnet, ip)
);
CREATE INDEX address_free ON address (subnet, free_since, ip) WHERE owner IS NULL;
CREATE TABLE event (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL,
  cluster text NOT NULL,
  container uuid NOT NULL,
  ips integer[] NOT NULL,
  grants uuid[] NOT NULL
);
"""  # noqa: S608  ours alone
_ROWS_CLEAR = """
TRUNCATE address, container, event;
UPDATE cluster SET number = 0;
UPDATE subnet SET reserved = 0;
"""
# Whoever has waited for the cluster's row knows its containers as they were before: `seen` makes it change nothing, and
# it is sent again. The subnet's row is changed last: everybody waits for it until the commit.
_ROWS_TAKE = """
WITH seen AS MATERIALIZED (
  SELECT term, number FROM cluster WHERE id = $1
), turn AS (
  UPDATE cluster SET number = $3 FROM seen
  WHERE id = $1 AND cluster.term = $2 AND cluster.number < $3 AND (cluster.term, cluster.number) = (seen.*)
  RETURNING id
), known AS MATERIALIZED (
  SELECT number, id, version, ips FROM container WHERE cluster = $1 AND node = $4 AND node_uid = $5 AND subnet = $6
), seat AS MATERIALIZED (
  SELECT coalesce(known.number, nextval('container_number')) AS number, coalesce(known.id, gen_random_uuid()) AS id,
    coalesce(version, 0) AS version, coalesce(ips, '{}') AS ips
  FROM turn LEFT JOIN known ON true
), free AS MATERIALIZED (
  SELECT ctid FROM address
  WHERE subnet = $6 AND owner IS NULL AND free_since <= now() - (SELECT cooldown FROM subnet WHERE number = $6)
  ORDER BY free_since, ip
  LIMIT coalesce((SELECT greatest($7 - cardinality(ips), 0) FROM seat), 0)
  FOR UPDATE SKIP LOCKED
), taken AS (
  UPDATE address SET owner = seat.number, grant_id = gen_random_uuid() FROM seat
  WHERE address.ctid = ANY (ARRAY (SELECT ctid FROM free))
  RETURNING ip, grant_id
), batch AS MATERIALIZED (
  SELECT count(*) AS size, array_agg(ip) AS ips, array_agg(grant_id) AS grants FROM taken
), seated AS (
  INSERT INTO container
  SELECT seat.number, id, $1, $4, $5, $6, $7, version + (size > 0)::integer, seat.ips || batch.ips FROM seat, batch
  ON CONFLICT (number) DO UPDATE SET wanted = excluded.wanted, version = excluded.version, ips = excluded.ips
  RETURNING id, version
), told AS (
  INSERT INTO event (at, cluster, container, ips, grants)
  SELECT now(), $1, id, batch.ips, grants FROM seated, batch WHERE size > 0
  RETURNING number
), counted AS (
  UPDATE subnet SET reserved = reserved + size FROM told, batch WHERE subnet.number = $6
  RETURNING reserved
), held AS (
  SELECT address.ip, grant_id FROM known, unnest(known.ips) AS each (ip)
  JOIN address ON address.subnet = $6 AND address.ip = each.ip
)
SELECT seated.id IS NOT NULL AS changed, coalesce(seated.id, known.id) AS container,
  coalesce(seated.version, known.version) AS version,
  (SELECT array_agg(ip) FROM held) || batch.ips AS ips, (SELECT array_agg(grant_id) FROM held) || grants AS grants,
  coalesce((SELECT reserved FROM counted), (SELECT reserved FROM subnet WHERE number = $6)) AS reserved
FROM batch LEFT JOIN seated ON true LEFT JOIN known ON true
"""

_BARE_TABLES = """
CREATE TABLE address (ip integer PRIMARY KEY, owner bigint, grant_id uuid);
CREATE TABLE event (at timestamptz, owner bigint, ips integer[], grants uuid[]);
CREATE INDEX address_free ON address (ip) WHERE owner IS NULL;
"""
_BARE_TAKE = """
WITH free AS (
  SELECT ctid FROM address WHERE owner IS NULL ORDER BY ip LIMIT $2 FOR UPDATE SKIP LOCKED
), taken AS (
  UPDATE address SET owner = $1, grant_id = gen_random_uuid() WHERE ctid = ANY (ARRAY (SELECT ctid FROM free))
  RETURNING ip, grant_id
), told AS (
  INSERT INTO event SELECT now(), $1, array_agg(ip), array_agg(grant_id) FROM taken
)
SELECT array_agg(ip) AS ips, array_agg(grant_id) AS grants FROM taken
"""


class Way(Struct, frozen=True, kw_only=True):
    """Tables, how they are emptied and filled with so many free addresses, and the one statement."""

    tables: str
    clear: str
    fill: str
    take: str
    words: Callable[[str, int, int], tuple[object, ...]]
    """What the statement is told by a cluster, with the number of its call, for a node."""


ROWS = Way(
    tables=_ROWS_TABLES,
    clear=_ROWS_CLEAR,
    fill=f"INSERT INTO address (subnet, ip) SELECT {SUBNET}, generate_series(1, $1::integer)",
    take=_ROWS_TAKE,
    words=lambda cluster, number, node: (cluster, TERM, number, f"node-{node}", f"node-{node}", SUBNET, BATCH),
)
BARE = Way(
    tables=_BARE_TABLES,
    clear="TRUNCATE address, event",
    fill="INSERT INTO address SELECT generate_series(1, $1::integer)",
    take=_BARE_TAKE,
    words=lambda _cluster, _number, node: (node, BATCH),
)


class Rows:
    """The tables, and as many connections as there are callers."""

    def __init__(self, url: str, way: Way, *, callers: int) -> None:
        self._way = way
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._pool = self._runner.run(self._connect(url, callers))

    async def _connect(self, url: str, callers: int) -> asyncpg.Pool:
        pool = await asyncpg.create_pool(url, min_size=callers, max_size=callers)
        await pool.execute(self._way.tables)
        return pool

    def fill(self, addresses: int) -> None:
        """Have as many free addresses, and nothing else."""
        self._runner.run(self._fill(addresses))

    async def _fill(self, addresses: int) -> None:
        await self._pool.execute(self._way.clear)
        await self._pool.execute(self._way.fill, addresses)
        await self._pool.execute("VACUUM ANALYZE")

    def take(self, batches: int) -> float:
        """Take batches, all connections at once; tells how many there were in a second."""
        return self._runner.run(self._take(batches))

    async def _take(self, batches: int) -> float:
        nodes = iter(range(batches))
        begun = time.perf_counter()
        await asyncio.gather(*(self._caller(f"cluster-{each}", nodes) for each in range(self._pool.get_size())))
        return batches / (time.perf_counter() - begun)

    async def _caller(self, cluster: str, nodes: Iterator[int]) -> None:
        """Ask again as soon as there is an answer."""
        async with self._pool.acquire() as connection:
            take = await connection.prepare(self._way.take)
            for number, node in zip(count(1), nodes, strict=False):
                batch = await take.fetchrow(*self._way.words(cluster, number, node))
                if batch is None or len(batch["ips"]) < BATCH:
                    raise AssertionError(f"a batch was not granted: {batch}")

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._pool.close())
        self._runner.close()


@contextmanager
def rows(server: Postgres, way: Way, *, callers: int) -> Iterator[Rows]:
    """The tables in a database of their own."""
    name = f"bench{next(databases)}"
    server.psql(f"CREATE DATABASE {name}")
    table = Rows(server.url(name), way, callers=callers)
    try:
        yield table
    finally:
        table.close()
        server.psql(f"DROP DATABASE {name}")

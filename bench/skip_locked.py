"""An alternative design in PostgreSQL: one row per address, allocated with FOR UPDATE SKIP LOCKED.

There are two variants, each one prepared statement and as fast as possible: free rows are found by a partial index and
updated in place. `ROWS` gives the ledger's guarantees: the cluster's term and number are checked and raised, so that a
stale call changes nothing; the network container has a row with its version, so that a repeated call of a node gets the
same addresses; addresses that have cooled down are taken, longest free first; the reserved count is in the subnet's
row; and one row records the event. `BARE` guarantees none of this: it writes an owner and a grant into any free rows,
and one event. Most of the difference is the count: a caller that updates it locks the row until the commit, and the
other callers wait.
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
"""  # noqa: S608  our own names
_ROWS_CLEAR = """
TRUNCATE address, container, event;
UPDATE cluster SET number = 0;
UPDATE subnet SET reserved = 0;
"""
# A call that has waited for the cluster's row has an old snapshot of its containers: `snapshot` makes it change
# nothing, and it is repeated. The subnet's row is updated last: all callers wait for it until the commit.
_ROWS_ALLOCATE = """
WITH snapshot AS MATERIALIZED (
  SELECT term, number FROM cluster WHERE id = $1
), admitted AS (
  UPDATE cluster SET number = $3 FROM snapshot
  WHERE id = $1 AND cluster.term = $2 AND cluster.number < $3 AND (cluster.term, cluster.number) = (snapshot.*)
  RETURNING id
), known AS MATERIALIZED (
  SELECT number, id, version, ips FROM container WHERE cluster = $1 AND node = $4 AND node_uid = $5 AND subnet = $6
), target AS MATERIALIZED (
  SELECT coalesce(known.number, nextval('container_number')) AS number, coalesce(known.id, gen_random_uuid()) AS id,
    coalesce(version, 0) AS version, coalesce(ips, '{}') AS ips
  FROM admitted LEFT JOIN known ON true
), free AS MATERIALIZED (
  SELECT ctid FROM address
  WHERE subnet = $6 AND owner IS NULL AND free_since <= now() - (SELECT cooldown FROM subnet WHERE number = $6)
  ORDER BY free_since, ip
  LIMIT coalesce((SELECT greatest($7 - cardinality(ips), 0) FROM target), 0)
  FOR UPDATE SKIP LOCKED
), granted AS (
  UPDATE address SET owner = target.number, grant_id = gen_random_uuid() FROM target
  WHERE address.ctid = ANY (ARRAY (SELECT ctid FROM free))
  RETURNING ip, grant_id
), batch AS MATERIALIZED (
  SELECT count(*) AS size, array_agg(ip) AS ips, array_agg(grant_id) AS grants FROM granted
), stored AS (
  INSERT INTO container
  SELECT target.number, id, $1, $4, $5, $6, $7, version + (size > 0)::integer, target.ips || batch.ips
  FROM target, batch
  ON CONFLICT (number) DO UPDATE SET wanted = excluded.wanted, version = excluded.version, ips = excluded.ips
  RETURNING id, version
), logged AS (
  INSERT INTO event (at, cluster, container, ips, grants)
  SELECT now(), $1, id, batch.ips, grants FROM stored, batch WHERE size > 0
  RETURNING number
), counted AS (
  UPDATE subnet SET reserved = reserved + size FROM logged, batch WHERE subnet.number = $6
  RETURNING reserved
), held AS (
  SELECT address.ip, grant_id FROM known, unnest(known.ips) AS each (ip)
  JOIN address ON address.subnet = $6 AND address.ip = each.ip
)
SELECT stored.id IS NOT NULL AS changed, coalesce(stored.id, known.id) AS container,
  coalesce(stored.version, known.version) AS version,
  (SELECT array_agg(ip) FROM held) || batch.ips AS ips, (SELECT array_agg(grant_id) FROM held) || grants AS grants,
  coalesce((SELECT reserved FROM counted), (SELECT reserved FROM subnet WHERE number = $6)) AS reserved
FROM batch LEFT JOIN stored ON true LEFT JOIN known ON true
"""

_BARE_TABLES = """
CREATE TABLE address (ip integer PRIMARY KEY, owner bigint, grant_id uuid);
CREATE TABLE event (at timestamptz, owner bigint, ips integer[], grants uuid[]);
CREATE INDEX address_free ON address (ip) WHERE owner IS NULL;
"""
_BARE_ALLOCATE = """
WITH free AS (
  SELECT ctid FROM address WHERE owner IS NULL ORDER BY ip LIMIT $2 FOR UPDATE SKIP LOCKED
), granted AS (
  UPDATE address SET owner = $1, grant_id = gen_random_uuid() WHERE ctid = ANY (ARRAY (SELECT ctid FROM free))
  RETURNING ip, grant_id
), logged AS (
  INSERT INTO event SELECT now(), $1, array_agg(ip), array_agg(grant_id) FROM granted
)
SELECT array_agg(ip) AS ips, array_agg(grant_id) AS grants FROM granted
"""


class Design(Struct, frozen=True, kw_only=True):
    """The tables, the statements that empty and fill them, and the statement that allocates."""

    tables: str
    clear: str
    fill: str
    allocate: str
    arguments: Callable[[str, int, int], tuple[object, ...]]
    """The arguments for a cluster, the number of its call, and a node."""


ROWS = Design(
    tables=_ROWS_TABLES,
    clear=_ROWS_CLEAR,
    fill=f"INSERT INTO address (subnet, ip) SELECT {SUBNET}, generate_series(1, $1::integer)",
    allocate=_ROWS_ALLOCATE,
    arguments=lambda cluster, number, node: (cluster, TERM, number, f"node-{node}", f"node-{node}", SUBNET, BATCH),
)
BARE = Design(
    tables=_BARE_TABLES,
    clear="TRUNCATE address, event",
    fill="INSERT INTO address SELECT generate_series(1, $1::integer)",
    allocate=_BARE_ALLOCATE,
    arguments=lambda _cluster, _number, node: (node, BATCH),
)


class AddressTable:
    """The tables, with one connection per caller."""

    def __init__(self, url: str, design: Design, *, callers: int) -> None:
        self._design = design
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._pool = self._runner.run(self._connect(url, callers))

    async def _connect(self, url: str, callers: int) -> asyncpg.Pool:
        pool = await asyncpg.create_pool(url, min_size=callers, max_size=callers)
        await pool.execute(self._design.tables)
        return pool

    def fill(self, addresses: int) -> None:
        """Empty the tables and insert free addresses."""
        self._runner.run(self._fill(addresses))

    async def _fill(self, addresses: int) -> None:
        await self._pool.execute(self._design.clear)
        await self._pool.execute(self._design.fill, addresses)
        await self._pool.execute("VACUUM ANALYZE")

    def allocate(self, batches: int) -> float:
        """Allocate batches on all connections concurrently; returns batches per second."""
        return self._runner.run(self._allocate(batches))

    async def _allocate(self, batches: int) -> float:
        nodes = iter(range(batches))
        start = time.perf_counter()
        await asyncio.gather(*(self._caller(f"cluster-{each}", nodes) for each in range(self._pool.get_size())))
        return batches / (time.perf_counter() - start)

    async def _caller(self, cluster: str, nodes: Iterator[int]) -> None:
        """Call again after each response."""
        async with self._pool.acquire() as connection:
            statement = await connection.prepare(self._design.allocate)
            for number, node in zip(count(1), nodes, strict=False):
                batch = await statement.fetchrow(*self._design.arguments(cluster, number, node))
                if batch is None or len(batch["ips"]) < BATCH:
                    raise AssertionError(f"a batch was not granted: {batch}")

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._pool.close())
        self._runner.close()


@contextmanager
def address_table(server: Postgres, design: Design, *, callers: int) -> Iterator[AddressTable]:
    """The tables, in their own database."""
    name = f"bench{next(databases)}"
    server.psql(f"CREATE DATABASE {name}")
    table = AddressTable(server.url(name), design, callers=callers)
    try:
        yield table
    finally:
        table.close()
        server.psql(f"DROP DATABASE {name}")

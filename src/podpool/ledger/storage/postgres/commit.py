"""What a group of works has changed on the cache, written in one statement; and what other replicas have, read again.

It is a transaction of its own, or the end of one, and does nothing at all when somebody else has written since the
cache was read: every part of it hangs on the update of the ledger's own row.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from podpool.ledger.storage.postgres.repository import (
    PostgresRepository,
    renew_blocks,
    renew_clusters,
    renew_containers,
    renew_subnets,
)
from podpool.ledger.storage.postgres.row_cache import LedgerRow, RowCache, CachedTable
from podpool.ledger.domain.rows import SubnetRow, encode_row

if TYPE_CHECKING:
    from asyncpg import Connection

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED = 256
"""Commits; a replica that is further behind reads everything again."""
_MOST_TOUCHED = 2_000
"""Rows of a commit that are named one by one."""

CHANNEL = "podpool"
"""Where replicas tell each other which subnets have changed."""

_WRITE = """
WITH turn AS (
  UPDATE ledger SET revision = $2, epoch = $3, turn = $4, commits = $5, subnets = $6, containers = $7, system = $8,
    timeline = $9
  WHERE turn = $1 RETURNING 1
), changes AS (
  INSERT INTO change (number, turn, touched) SELECT $5, $4, $10 FROM turn
), forgotten AS (
  DELETE FROM change WHERE number = $5 - $11
), clusters AS (
  INSERT INTO cluster (id, row)
  SELECT new.* FROM turn, unnest($12::text[], $13::text[]) AS new
  ON CONFLICT (id) DO UPDATE SET row = excluded.row
), subnets AS (
  INSERT INTO subnet (number, network, name, due, row)
  SELECT new.* FROM turn, unnest($14::bigint[], $15::text[], $16::text[], $17::double precision[], $18::text[]) AS new
  ON CONFLICT (number) DO UPDATE SET due = excluded.due, row = excluded.row
), containers AS (
  INSERT INTO network_container
    (number, id, cluster, subnet, node, node_uid, closed, third_party, pod_short_since, buffer_short_since, row)
  SELECT number, id, cluster, subnet, node, node_uid, closed::integer, (inferred IS NOT NULL)::integer, pod_short_since,
    buffer_short_since, new.row
  FROM turn, unnest($19::text[]) AS new (row), json_to_record(new.row::json) AS told (
    number bigint, id text, cluster text, subnet bigint, node text, node_uid text, closed boolean, inferred json,
    pod_short_since double precision, buffer_short_since double precision
  )
  ON CONFLICT (number) DO UPDATE SET
    node_uid = excluded.node_uid, closed = excluded.closed, third_party = excluded.third_party,
    pod_short_since = excluded.pod_short_since, buffer_short_since = excluded.buffer_short_since, row = excluded.row
), blocks AS (
  INSERT INTO block (subnet, number, ready, slots)
  SELECT new.* FROM turn, unnest($20::bigint[], $21::bigint[], $22::bigint[], $23::bytea[]) AS new
  ON CONFLICT (subnet, number) DO UPDATE SET ready = excluded.ready, slots = excluded.slots
), events AS (
  INSERT INTO event (revision, at, cluster, kind, events)
  SELECT new.* FROM turn, unnest($24::bigint[], $25::double precision[], $26::text[], $27::text[], $28::text[]) AS new
), members AS (
  INSERT INTO membership (cluster, network, subnet)
  SELECT new.* FROM turn, unnest($29::text[], $30::text[], $31::text[]) AS new
)
SELECT CASE WHEN $32::text <> '' THEN pg_notify($33, $32)::text END FROM turn
"""


class ChangedKeys(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The keys of the rows that a commit has changed."""

    clusters: tuple[str, ...] = ()
    subnets: tuple[int, ...] = ()
    containers: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    more: bool = False
    """Or that there is more than can be told: everything must be read again."""


async def write(connection: "Connection", repo: PostgresRepository, *, turn: int, notice: str) -> bool:
    """Write what was changed, and hand on the turn; tells whether nobody else has written since the cache was read."""
    cache = repo.cache
    before, after = cache.ledger.commit_token, replace(cache.ledger, turn=turn, commits=cache.ledger.commits + 1)
    cache.ledger = after  # what is decided from here on comes after it
    found = await connection.fetchrow(
        _WRITE,
        before,
        *astuple(after),
        encode_row(_touched(repo)),
        _REMEMBERED,
        *_columns(2, ((row.id, encode_row(row)) for row in _new(cache.clusters))),
        *_columns(5, map(_subnet_columns, _new(cache.subnets))),
        list(map(encode_row, _new(cache.ncs))),
        *_columns(4, ((*key, row.ready, row.block.encode()) for key, row in cache.blocks.take_dirty() if row)),
        *_columns(5, repo.events),
        *_columns(3, (member for member, _ in cache.members.take_dirty())),
        notice,
        CHANNEL,
    )
    return found is not None


async def renew(connection: "Connection", cache: RowCache, counters: LedgerRow) -> bool:
    """Read again what others have written since the cache was current; False when that is not known."""
    found = await connection.fetch(
        "SELECT turn, touched FROM change WHERE number >= $1 ORDER BY number", cache.ledger.commits
    )
    if len(found) != counters.commits - cache.ledger.commits + 1 or found[0]["turn"] != cache.ledger.commit_token:
        return False
    changes = [msgspec.json.decode(row["touched"], type=ChangedKeys) for row in found[1:]]
    if any(change.more for change in changes):
        return False
    for read, key in ((renew_clusters, "clusters"), (renew_subnets, "subnets"), (renew_containers, "containers")):
        names = dict.fromkeys(name for change in changes for name in getattr(change, key))
        if names:
            await read(connection, cache, list(names))
    blocks = dict.fromkeys(block for change in changes for block in change.blocks)
    if blocks:
        await renew_blocks(connection, cache, list(blocks))
    cache.ledger = counters
    return True


def _touched(repo: PostgresRepository) -> ChangedKeys:
    cache = repo.cache
    touched = ChangedKeys(
        clusters=tuple(cache.clusters.dirty),
        subnets=tuple(cache.subnets.dirty),
        containers=tuple(cache.ncs.dirty),
        blocks=tuple(cache.blocks.dirty),
    )
    many = len(touched.containers) + len(touched.blocks) > _MOST_TOUCHED
    return ChangedKeys(more=True) if many or repo.invalidate_all or cache.members.dirty else touched


def _new(table: CachedTable[K, V]) -> list[V]:
    return [row for _, row in table.take_dirty() if row is not None]


def _columns(count: int, rows: Iterable[tuple[object, ...]]) -> Iterable[Sequence[object]]:
    """Turn rows into the arrays of their columns."""
    return list(zip(*rows, strict=True)) or [()] * count


def _subnet_columns(row: SubnetRow) -> tuple[object, ...]:
    return row.number, row.spec.network, row.spec.name, row.due, encode_row(row)

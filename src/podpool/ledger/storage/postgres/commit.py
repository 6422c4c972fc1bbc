"""Writes the changes of a row cache in one statement, and refreshes a cache with the changes of other replicas.

The statement is a transaction of its own, or the last of one. It does nothing at all if another replica has written to
the network since the cache was read: every part of it depends on the update of the network's row by its commit token.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from podpool.ledger.domain.rows import SubnetRow, encode_row
from podpool.ledger.storage.postgres.repository import (
    PostgresRepository,
    refresh_blocks,
    refresh_clusters,
    refresh_ncs,
    refresh_subnets,
)
from podpool.ledger.storage.postgres.row_cache import CachedTable, RowCache, ShardRow

if TYPE_CHECKING:
    from asyncpg import Connection

K = TypeVar("K")
V = TypeVar("V")

_MAX_CHANGES = 256
"""Commits of a network in table `network_commit`; a replica that is further behind reads everything again."""
_MAX_CHANGED_KEYS = 2_000
"""Rows of a commit that are listed one by one."""

CHANNEL = "podpool"
"""The NOTIFY channel for changed subnets."""

_WRITE = """
WITH shard_row AS (
  UPDATE shard SET revision = $3, epoch = $4, commit_token = $5, commits = $6, last_nc = $7, reserved_nc = $8,
    system_identifier = $9, timeline = $10
  WHERE network = $2 AND commit_token = $1 RETURNING 1
), changes AS (
  INSERT INTO network_commit (network, number, commit_token, changed_keys) SELECT $2, $6, $5, $11 FROM shard_row
), trimmed AS (
  DELETE FROM network_commit WHERE network = $2 AND number = $6 - $12
), clusters AS (
  INSERT INTO cluster (network, id, row)
  SELECT $2, new.* FROM shard_row, unnest($13::text[], $14::text[]) AS new
  ON CONFLICT (network, id) DO UPDATE SET row = excluded.row
), subnets AS (
  INSERT INTO subnet (number, network, name, due, row)
  SELECT new.*
  FROM shard_row, unnest($15::bigint[], $16::text[], $17::text[], $18::double precision[], $19::text[]) AS new
  ON CONFLICT (number) DO UPDATE SET due = excluded.due, row = excluded.row
), network_containers AS (
  INSERT INTO network_container
    (number, id, cluster, subnet, node, node_uid, closed, third_party, pod_short_since, buffer_short_since, row)
  SELECT number, id, cluster, subnet, node, node_uid, closed::integer, (inferred IS NOT NULL)::integer, pod_short_since,
    buffer_short_since, new.row
  FROM shard_row, unnest($20::text[]) AS new (row), json_to_record(new.row::json) AS fields (
    number bigint, id text, cluster text, subnet bigint, node text, node_uid text, closed boolean, inferred json,
    pod_short_since double precision, buffer_short_since double precision
  )
  ON CONFLICT (number) DO UPDATE SET
    node_uid = excluded.node_uid, closed = excluded.closed, third_party = excluded.third_party,
    pod_short_since = excluded.pod_short_since, buffer_short_since = excluded.buffer_short_since, row = excluded.row
), blocks AS (
  INSERT INTO block (subnet, number, ready, slots)
  SELECT new.* FROM shard_row, unnest($21::bigint[], $22::bigint[], $23::bigint[], $24::bytea[]) AS new
  ON CONFLICT (subnet, number) DO UPDATE SET ready = excluded.ready, slots = excluded.slots
), events AS (
  INSERT INTO event (network, revision, at, cluster, kind, events)
  SELECT $2, new.*
  FROM shard_row, unnest($25::bigint[], $26::double precision[], $27::text[], $28::text[], $29::text[]) AS new
), members AS (
  INSERT INTO membership (cluster, network, subnet)
  SELECT new.* FROM shard_row, unnest($30::text[], $31::text[], $32::text[]) AS new
)
SELECT CASE WHEN $33::text <> '' THEN pg_notify($34, $33)::text END FROM shard_row
"""


class ChangedKeys(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The keys of the rows that a commit changed."""

    clusters: tuple[str, ...] = ()
    subnets: tuple[int, ...] = ()
    ncs: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    everything: bool = False
    """The changed rows are not listed: everything must be read again."""


async def write_changes(
    connection: "Connection", repo: PostgresRepository, *, commit_token: int, notification: str
) -> bool:
    """Write the changes with a new commit token; returns False if another replica has written in between."""
    cache = repo.cache
    before = cache.shard.commit_token
    after = replace(cache.shard, commit_token=commit_token, commits=cache.shard.commits + 1)
    cache.shard = after  # the next group starts from it
    found = await connection.fetchrow(
        _WRITE,
        before,
        *astuple(after),
        encode_row(_changed_keys(repo)),
        _MAX_CHANGES,
        *_columns(2, ((row.id, encode_row(row)) for row in _dirty_rows(cache.clusters))),
        *_columns(5, map(_subnet_columns, _dirty_rows(cache.subnets))),
        list(map(encode_row, _dirty_rows(cache.ncs))),
        *_columns(4, ((*key, row.ready, row.block.encode()) for key, row in cache.blocks.take_dirty() if row)),
        *_columns(5, repo.events),
        *_columns(3, (member for member, _ in cache.members.take_dirty())),
        notification,
        CHANNEL,
    )
    return found is not None


async def refresh(connection: "Connection", cache: RowCache, shard: ShardRow) -> bool:
    """Read what other replicas have written since the cache was current; returns False if that is not known."""
    condition = "network = $1 AND number >= $2 ORDER BY number"
    statement = f"SELECT commit_token, changed_keys FROM network_commit WHERE {condition}"  # noqa: S608  our own names
    found = await connection.fetch(statement, shard.network, cache.shard.commits)
    if len(found) != shard.commits - cache.shard.commits + 1:
        return False
    if found[0]["commit_token"] != cache.shard.commit_token:
        return False
    changes = [msgspec.json.decode(row["changed_keys"], type=ChangedKeys) for row in found[1:]]
    if any(change.everything for change in changes):
        return False
    for refresh_rows, key in ((refresh_clusters, "clusters"), (refresh_subnets, "subnets"), (refresh_ncs, "ncs")):
        keys = dict.fromkeys(each for change in changes for each in getattr(change, key))
        if keys:
            await refresh_rows(connection, cache, list(keys))
    blocks = dict.fromkeys(block for change in changes for block in change.blocks)
    if blocks:
        await refresh_blocks(connection, cache, list(blocks))
    cache.shard, cache.time.row = shard, None
    return True


def _changed_keys(repo: PostgresRepository) -> ChangedKeys:
    cache = repo.cache
    keys = ChangedKeys(
        clusters=tuple(id_ for _, id_ in cache.clusters.dirty),
        subnets=tuple(cache.subnets.dirty),
        ncs=tuple(cache.ncs.dirty),
        blocks=tuple(cache.blocks.dirty),
    )
    many = len(keys.ncs) + len(keys.blocks) > _MAX_CHANGED_KEYS
    return ChangedKeys(everything=True) if many or repo.invalidate_all or cache.members.dirty else keys


def _dirty_rows(table: CachedTable[K, V]) -> list[V]:
    return [row for _, row in table.take_dirty() if row is not None]


def _columns(count: int, rows: Iterable[tuple[object, ...]]) -> Iterable[Sequence[object]]:
    """Return the columns of rows as arrays."""
    return list(zip(*rows, strict=True)) or [()] * count


def _subnet_columns(row: SubnetRow) -> tuple[object, ...]:
    return row.number, row.spec.network, row.spec.name, row.due, encode_row(row)

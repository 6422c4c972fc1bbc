"""What a group of works has changed on the shelf, written in one statement.

It is a transaction of its own, or the end of one, and does nothing at all when somebody else has written since the
shelf was read: every part of it hangs on the update of the ledger's own row.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import astuple, replace

from podpool.ledger.postgres_books import PostgresBooks
from podpool.ledger.rows import ContainerRow, SubnetRow, text_of
from podpool.ledger.shelf import Table

if TYPE_CHECKING:
    from asyncpg import Connection

K = TypeVar("K")
V = TypeVar("V")

CHANNEL = "podpool"
"""Where replicas tell each other which subnets have changed."""

_WRITE = f"""
WITH turn AS (
  UPDATE ledger SET revision = $2, epoch = $3, turn = $4, subnets = $5, containers = $6, system = $7, timeline = $8
  WHERE turn = $1 RETURNING 1
), clusters AS (
  INSERT INTO cluster (id, row)
  SELECT new.* FROM turn, unnest($9::text[], $10::text[]) AS new
  ON CONFLICT (id) DO UPDATE SET row = excluded.row
), subnets AS (
  INSERT INTO subnet (number, network, name, due, row)
  SELECT new.* FROM turn, unnest($11::bigint[], $12::text[], $13::text[], $14::double precision[], $15::text[]) AS new
  ON CONFLICT (number) DO UPDATE SET due = excluded.due, row = excluded.row
), containers AS (
  INSERT INTO container
    (number, id, cluster, subnet, node, node_uid, closed, foreign_agent, need_since, wish_since, row)
  SELECT new.* FROM turn, unnest(
    $16::bigint[], $17::text[], $18::text[], $19::bigint[], $20::text[], $21::text[], $22::integer[], $23::integer[],
    $24::double precision[], $25::double precision[], $26::text[]
  ) AS new
  ON CONFLICT (number) DO UPDATE SET
    node_uid = excluded.node_uid, closed = excluded.closed, foreign_agent = excluded.foreign_agent,
    need_since = excluded.need_since, wish_since = excluded.wish_since, row = excluded.row
), blocks AS (
  INSERT INTO block (subnet, number, ready, slots)
  SELECT new.* FROM turn, unnest($27::bigint[], $28::bigint[], $29::bigint[], $30::bytea[]) AS new
  ON CONFLICT (subnet, number) DO UPDATE SET ready = excluded.ready, slots = excluded.slots
), events AS (
  INSERT INTO event (revision, at, cluster, kind, events)
  SELECT new.* FROM turn, unnest($31::bigint[], $32::double precision[], $33::text[], $34::text[], $35::text[]) AS new
), members AS (
  INSERT INTO member (cluster, network, subnet)
  SELECT new.* FROM turn, unnest($36::text[], $37::text[], $38::text[]) AS new
)
SELECT CASE WHEN $39::text <> '' THEN pg_notify('{CHANNEL}', $39)::text END FROM turn
"""


async def write(connection: "Connection", books: PostgresBooks, *, turn: int, notice: str) -> bool:
    """Write what was changed, and hand on the turn; tells whether nobody else has written since the shelf was read."""
    shelf = books.shelf
    before, after = shelf.counters.turn, replace(shelf.counters, turn=turn)
    found = await connection.fetchrow(
        _WRITE,
        before,
        *astuple(after),
        *_columns(2, ((row.id, text_of(row)) for row in _new(shelf.clusters))),
        *_columns(5, map(_subnet_columns, _new(shelf.subnets))),
        *_columns(11, map(_container_columns, _new(shelf.containers))),
        *_columns(4, ((*key, row.ready, row.slots) for key, row in shelf.blocks.take() if row)),
        *_columns(5, books.events),
        *_columns(3, (member for member, _ in shelf.members.take())),
        notice,
    )
    shelf.counters = after
    return found is not None


def _new(table: Table[K, V]) -> list[V]:
    return [row for _, row in table.take() if row is not None]


def _columns(count: int, rows: Iterable[tuple[object, ...]]) -> Iterable[Sequence[object]]:
    """Turn rows into the arrays of their columns."""
    return list(zip(*rows, strict=True)) or [()] * count


def _subnet_columns(row: SubnetRow) -> tuple[object, ...]:
    return row.number, row.made.network, row.made.name, row.due, text_of(row)


def _container_columns(row: ContainerRow) -> tuple[object, ...]:
    return (
        row.number,
        row.id,
        row.cluster,
        row.subnet,
        row.node,
        row.node_uid,
        int(row.closed),
        int(row.reading is not None),
        row.need_since,
        row.wish_since,
        text_of(row),
    )

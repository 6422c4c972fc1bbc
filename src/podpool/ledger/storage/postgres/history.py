"""Tokens and history in PostgreSQL, and the helpers that run statements within a transaction."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from podpool.ledger.domain.rows import (
    AllocationEvent,
    AllocationPeriodRow,
    AuditRow,
    EventRow,
    HistoryQuery,
    PodUsageRow,
    TokenRow,
    encode_row,
)
from podpool.ledger.storage.history_conditions import periods_condition, usages_condition
from podpool.ledger.storage.postgres.greenlet_bridge import await_only
from podpool.ledger.storage.postgres.row_cache import RowCache

if TYPE_CHECKING:
    from asyncpg import Connection, Record

_token_decoder = msgspec.json.Decoder(TokenRow)
_events_decoder = msgspec.json.Decoder(tuple[AllocationEvent, ...])

_PERIOD_COLUMNS = 'number, network, subnet, address, cluster, node, nc_id, "grant", since, until'
_USAGE_COLUMNS = "network, address, cluster, uid, namespace, name, since, until, node"

_INSERT_PERIOD = f"INSERT INTO allocation_period ({_PERIOD_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"  # noqa: S608  our own names
_PUT_USAGE = f"""
WITH ended AS (
  UPDATE pod_usage SET until = $7
  WHERE network = $1 AND address = $2 AND cluster = $3 AND uid <> $4 AND until IS NULL AND since < $7
)
INSERT INTO pod_usage ({_USAGE_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (network, address, cluster, uid) DO UPDATE SET
  since = least(pod_usage.since, excluded.since), until = greatest(pod_usage.until, excluded.until),
  node = greatest(pod_usage.node, excluded.node)
"""  # noqa: S608  our own names
_USAGES_OF_PERIODS = f"""
SELECT period.place, {", ".join(f"usage.{column}" for column in _USAGE_COLUMNS.split(", "))}
FROM unnest($1::text[], $2::text[], $3::text[], $4::double precision[], $5::double precision[]) WITH ORDINALITY
  AS period (network, address, cluster, since, until, place)
JOIN pod_usage AS usage USING (network, address, cluster)
WHERE usage.since <= period.until AND (usage.until IS NULL OR usage.until > period.since)
ORDER BY usage.since DESC, usage.uid
"""  # noqa: S608  our own names
_RESERVE_NUMBERS = "SELECT nextval(pg_get_serial_sequence('allocation_period', 'number')) FROM generate_series(1, $1)"
_RESERVED_NUMBERS = 256
"""Period numbers that are reserved at once."""


class HistoryBuffer(msgspec.Struct):
    """Periods and Pod usage that a transaction has changed and that are not written yet."""

    open_periods: dict[str, list[AllocationPeriodRow]] = msgspec.field(default_factory=dict)
    """By address, for the addresses that were prefetched; includes the changes."""
    address_by_number: dict[int, str] = msgspec.field(default_factory=dict)
    """The address of each of these periods."""
    opened: list[tuple[object, ...]] = msgspec.field(default_factory=list)
    closed: list[tuple[float, int]] = msgspec.field(default_factory=list)
    closed_ncs: list[tuple[float, str]] = msgspec.field(default_factory=list)
    usages: list[tuple[object, ...]] = msgspec.field(default_factory=list)
    numbers: list[int] = msgspec.field(default_factory=list)
    """Reserved and not used yet."""

    @property
    def used(self) -> bool:
        """Whether it holds prefetched or changed rows."""
        return bool(self.open_periods or self.opened or self.closed or self.closed_ncs or self.usages)

    def open(self, row: AllocationPeriodRow) -> None:
        """Add a new period."""
        self.opened.append(msgspec.structs.astuple(row))
        self.add(row)

    def add(self, row: AllocationPeriodRow) -> None:
        """Add an open period, if its address was prefetched."""
        if row.address in self.open_periods:
            self.open_periods[row.address].append(row)
            self.address_by_number[row.number] = row.address

    def close(self, number: int, until: float) -> None:
        """Close a period."""
        self.closed.append((until, number))
        rows = self.open_periods.get(self.address_by_number.get(number, ""), [])
        rows[:] = [row for row in rows if row.number != number]

    def close_nc(self, nc_id: str, until: float) -> None:
        """Close all periods of a network container."""
        self.closed_ncs.append((until, nc_id))
        for rows in self.open_periods.values():
            rows[:] = [row for row in rows if row.nc_id != nc_id]


class ShardLockRequired(BaseException):
    """A statement that writes immediately needs the lock of the network's row.

    Not an `Exception`, so that no handler of the transaction catches it.
    """


class PostgresHistory:
    """The rows that no grant depends on. Except tokens they are not cached: they are read and written immediately."""

    def __init__(self, connection: "Connection", cache: RowCache, *, locked: bool) -> None:
        self._sql = connection
        self._locked = locked
        self.cache = cache
        self.dirty = False
        self.has_savepoint = False
        """The current transaction has a savepoint."""
        self._buffer = HistoryBuffer()
        self.invalidate_all = False
        """Cached rows were changed that are too rare to be listed one by one for other replicas."""

    def token(self, id_: str) -> TokenRow | None:
        tokens = self.cache.tokens
        if id_ not in tokens.rows:
            found = self._fetch_one("SELECT row FROM token WHERE id = $1", id_)
            tokens.load(id_, _token_decoder.decode(found["row"]) if found else None)
        return tokens.rows[id_]

    def tokens(self) -> list[TokenRow]:
        if self.network:  # they are written as network "", so the cache of a network would not learn of changes
            rows = self._fetch_all("SELECT row FROM token ORDER BY id")
            return [_token_decoder.decode(row["row"]) for row in rows]
        for found in self._fetch_all("SELECT id, row FROM token"):
            self.cache.tokens.load(found["id"], _token_decoder.decode(found["row"]))
        return sorted(self.cache.tokens.existing(), key=lambda row: row.id)

    def put_token(self, row: TokenRow) -> None:
        self.invalidate_all = True
        statement = "INSERT INTO token VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET row = $2"
        self._execute(statement, row.id, encode_row(row))
        self.cache.tokens.put(row.id, row)

    def delete_token(self, id_: str) -> None:
        self.invalidate_all = True
        self._execute("DELETE FROM token WHERE id = $1", id_)
        self.cache.tokens.put(id_, None)

    def add_audit(self, row: AuditRow, *, keep: int) -> None:
        self._require_lock()  # two replicas would read the same last number
        found = self._fetch_one("SELECT coalesce(max(number), 0) AS last FROM audit_log")
        number = 1 + (found["last"] if found else 0)
        values = msgspec.structs.astuple(msgspec.structs.replace(row, number=number))
        self._execute("INSERT INTO audit_log VALUES ($1, $2, $3, $4, $5, $6, $7)", *values)
        self._execute("DELETE FROM audit_log WHERE number <= $1", number - keep)

    def audit_rows(self, limit: int) -> list[AuditRow]:
        found = self._fetch_all("SELECT * FROM audit_log ORDER BY number DESC LIMIT $1", limit)
        return [AuditRow(**dict(row)) for row in found]

    @property
    def network(self) -> str:
        return self.cache.shard.network

    def unindexed_networks(self) -> list[str]:
        found = self._fetch_all("SELECT DISTINCT network FROM event WHERE unindexed = 1 ORDER BY network")
        return [network for (network,) in found]

    def unindexed_events(self, limit: int) -> list[EventRow]:
        condition = "network = $1 AND unindexed = 1 ORDER BY number LIMIT $2"
        statement = f"SELECT number, at, cluster, events FROM event WHERE {condition}"  # noqa: S608  our own names
        found = self._fetch_all(statement, self.network, limit)
        events = [EventRow(**{**dict(row), "events": _events_decoder.decode(row["events"])}) for row in found]
        self._prefetch(events)
        return events

    def mark_indexed(self, numbers: Iterable[int]) -> None:
        self._execute("UPDATE event SET unindexed = 0 WHERE number = ANY($1::bigint[])", list(numbers))

    def open_periods(self, *, network: str, address: str) -> list[AllocationPeriodRow]:
        prefetched = self._buffer.open_periods.get(address)
        if prefetched is None:
            return self._periods("network = $1 AND address = $2 AND until IS NULL", network, address)
        return [row for row in prefetched if row.network == network]

    def open_period(self, row: AllocationPeriodRow) -> None:
        self._require_lock()
        if not self._buffer.numbers:
            reserved = self._fetch_all(_RESERVE_NUMBERS, _RESERVED_NUMBERS)
            self._buffer.numbers = [number for (number,) in reversed(reserved)]
        self._buffer.open(msgspec.structs.replace(row, number=self._buffer.numbers.pop()))

    def close_periods(self, *, until: float, number: int | None = None, nc_id: str | None = None) -> None:
        self._require_lock()
        if number is not None:
            self._buffer.close(number, until)
        else:
            self._buffer.close_nc(nc_id or "", until)

    def periods(self, query: HistoryQuery) -> list[AllocationPeriodRow]:
        condition, values = periods_condition(query, "$")
        return self._periods(condition, *values)

    def put_pod_usage(self, row: PodUsageRow) -> None:
        self._require_lock()
        self._buffer.usages.append(msgspec.structs.astuple(row))

    def end_pod_usages(self, cluster: str, *, until: float) -> None:
        self.flush_buffer()
        statement = "UPDATE pod_usage SET until = greatest(since, $1) WHERE cluster = $2 AND until IS NULL"
        self._execute(statement, until, cluster)

    def pod_usages(self, periods: Sequence[AllocationPeriodRow]) -> list[list[PodUsageRow]]:
        self.flush_buffer()
        keys = [(each.network, each.address, each.cluster, each.since, each.until) for each in periods]
        usages: list[list[PodUsageRow]] = [[] for _ in periods]
        for row in (
            self._fetch_all(_USAGES_OF_PERIODS, *(list(column) for column in zip(*keys, strict=True))) if keys else []
        ):
            fields = dict(row)
            usages[fields.pop("place") - 1].append(PodUsageRow(**fields))
        return usages

    def reported_usages(self, query: HistoryQuery) -> list[PodUsageRow]:
        condition, values = usages_condition(query, "$")
        return self._usages(condition, *values)

    def trim_history(self, *, before: float, limit: int) -> int:
        self.flush_buffer()
        # the oldest events have the lowest numbers: an index by time would slow down every call
        oldest = "SELECT number, at, unindexed FROM event ORDER BY number LIMIT $2"
        events = f"SELECT number FROM ({oldest}) AS oldest WHERE at < $1 AND unindexed = 0"  # noqa: S608  our own names
        usages = "SELECT network, address, cluster, uid FROM pod_usage WHERE until < $1 LIMIT $2"
        return sum(
            self._execute(f"DELETE FROM {table} WHERE {key} IN ({chosen})", before, limit)  # noqa: S608  our own names
            for table, key, chosen in (
                ("allocation_period", "number", "SELECT number FROM allocation_period WHERE until < $1 LIMIT $2"),
                ("event", "number", events),
                ("pod_usage", "(network, address, cluster, uid)", usages),
            )
        )

    def flush_buffer(self) -> None:
        """Write the buffered rows, those of one kind in one batch."""
        buffer = self._buffer
        if not buffer.used:
            return
        for statement, rows in (
            (_INSERT_PERIOD, buffer.opened),
            ("UPDATE allocation_period SET until = $1 WHERE number = $2", buffer.closed),
            ("UPDATE allocation_period SET until = $1 WHERE nc_id = $2 AND until IS NULL", buffer.closed_ncs),
            (_PUT_USAGE, buffer.usages),
        ):
            if rows:
                self._create_savepoint()
                self.dirty = True
                await_only(self._sql.executemany(statement, rows))
        self._buffer = HistoryBuffer(numbers=buffer.numbers)

    def discard_buffer(self) -> None:
        """Discard the buffered rows."""
        self._buffer = HistoryBuffer()

    def _prefetch(self, events: Sequence[EventRow]) -> None:
        """Read the open periods of all addresses of events at once: each of them is queried next."""
        self.flush_buffer()
        pairs = (pair for row in events for event in row.events for pair in (*event.released, *event.granted))
        self._buffer.open_periods = {address: [] for address, _ in pairs}
        for row in self._periods("address = ANY($1::text[]) AND until IS NULL", list(self._buffer.open_periods)):
            self._buffer.add(row)

    def _usages(self, condition: str, *values: object) -> list[PodUsageRow]:
        self.flush_buffer()
        found = self._fetch_all(f"SELECT {_USAGE_COLUMNS} FROM pod_usage WHERE {condition}", *values)  # noqa: S608  our own names
        return [PodUsageRow(**dict(row)) for row in found]

    def _periods(self, condition: str, *values: object) -> list[AllocationPeriodRow]:
        if self._buffer.opened or self._buffer.closed or self._buffer.closed_ncs:
            self.flush_buffer()
        found = self._fetch_all(f"SELECT {_PERIOD_COLUMNS} FROM allocation_period WHERE {condition}", *values)  # noqa: S608  our own names
        return [AllocationPeriodRow(**dict(row)) for row in found]

    def _fetch_all(self, statement: str, *values: object) -> "list[Record]":
        found: list[Record] = await_only(self._sql.fetch(statement, *values))
        return found

    def _fetch_one(self, statement: str, *values: object) -> "Record | None":
        found: Record | None = await_only(self._sql.fetchrow(statement, *values))
        return found

    def _execute(self, statement: str, *values: Any) -> int:  # noqa: ANN401  any type that the statement takes
        """Execute a statement immediately; returns the number of rows."""
        self._require_lock()
        self._create_savepoint()
        status: str = await_only(self._sql.execute(statement, *values))
        count = int(status.rsplit(" ", 1)[-1])
        self.dirty = self.dirty or count > 0
        return count

    def _require_lock(self) -> None:
        if not self._locked:
            raise ShardLockRequired

    def _create_savepoint(self) -> None:
        if not self.has_savepoint:
            await_only(self._sql.execute("SAVEPOINT one"))
            self.has_savepoint = True

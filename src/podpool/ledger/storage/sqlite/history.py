"""Tokens and history in SQLite, and the helpers that run statements."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

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

_token = msgspec.json.Decoder(TokenRow)
_events = msgspec.json.Decoder(tuple[AllocationEvent, ...])

_PERIOD_COLUMNS = 'number, network, subnet, address, cluster, node, nc_id, "grant", since, until'
_USAGE_COLUMNS = "network, address, cluster, uid, namespace, name, since, until, node"

_USAGES_OF_PERIODS = """
SELECT period.key, {columns}
FROM json_each(?) AS period JOIN pod_usage AS usage
  ON usage.network = json_extract(period.value, '$[0]') AND usage.address = json_extract(period.value, '$[1]')
  AND usage.cluster = json_extract(period.value, '$[2]') AND usage.since <= json_extract(period.value, '$[4]')
  AND (usage.until IS NULL OR usage.until > json_extract(period.value, '$[3]'))
ORDER BY usage.since DESC, usage.uid
"""


class SqliteHistory:
    """The rows that no grant depends on: tokens, events, allocation periods, Pod usage."""

    def __init__(self, connection: sqlite3.Connection, network: str) -> None:
        self._sql = connection
        self.network = network
        self.dirty = False

    def token(self, id_: str) -> TokenRow | None:
        found = self._fetch_one("SELECT row FROM token WHERE id = ?", id_)
        return _token.decode(found[0]) if found else None

    def tokens(self) -> list[TokenRow]:
        return [_token.decode(row) for (row,) in self._sql.execute("SELECT row FROM token ORDER BY id")]

    def put_token(self, row: TokenRow) -> None:
        self._execute("INSERT INTO token VALUES (?1, ?2) ON CONFLICT DO UPDATE SET row = ?2", row.id, encode_row(row))

    def delete_token(self, id_: str) -> None:
        self._execute("DELETE FROM token WHERE id = ?", id_)

    def add_audit(self, row: AuditRow, *, keep: int) -> None:
        (last,) = self._fetch_one("SELECT coalesce(max(number), 0) FROM audit_log") or (0,)
        values = msgspec.structs.astuple(msgspec.structs.replace(row, number=last + 1))
        self._execute("INSERT INTO audit_log VALUES (?, ?, ?, ?, ?, ?, ?)", *values)
        self._execute("DELETE FROM audit_log WHERE number <= ?", last + 1 - keep)

    def audit_rows(self, limit: int) -> list[AuditRow]:
        found = self._sql.execute("SELECT * FROM audit_log ORDER BY number DESC LIMIT ?", (limit,))
        return [AuditRow(**dict(zip(AuditRow.__struct_fields__, row, strict=True))) for row in found]

    def unindexed_networks(self) -> list[str]:
        found = self._sql.execute("SELECT DISTINCT network FROM event WHERE unindexed ORDER BY network")
        return [network for (network,) in found]

    def unindexed_events(self, limit: int) -> list[EventRow]:
        condition = "network = ? AND unindexed ORDER BY number LIMIT ?"
        statement = f"SELECT number, at, cluster, events FROM event WHERE {condition}"  # noqa: S608  our own names
        found = self._sql.execute(statement, (self.network, limit))
        return [EventRow(number=n, at=at, cluster=cluster, events=_events.decode(e)) for n, at, cluster, e in found]

    def mark_indexed(self, numbers: Iterable[int]) -> None:
        self.dirty = True
        self._sql.executemany("UPDATE event SET unindexed = 0 WHERE number = ?", [(number,) for number in numbers])

    def open_periods(self, *, network: str, address: str) -> list[AllocationPeriodRow]:
        return self._periods("network = ? AND address = ? AND until IS NULL", network, address)

    def open_period(self, row: AllocationPeriodRow) -> None:
        values = msgspec.structs.astuple(row)[1:]
        placeholders = "NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?"
        self._execute(f"INSERT INTO allocation_period ({_PERIOD_COLUMNS}) VALUES ({placeholders})", *values)  # noqa: S608  our own names

    def close_periods(self, *, until: float, number: int | None = None, nc_id: str | None = None) -> None:
        if number is not None:
            self._execute("UPDATE allocation_period SET until = ? WHERE number = ?", until, number)
        else:
            self._execute("UPDATE allocation_period SET until = ? WHERE nc_id = ? AND until IS NULL", until, nc_id)

    def periods(self, query: HistoryQuery) -> list[AllocationPeriodRow]:
        condition, values = periods_condition(query, "?")
        return self._periods(condition, *values)

    def put_pod_usage(self, row: PodUsageRow) -> None:
        self._execute(
            "UPDATE pod_usage SET until = ?1"
            " WHERE network = ?2 AND address = ?3 AND cluster = ?4 AND uid <> ?5 AND until IS NULL AND since < ?1",
            *(row.since, row.network, row.address, row.cluster, row.uid),
        )
        self._execute(
            f"INSERT INTO pod_usage ({_USAGE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"  # noqa: S608  our own names
            " since = min(since, excluded.since), until = coalesce(max(until, excluded.until), until, excluded.until),"
            " node = max(node, excluded.node)",
            *msgspec.structs.astuple(row),
        )

    def end_pod_usages(self, cluster: str, *, until: float) -> None:
        statement = "UPDATE pod_usage SET until = max(since, ?) WHERE cluster = ? AND until IS NULL"
        self._execute(statement, until, cluster)

    def pod_usages(self, periods: Sequence[AllocationPeriodRow]) -> list[list[PodUsageRow]]:
        columns = ", ".join(f"usage.{column}" for column in _USAGE_COLUMNS.split(", "))
        keys = [(each.network, each.address, each.cluster, each.since, each.until) for each in periods]
        found = self._sql.execute(_USAGES_OF_PERIODS.format(columns=columns), (msgspec.json.encode(keys).decode(),))
        usages: list[list[PodUsageRow]] = [[] for _ in periods]
        for index, *row in found:
            usages[index].append(PodUsageRow(**dict(zip(PodUsageRow.__struct_fields__, row, strict=True))))
        return usages

    def reported_usages(self, query: HistoryQuery) -> list[PodUsageRow]:
        condition, values = usages_condition(query, "?")
        return self._usages(condition, *values)

    def trim_history(self, *, before: float, limit: int) -> int:
        # the oldest events have the lowest numbers: an index by time would slow down every call
        oldest = "SELECT number, at, unindexed FROM event ORDER BY number LIMIT ?2"
        pods = "SELECT network, address, cluster, uid FROM pod_usage WHERE until < ? LIMIT ?"
        trimmed = [
            self._sql.execute(f"DELETE FROM {table} WHERE {key} IN ({chosen})", (before, limit)).rowcount  # noqa: S608  our own names
            for table, key, chosen in (
                ("allocation_period", "number", "SELECT number FROM allocation_period WHERE until < ? LIMIT ?"),
                ("event", "number", f"SELECT number FROM ({oldest}) WHERE at < ?1 AND NOT unindexed"),  # noqa: S608  our own names
                ("pod_usage", "(network, address, cluster, uid)", pods),
            )
        ]
        self.dirty = self.dirty or any(trimmed)
        return sum(trimmed)

    def _usages(self, condition: str, *values: object) -> list[PodUsageRow]:
        found = self._sql.execute(f"SELECT {_USAGE_COLUMNS} FROM pod_usage WHERE {condition}", values)  # noqa: S608  our own names
        names = PodUsageRow.__struct_fields__
        return [PodUsageRow(**dict(zip(names, row, strict=True))) for row in found]

    def _periods(self, condition: str, *values: object) -> list[AllocationPeriodRow]:
        found = self._sql.execute(f"SELECT {_PERIOD_COLUMNS} FROM allocation_period WHERE {condition}", values)  # noqa: S608  our own names
        names = AllocationPeriodRow.__struct_fields__
        return [AllocationPeriodRow(**dict(zip(names, row, strict=True))) for row in found]

    def _fetch_one(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._sql.execute(statement, values).fetchone()
        return found

    def _execute(self, statement: str, *values: object) -> None:
        self.dirty = True
        self._sql.execute(statement, values)

"""Tokens and history in SQLite, and how statements are run."""

import sqlite3
from collections.abc import Iterable
from typing import Any

import msgspec

from podpool.ledger.storage.migrate import pods_asked_for, tenures_asked_for
from podpool.ledger.storage.rows import Event, EventRow, PodRow, Question, TenureRow, TokenRow, text_of

_token = msgspec.json.Decoder(TokenRow)
_events = msgspec.json.Decoder(tuple[Event, ...])

_TENURE = 'number, network, subnet, address, cluster, node, container, "grant", since, until'
_POD = "network, address, cluster, uid, namespace, name, since, until, node"


class SqliteHistory:
    """The rows that no grant depends on."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = connection
        self.dirty = False

    def token(self, id_: str) -> TokenRow | None:
        """Find a token."""
        found = self._one("SELECT row FROM token WHERE id = ?", id_)
        return _token.decode(found[0]) if found else None

    def tokens(self) -> list[TokenRow]:
        """List all tokens."""
        return [_token.decode(row) for (row,) in self._sql.execute("SELECT row FROM token ORDER BY id")]

    def put_token(self, row: TokenRow) -> None:
        """Write a token."""
        self._do("INSERT INTO token VALUES (?1, ?2) ON CONFLICT DO UPDATE SET row = ?2", row.id, text_of(row))

    def unread_events(self, limit: int) -> list[EventRow]:
        """List what was logged and not read yet."""
        found = self._sql.execute(
            "SELECT number, at, cluster, events FROM event WHERE unread ORDER BY number LIMIT ?", (limit,)
        )
        return [
            EventRow(number=number, at=at, cluster=cluster, events=_events.decode(events))
            for number, at, cluster, events in found
        ]

    def mark_read(self, numbers: Iterable[int]) -> None:
        """Note that events were read."""
        self.dirty = True
        self._sql.executemany("UPDATE event SET unread = 0 WHERE number = ?", [(number,) for number in numbers])

    def lasting_tenures(self, *, network: str, address: str) -> list[TenureRow]:
        """List who has an address."""
        return self._tenures("network = ? AND address = ? AND until IS NULL", network, address)

    def begin_tenure(self, row: TenureRow) -> None:
        """Write a new tenure."""
        values = msgspec.structs.astuple(row)[1:]
        self._do(f"INSERT INTO tenure ({_TENURE}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)  # noqa: S608  ours

    def end_tenures(self, *, until: float, number: int | None = None, container: str | None = None) -> None:
        """Write the end of one tenure, or of all that a container has."""
        if number is not None:
            self._do("UPDATE tenure SET until = ? WHERE number = ?", until, number)
        else:
            self._do("UPDATE tenure SET until = ? WHERE container = ? AND until IS NULL", until, container)

    def tenures(self, question: Question) -> list[TenureRow]:
        """List tenures of an address, or of a node's containers, that overlap a time."""
        condition, values = tenures_asked_for(question, "?")
        return self._tenures(condition, *values)

    def put_pod(self, row: PodRow) -> None:
        """Write what is known of a Pod and an address."""
        self._do(
            "UPDATE pod SET until = ?1"
            " WHERE network = ?2 AND address = ?3 AND cluster = ?4 AND uid <> ?5 AND until IS NULL AND since < ?1",
            row.since,
            row.network,
            row.address,
            row.cluster,
            row.uid,
        )
        self._do(
            f"INSERT INTO pod ({_POD}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"  # noqa: S608  ours
            " since = min(since, excluded.since), until = coalesce(max(until, excluded.until), until, excluded.until),"
            " node = max(node, excluded.node)",
            *msgspec.structs.astuple(row),
        )

    def pods(self, *, network: str, address: str, cluster: str, begin: float, end: float) -> list[PodRow]:
        """List the Pods of a cluster that had an address within a time."""
        return self._pods(
            "network = ? AND address = ? AND cluster = ? AND since <= ? AND (until IS NULL OR until > ?)"
            " ORDER BY since DESC, uid",
            *(network, address, cluster, end, begin),
        )

    def reported(self, question: Question) -> list[PodRow]:
        """List what Pods had within a time."""
        condition, values = pods_asked_for(question, "?")
        return self._pods(condition, *values)

    def trim_history(self, *, before: float, limit: int) -> int:
        """Forget what ended before a time."""
        # the oldest events have the lowest numbers: an index by time would cost every call something
        oldest = "SELECT number, at, unread FROM event ORDER BY number LIMIT ?2"
        pods = "SELECT network, address, cluster, uid FROM pod WHERE until < ? LIMIT ?"
        trimmed = [
            self._sql.execute(f"DELETE FROM {table} WHERE {key} IN ({chosen})", (before, limit)).rowcount  # noqa: S608  ours
            for table, key, chosen in (
                ("tenure", "number", "SELECT number FROM tenure WHERE until < ? LIMIT ?"),
                ("event", "number", f"SELECT number FROM ({oldest}) WHERE at < ?1 AND NOT unread"),  # noqa: S608  ours
                ("pod", "(network, address, cluster, uid)", pods),
            )
        ]
        self.dirty = self.dirty or any(trimmed)
        return sum(trimmed)

    def _pods(self, condition: str, *values: object) -> list[PodRow]:
        found = self._sql.execute(f"SELECT {_POD} FROM pod WHERE {condition}", values)  # noqa: S608  ours alone
        names = PodRow.__struct_fields__
        return [PodRow(**dict(zip(names, row, strict=True))) for row in found]

    def _tenures(self, condition: str, *values: object) -> list[TenureRow]:
        found = self._sql.execute(f"SELECT {_TENURE} FROM tenure WHERE {condition}", values)  # noqa: S608  ours alone
        names = TenureRow.__struct_fields__
        return [TenureRow(**dict(zip(names, row, strict=True))) for row in found]

    def _one(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._sql.execute(statement, values).fetchone()
        return found

    def _do(self, statement: str, *values: object) -> None:
        self.dirty = True
        self._sql.execute(statement, values)

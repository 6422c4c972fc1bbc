"""Backups: a file of JSON lines in one format for SQLite and PostgreSQL, so that each can restore the other's.

The first line is the header. Each table starts with a line that names its columns, followed by its rows. The last line
counts the rows, so that a truncated file is detected. A backup is consistent, and is taken while the ledger runs. A
restored database counts as rolled back: the ledger then recovers (`domain.recovery`).
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec

from podpool.ledger.errors import Invalid

KIND = "podpool ledger backup"

TABLES: Mapping[str, tuple[str, ...]] = {
    "shard": ("network", "revision", "epoch"),
    "ledger_time": ("one", "row"),
    "cluster": ("network", "id", "row"),
    "subnet": ("number", "network", "name", "due", "row"),
    "network_container": (
        *("number", "id", "cluster", "subnet", "node", "node_uid"),
        *("closed", "third_party", "pod_short_since", "buffer_short_since", "row"),
    ),
    "block": ("subnet", "number", "ready", "slots"),
    "event": ("number", "revision", "at", "cluster", "kind", "events", "unindexed", "network"),
    "membership": ("cluster", "network", "subnet"),
    "pending_inventory": ("network", "subnet", "cluster"),
    "ownership_conflict": ("subnet", "address", "holder", "claimant", "grant"),
    "token": ("id", "row"),
    "audit_log": ("number", "at", "token", "token_id", "action", "object", "result"),
    "allocation_period": (
        *("number", "network", "subnet", "address", "cluster"),
        *("node", "nc_id", "grant", "since", "until"),
    ),
    "pod_usage": ("network", "address", "cluster", "uid", "namespace", "name", "since", "until", "node"),
}
"""The tables of a backup with their columns; a table comes after those that it references."""

_BYTES_COLUMNS = {("block", "slots"), ("ownership_conflict", "grant")}

BackupRow: TypeAlias = tuple[str, tuple[str, ...], tuple[object, ...]]
"""A table, its columns in the backup, and the values of one row."""


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    kind: str = KIND
    schema: int
    revision: int


class _TableHeader(msgspec.Struct, frozen=True):
    table: str
    columns: tuple[str, ...]


class _Trailer(msgspec.Struct, frozen=True):
    rows: int


def quote_columns(columns: Iterable[str]) -> str:
    """Return a column list for a statement; quoted because `grant` is an SQL keyword."""
    return ", ".join(f'"{column}"' for column in columns)


def select_all(table: str) -> str:
    """Return the statement that reads a table in a fixed order."""
    columns = TABLES[table]
    return f"SELECT {quote_columns(columns)} FROM {table} ORDER BY {quote_columns(columns[:4])}"  # noqa: S608  our own names


class BackupWriter:
    """Writes a backup row by row: neither side holds a table in memory."""

    def __init__(self, file: BinaryIO, header: BackupHeader) -> None:
        self._file = file
        self._rows = 0
        _write_line(file, header)

    def begin_table(self, table: str) -> None:
        """Start a table; the rows that follow have its columns."""
        _write_line(self._file, _TableHeader(table, TABLES[table]))

    def write(self, row: Iterable[object]) -> None:
        """Write a row of the table that was begun last."""
        _write_line(self._file, list(row))
        self._rows += 1

    def finish(self) -> int:
        """Write the last line; returns the number of rows."""
        _write_line(self._file, _Trailer(self._rows))
        return self._rows


def write_backup(file: BinaryIO, header: BackupHeader, tables: Iterable[tuple[str, Iterable[Iterable[object]]]]) -> int:
    """Write a backup of tables and their rows; returns the number of rows."""
    writer = BackupWriter(file, header)
    for table, rows in tables:
        writer.begin_table(table)
        for row in rows:
            writer.write(row)
    return writer.finish()


def verify_backup(path: Path) -> BackupHeader:
    """Read a whole backup and return its header; raises `Invalid` if it is not complete."""
    with path.open("rb") as file:
        header = read_header(file)
        for _ in read_rows(file):
            pass
    return header


def read_header(file: BinaryIO) -> BackupHeader:
    """Read the first line; raises `Invalid`."""
    try:
        header = msgspec.json.decode(file.readline(), type=BackupHeader)
    except msgspec.DecodeError:
        header = None
    if header is None or header.kind != KIND:
        raise Invalid("the file is not a backup of a podpool ledger", field="file")
    return header


def read_rows(file: BinaryIO) -> Iterator[BackupRow]:
    """Yield the rows; raises `Invalid` if the file is truncated."""
    table, rows = "", 0
    columns: tuple[str, ...] = ()
    with contextlib.suppress(msgspec.DecodeError):  # an incomplete line
        for line in file:
            if line.startswith(b"["):
                values = msgspec.json.decode(line, type=list[object])
                yield table, columns, tuple(map(partial(_decode_value, table), columns, values))
                rows += 1
            elif line.startswith(b'{"table"'):
                header = msgspec.json.decode(line, type=_TableHeader)
                table, columns = header.table, header.columns
            elif msgspec.json.decode(line, type=_Trailer).rows == rows:
                return
    raise Invalid(f"the backup is truncated after {rows} rows", field="file")


def _write_line(file: BinaryIO, line: object) -> None:
    file.write(msgspec.json.encode(line) + b"\n")


def _decode_value(table: str, column: str, value: object) -> object:
    return msgspec.convert(value, bytes) if (table, column) in _BYTES_COLUMNS else value

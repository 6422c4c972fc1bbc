"""Copies of the books: a file of JSON lines, the same from SQLite and from PostgreSQL, so that each reads the other's.

The first line tells what it is, then each table is announced with its columns and followed by its rows; the last line
counts them, so that a torn file is not taken for a whole one. A copy shows one moment, and may be made while the ledger
runs. Books that were restored say so to their witness: the ledger then recovers (`recovery`).
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec

from podpool.ledger.errors import Invalid

KIND = "podpool ledger books"

TABLES: Mapping[str, tuple[str, ...]] = {
    "ledger": ("one", "revision", "epoch"),
    "cluster": ("id", "row"),
    "subnet": ("number", "network", "name", "due", "row"),
    "container": (
        *("number", "id", "cluster", "subnet", "node", "node_uid"),
        *("closed", "foreign_agent", "need_since", "wish_since", "row"),
    ),
    "block": ("subnet", "number", "ready", "slots"),
    "event": ("number", "revision", "at", "cluster", "kind", "events", "unread"),
    "member": ("cluster", "network", "subnet"),
    "awaited": ("network", "subnet", "cluster"),
    "alarm": ("subnet", "address", "holder", "claimant", "grant"),
    "token": ("id", "row"),
    "tenure": (
        *("number", "network", "subnet", "address", "cluster"),
        *("node", "container", "grant", "since", "until"),
    ),
    "pod": ("network", "address", "cluster", "uid", "namespace", "name", "since", "until", "node"),
}
"""What a copy has, in an order in which rows come after those that they refer to."""

_BYTES = {("block", "slots"), ("alarm", "grant")}

Line: TypeAlias = tuple[str, tuple[str, ...], tuple[object, ...]]
"""A table, the columns that the copy has of it, and one row."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    kind: str = KIND
    schema: int
    revision: int


class _Table(msgspec.Struct, frozen=True):
    table: str
    columns: tuple[str, ...]


class _End(msgspec.Struct, frozen=True):
    rows: int


def columns_text(columns: Iterable[str]) -> str:
    """Write columns into a statement; `grant` and `end` are words of SQL."""
    return ", ".join(f'"{column}"' for column in columns)


def select_all(table: str) -> str:
    """Write the statement that reads a table, in a fixed order."""
    columns = TABLES[table]
    return f"SELECT {columns_text(columns)} FROM {table} ORDER BY {columns_text(columns[:4])}"  # noqa: S608  ours alone


def write_copy(file: BinaryIO, head: Head, tables: Iterable[tuple[str, Iterable[tuple[object, ...]]]]) -> int:
    """Write a copy; tells how many rows it has."""
    rows = 0
    _put(file, head)
    for table, found in tables:
        _put(file, _Table(table, TABLES[table]))
        for row in found:
            _put(file, list(row))
            rows += 1
    _put(file, _End(rows))
    return rows


def check_copy(path: Path) -> Head:
    """Read a copy from end to end, and refuse it if it is not whole."""
    with path.open("rb") as file:
        head = read_head(file)
        for _ in read_rows(file):
            pass
    return head


def read_head(file: BinaryIO) -> Head:
    """Read the first line."""
    try:
        head = msgspec.json.decode(file.readline(), type=Head)
    except msgspec.DecodeError:
        head = None
    if head is None or head.kind != KIND:
        raise Invalid("the file is no copy of a ledger's books", field="file")
    return head


def read_rows(file: BinaryIO) -> Iterator[Line]:
    """Read the rows; raises when there are not as many as were written."""
    table, rows = "", 0
    columns: tuple[str, ...] = ()
    with contextlib.suppress(msgspec.DecodeError):  # half a line
        for line in file:
            if line.startswith(b"["):
                values = msgspec.json.decode(line, type=list[object])
                yield table, columns, tuple(map(partial(_value, table), columns, values))
                rows += 1
            elif line.startswith(b'{"table"'):
                announced = msgspec.json.decode(line, type=_Table)
                table, columns = announced.table, announced.columns
            elif msgspec.json.decode(line, type=_End).rows == rows:
                return
    raise Invalid(f"the copy is torn: it ends after {rows} rows", field="file")


def _put(file: BinaryIO, line: object) -> None:
    file.write(msgspec.json.encode(line) + b"\n")


def _value(table: str, column: str, value: object) -> object:
    return msgspec.convert(value, bytes) if (table, column) in _BYTES else value

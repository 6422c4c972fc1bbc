"""Backup and restore of a PostgreSQL database."""

import random
from collections.abc import Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, BinaryIO

from podpool.ledger.storage.backup import (
    TABLES,
    BackupHeader,
    quote_columns,
    read_header,
    read_rows,
    select_all,
    write_backup,
)
from podpool.ledger.storage.schema_migrations import check_version, migration_scripts, row_conversions

if TYPE_CHECKING:
    from asyncpg import Connection

_UNKNOWN_SYSTEM = 0
"""No server has this system identifier: the ledger detects that the database was restored."""
_BATCH = 1_000


async def back_up(connection: "Connection", file: BinaryIO) -> int:
    """Write a consistent backup; returns the number of rows."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        revision = await connection.fetchval("SELECT revision FROM ledger")
        header = BackupHeader(schema=len(migration_scripts("postgres")), revision=revision)
        tables = [(table, [tuple(row) for row in await connection.fetch(select_all(table))]) for table in TABLES]
        return write_backup(file, header, tables)


async def restore(connection: "Connection", file: BinaryIO, *, rng: random.Random) -> BackupHeader:
    """Replace the content of the database by a backup, atomically; running replicas detect it and recover."""
    header = read_header(file)
    check_version("backup", header.schema)
    async with connection.transaction():
        await connection.execute("SELECT commit_token FROM ledger FOR UPDATE")
        for table in reversed(list(TABLES)):
            await connection.execute(f"DELETE FROM {table}")  # noqa: S608  our own names
        await connection.execute("DELETE FROM commit_change")
        for (table, columns), batch in groupby(read_rows(file), key=lambda row: row[:2]):
            await _insert(connection, table, columns, (row for *_, row in batch), rng)
        for script in row_conversions("postgres", since=header.schema):
            await connection.execute(script)
        await connection.execute(
            "UPDATE ledger SET last_subnet = (SELECT coalesce(max(number), 0) FROM subnet),"
            " last_nc = (SELECT coalesce(max(number), 0) FROM network_container)"
        )
        for table in ("event", "allocation_period"):
            highest = f"(SELECT coalesce(max(number), 0) + 1 FROM {table})"  # noqa: S608  our own names
            await connection.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), {highest}, false)")
    return header


async def _insert(
    connection: "Connection",
    table: str,
    columns: tuple[str, ...],
    rows: Iterator[tuple[object, ...]],
    rng: random.Random,
) -> None:
    if table == "ledger":
        columns = (*columns, "commit_token", "commits", "last_subnet", "last_nc", "system_identifier", "timeline")
        rows = ((*row, rng.getrandbits(63), 0, 0, 0, _UNKNOWN_SYSTEM, 0) for row in rows)
    placeholders = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    statement = f"INSERT INTO {table} ({quote_columns(columns)}) VALUES ({placeholders})"  # noqa: S608  our own names
    while batch := list(islice(rows, _BATCH)):
        await connection.executemany(statement, batch)

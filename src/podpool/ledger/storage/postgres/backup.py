"""Backup and restore of a PostgreSQL database, in streams: history may have millions of rows.

Both use a connection without timeouts (`connection.open_maintenance_connection`).
"""

import random
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, BinaryIO

from podpool.ledger.storage.backup import (
    TABLES,
    BackupHeader,
    BackupWriter,
    read_header,
    read_rows,
    select_all,
)
from podpool.ledger.storage.schema_migrations import check_version, migration_scripts, row_conversions

if TYPE_CHECKING:
    from asyncpg import Connection

_UNKNOWN_SYSTEM = 0
"""No server has this system identifier: the ledger detects that the database was restored."""
_PREFETCH = 1_000
"""Rows that a backup reads at a time."""


async def back_up(connection: "Connection", file: BinaryIO) -> int:
    """Write a consistent backup; returns the number of rows."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        revision = await connection.fetchval("SELECT revision FROM ledger")
        header = BackupHeader(schema=len(migration_scripts("postgres")), revision=revision)
        writer = BackupWriter(file, header)
        for table in TABLES:
            writer.begin_table(table)
            async for row in connection.cursor(select_all(table), prefetch=_PREFETCH):
                writer.write(row)
        return writer.finish()


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
            await _copy(connection, table, columns, (row for *_, row in batch), rng)
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


async def _copy(
    connection: "Connection",
    table: str,
    columns: tuple[str, ...],
    rows: Iterator[tuple[object, ...]],
    rng: random.Random,
) -> None:
    if table == "ledger":
        columns = (*columns, "commit_token", "commits", "last_subnet", "last_nc", "system_identifier", "timeline")
        rows = ((*row, rng.getrandbits(63), 0, 0, 0, _UNKNOWN_SYSTEM, 0) for row in rows)
    await connection.copy_records_to_table(table, columns=columns, records=rows)

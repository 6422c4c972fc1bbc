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
from podpool.ledger.storage.postgres.connection import migrate
from podpool.ledger.storage.schema_migrations import check_version, migration_scripts, revision_table

if TYPE_CHECKING:
    from asyncpg import Connection

_UNKNOWN_SYSTEM = 0
"""No server has this system identifier: the ledger detects that the database was restored."""
_PREFETCH = 1_000
"""Rows that a backup reads at a time."""


async def back_up(connection: "Connection", file: BinaryIO) -> int:
    """Write a consistent backup; returns the number of rows."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        revision = await connection.fetchval("SELECT coalesce(sum(revision), 0)::bigint FROM shard")
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
        await connection.execute("LOCK TABLE shard IN ACCESS EXCLUSIVE MODE")
        if header.schema == len(migration_scripts("postgres")):
            for table in ("network_commit", *reversed(list(TABLES))):
                await connection.execute(f"DELETE FROM {table}")  # noqa: S608  our own names
        else:
            await _create_tables(connection, version=header.schema)
        for (table, columns), batch in groupby(read_rows(file), key=lambda row: row[:2]):
            await _copy(connection, table, columns, (row for *_, row in batch), rng)
        await migrate(connection)
        await connection.execute(
            "SELECT setval('subnet_number', (SELECT coalesce(max(number), 0) + 1 FROM subnet), false),"
            " setval('nc_range', (SELECT coalesce(max(number), 0) / 256 + 1 FROM network_container), false)"
        )
        for table in ("event", "allocation_period"):
            highest = f"(SELECT coalesce(max(number), 0) + 1 FROM {table})"  # noqa: S608  our own names
            await connection.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), {highest}, false)")
    return header


async def _create_tables(connection: "Connection", *, version: int) -> None:
    """Replace all tables by empty ones of an earlier version, whose rows are migrated afterwards."""
    for table in ("network_commit", *reversed(list(TABLES)), "schema_version"):
        await connection.execute(f"DROP TABLE {table}")
    for sequence in ("subnet_number", "nc_range"):
        await connection.execute(f"DROP SEQUENCE {sequence}")
    await migrate(connection, upto=version)
    await connection.execute(f"DELETE FROM {revision_table(version)}")  # noqa: S608  our own names


async def _copy(
    connection: "Connection",
    table: str,
    columns: tuple[str, ...],
    rows: Iterator[tuple[object, ...]],
    rng: random.Random,
) -> None:
    if table in ("shard", "ledger"):  # the latter until version 6
        numbers = ("last_nc", "reserved_nc") if table == "shard" else ("last_nc", "last_subnet")
        columns = (*columns, "commit_token", "commits", *numbers, "system_identifier", "timeline")
        rows = ((*row, rng.getrandbits(63), 0, 0, 0, _UNKNOWN_SYSTEM, 0) for row in rows)
    await connection.copy_records_to_table(table, columns=columns, records=rows)

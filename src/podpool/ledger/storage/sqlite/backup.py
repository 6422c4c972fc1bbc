"""Backup and restore of a SQLite database."""

import os
from pathlib import Path
from typing import BinaryIO

from podpool.ledger.errors import NotFound
from podpool.ledger.storage.backup import (
    TABLES,
    BackupHeader,
    quote_columns,
    read_header,
    read_rows,
    select_all,
    write_backup,
)
from podpool.ledger.storage.rollback_detector import FileRollbackDetector
from podpool.ledger.storage.schema_migrations import check_version, migration_scripts
from podpool.ledger.storage.sqlite.repository import connect, create, migrate


def back_up(path: Path, file: BinaryIO) -> int:
    """Write a consistent backup; returns the number of rows."""
    if not path.exists():
        raise NotFound(f"there is no ledger database at {path}", field="database")
    connection = connect(str(path))
    try:
        connection.execute("BEGIN")
        (revision,) = connection.execute("SELECT coalesce(sum(revision), 0) FROM shard").fetchone()
        tables = ((table, connection.execute(select_all(table))) for table in TABLES)
        return write_backup(file, BackupHeader(schema=len(migration_scripts("sqlite")), revision=revision), tables)
    finally:
        connection.close()


def restore(path: Path, file: BinaryIO) -> BackupHeader:
    """Create or atomically replace the database from a backup. No ledger may use it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    detector = FileRollbackDetector(path)  # raises while a ledger uses the database
    try:
        header = read_header(file)
        check_version("backup", header.schema)
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        _fill(new, file, schema=header.schema)
        detector.mark_restored(header.revision)
        for leftover in ("-wal", "-shm"):
            path.with_name(f"{path.name}{leftover}").unlink(missing_ok=True)
        new.rename(path)
    finally:
        detector.close()
    return header


def _fill(path: Path, file: BinaryIO, *, schema: int) -> None:
    connection = create(str(path), version=schema)
    try:
        connection.execute("BEGIN")
        for table, columns, row in read_rows(file):
            placeholders = ", ".join("?" * len(columns))
            connection.execute(f"INSERT INTO {table} ({quote_columns(columns)}) VALUES ({placeholders})", row)  # noqa: S608  our own names
        connection.execute("COMMIT")
        migrate(connection)
        connection.execute("PRAGMA journal_mode=DELETE").close()
    finally:
        connection.close()
    with path.open("rb") as database:
        os.fsync(database.fileno())

"""Copying the books out of a SQLite file, and making a file from a copy."""

import os
from pathlib import Path
from typing import BinaryIO

from podpool.ledger.errors import NotFound
from podpool.ledger.storage.backup import TABLES, Head, columns_text, read_head, read_rows, select_all, write_copy
from podpool.ledger.storage.migrate import scripts
from podpool.ledger.storage.rollback_detector import FileWitness
from podpool.ledger.storage.sqlite.repository import connect


def back_up(path: Path, file: BinaryIO) -> int:
    """Copy the books as they are at one moment; tells how many rows there are."""
    if not path.exists():
        raise NotFound(f"there is no ledger at {path}", field="database")
    connection = connect(str(path))
    try:
        connection.execute("BEGIN")
        (revision,) = connection.execute("SELECT revision FROM ledger").fetchone()
        tables = ((table, connection.execute(select_all(table))) for table in TABLES)
        return write_copy(file, Head(schema=len(scripts("sqlite")), revision=revision), tables)
    finally:
        connection.close()


def restore(path: Path, file: BinaryIO) -> Head:
    """Make the file from a copy; one that was there is exchanged in one step. No ledger may run on it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    witness = FileWitness(path)  # refuses while a ledger has it
    try:
        head = read_head(file)
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        _fill(new, file)
        witness.doubt(head.revision)
        for leftover in ("-wal", "-shm"):
            path.with_name(f"{path.name}{leftover}").unlink(missing_ok=True)
        new.rename(path)
    finally:
        witness.close()
    return head


def _fill(path: Path, file: BinaryIO) -> None:
    connection = connect(str(path))
    try:
        connection.execute("BEGIN")
        connection.execute("DELETE FROM ledger")
        for table, columns, row in read_rows(file):
            places = ", ".join("?" * len(columns))
            connection.execute(f"INSERT INTO {table} ({columns_text(columns)}) VALUES ({places})", row)  # noqa: S608  ours
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=DELETE").close()
    finally:
        connection.close()
    with path.open("rb") as made:
        os.fsync(made.fileno())

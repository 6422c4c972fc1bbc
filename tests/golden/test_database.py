"""The ledger's storage formats: tables, rows as JSON, blocks, files of the rollback detector, and backups."""

import io
import re
from importlib import resources
from pathlib import Path

import msgspec

from podpool.ledger.domain.address_block import Block
from podpool.ledger.domain.rows import (
    AllocationEvent,
    AllocationPeriodRow,
    AuditRow,
    ClusterRow,
    LedgerTimeRow,
    NcRow,
    PodUsageRow,
    SubnetRow,
    TokenRow,
    encode_row,
)
from podpool.ledger.storage import schema_migrations as schema
from podpool.ledger.storage.backup import TABLES, BackupHeader, read_header, read_rows, write_backup
from podpool.ledger.storage.postgres.commit import ChangedKeys
from podpool.ledger.storage.postgres.row_cache import ShardRow
from podpool.ledger.storage.rollback_detector import FileRollbackDetector
from podpool.ledger.storage.sqlite.repository import connect
from tests.golden.files import DATA, matches_json, matches_lines, matches_text
from tests.golden.samples import sample

JSON_COLUMNS = {
    "cluster.row": ClusterRow,
    "subnet.row": SubnetRow,
    "network_container.row": NcRow,
    "ledger_time.row": LedgerTimeRow,
    "token.row": TokenRow,
    "event.events": tuple[AllocationEvent, ...],
    "network_commit.changed_keys": ChangedKeys,
}
COLUMNS = {
    "audit_log": AuditRow,
    "pod_usage": PodUsageRow,
    "allocation_period": AllocationPeriodRow,
    "shard": ShardRow,
}
"""Tables whose columns are read by the names, or in the order, of a struct's fields; `shard` is that of PostgreSQL."""


def statement(sql: str) -> str:
    """Return SQL without comments and empty lines."""
    lines = (re.sub(r"\s*--.*", "", line) for line in sql.splitlines())
    return "\n".join(filter(None, lines))


def test_tables_of_sqlite() -> None:
    connection = connect(":memory:")
    try:
        statements_found = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"
        ).fetchall()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    finally:
        connection.close()
    statements = "".join(f"{statement(sql)};\n" for (sql,) in statements_found)
    matches_text("database/sqlite.sql", f"{statements}PRAGMA user_version={version};\n")


def test_migrations_are_never_changed() -> None:
    """They may have been applied to a database: a change of the tables is a new script."""
    for dialect in ("sqlite", "postgres"):
        folder = resources.files(schema.__package__ or "").joinpath("migrations", dialect)
        scripts = sorted((each.name, each.read_text()) for each in folder.iterdir())
        assert [text for _, text in scripts] == schema.migration_scripts(dialect)
        matches_text(
            f"database/migrations-{dialect}.sql", "".join(f"-- {name}\n{statement(text)}\n" for name, text in scripts)
        )


def test_keys_of_json_rows() -> None:
    rows = {column: msgspec.json.decode(encode_row(sample(row))) for column, row in JSON_COLUMNS.items()}
    matches_json("database/rows.json", rows)


def test_json_rows_are_decoded() -> None:
    golden = msgspec.json.decode((DATA / "database/rows.json").read_bytes())
    for column, row in JSON_COLUMNS.items():
        assert sample(row) == msgspec.json.decode(msgspec.json.encode(golden[column]), type=row), column


def test_fields_that_are_columns() -> None:
    matches_json("database/columns.json", {table: row.__struct_fields__ for table, row in COLUMNS.items()})


def test_block() -> None:
    """Owner, free-since stamp and grant of each of 64 slots."""
    block = Block([*range(62), 0, (1 << 32) - 1], list(range(-2, 62)), [bytes([each] * 16) for each in range(64)])
    packed = block.encode()
    matches_lines("database/block.hex", [packed[at : at + 32].hex(" ", 4) for at in range(0, len(packed), 32)])
    golden = bytes.fromhex((DATA / "database/block.hex").read_text())
    assert golden == Block.decode(golden).encode()


def test_files_of_the_rollback_detector(tmp_path: Path) -> None:
    detector = FileRollbackDetector(tmp_path / "ledger.db")
    try:
        detector.record_intent(revision=1, committed=0, members=[("cluster", "network", "subnet")])
        detector.record_commit(1)
        detector.record_intent(revision=2, committed=1, members=[])
    finally:
        detector.close()
    records = (tmp_path / "ledger.db.revision").read_bytes()
    matches_lines("database/revision.hex", [records[at : at + 20].hex(" ", 4) for at in range(0, len(records), 512)])
    matches_text("database/members.json", (tmp_path / "ledger.db.members").read_text() + "\n")


def test_backup() -> None:
    """One row of each table, whose values are the names of its columns."""
    backup = io.BytesIO()
    binary = {"slots", "grant"}
    rows = {
        table: tuple(
            each.encode() if each in binary and table in ("block", "ownership_conflict") else each for each in columns
        )
        for table, columns in TABLES.items()
    }
    write_backup(backup, BackupHeader(schema=3, revision=7), ((table, [row]) for table, row in rows.items()))
    matches_text("database/backup.jsonl", backup.getvalue().decode())
    golden = io.BytesIO((DATA / "database/backup.jsonl").read_bytes())
    assert BackupHeader(schema=3, revision=7) == read_header(golden)
    assert [(table, TABLES[table], row) for table, row in rows.items()] == list(read_rows(golden))

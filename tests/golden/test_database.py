"""What the ledger keeps: tables, rows as JSON, blocks, the witness' files, and copies of the books."""

import io
import re
from importlib import resources
from pathlib import Path

import msgspec

from podpool.ledger.storage import migrate as schema
from podpool.ledger.storage.backup import TABLES, Head, read_head, read_rows, write_copy
from podpool.ledger.storage.block import Block
from podpool.ledger.storage.postgres.commit import Touched
from podpool.ledger.storage.postgres.row_cache import Counters
from podpool.ledger.storage.rollback_detector import FileWitness
from podpool.ledger.storage.rows import ClusterRow, ContainerRow, Event, PodRow, SubnetRow, TenureRow, TokenRow, text_of
from podpool.ledger.storage.sqlite.repository import connect
from tests.golden.files import DATA, matches_json, matches_lines, matches_text
from tests.golden.samples import sample

JSON_COLUMNS = {
    "cluster.row": ClusterRow,
    "subnet.row": SubnetRow,
    "container.row": ContainerRow,
    "token.row": TokenRow,
    "event.events": tuple[Event, ...],
    "change.touched": Touched,
}
COLUMNS = {"pod": PodRow, "tenure": TenureRow, "ledger": Counters}
"""Tables whose columns are read by the names, or in the order, of a struct's fields; `ledger` is that of PostgreSQL."""


def statement(sql: str) -> str:
    """Leave out comments and empty lines."""
    lines = (re.sub(r"\s*--.*", "", line) for line in sql.splitlines())
    return "\n".join(filter(None, lines))


def test_tables_of_sqlite() -> None:
    connection = connect(":memory:")
    try:
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name").fetchall()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    finally:
        connection.close()
    statements = "".join(f"{statement(sql)};\n" for (sql,) in made)
    matches_text("database/sqlite.sql", f"{statements}PRAGMA user_version={version};\n")


def test_migrations_are_never_changed() -> None:
    """A database has seen them already: a change of the tables is a new script."""
    for dialect in ("sqlite", "postgres"):
        folder = resources.files(schema.__package__ or "").joinpath("migrations", dialect)
        scripts = sorted((each.name, each.read_text()) for each in folder.iterdir())
        assert [text for _, text in scripts] == schema.scripts(dialect)
        matches_text(
            f"database/migrations-{dialect}.sql", "".join(f"-- {name}\n{statement(text)}\n" for name, text in scripts)
        )


def test_rows_have_their_keys() -> None:
    rows = {column: msgspec.json.decode(text_of(sample(row))) for column, row in JSON_COLUMNS.items()}
    matches_json("database/rows.json", rows)


def test_rows_are_read() -> None:
    golden = msgspec.json.decode((DATA / "database/rows.json").read_bytes())
    for column, row in JSON_COLUMNS.items():
        assert sample(row) == msgspec.json.decode(msgspec.json.encode(golden[column]), type=row), column


def test_fields_that_are_columns() -> None:
    matches_json("database/columns.json", {table: row.__struct_fields__ for table, row in COLUMNS.items()})


def test_a_block() -> None:
    """Who has each of 64 slots, since when it is free, and under which grant."""
    block = Block([*range(62), 0, (1 << 32) - 1], list(range(-2, 62)), [bytes([each] * 16) for each in range(64)])
    packed = block.encode()
    matches_lines("database/block.hex", [packed[at : at + 32].hex(" ", 4) for at in range(0, len(packed), 32)])
    golden = bytes.fromhex((DATA / "database/block.hex").read_text())
    assert golden == Block.decode(golden).encode()


def test_the_files_of_a_witness(tmp_path: Path) -> None:
    witness = FileWitness(tmp_path / "ledger.db")
    try:
        witness.promise(revision=1, kept=0, members=[("cluster", "network", "subnet")])
        witness.keep(1)
        witness.promise(revision=2, kept=1, members=[])
    finally:
        witness.close()
    promises = (tmp_path / "ledger.db.witness").read_bytes()
    matches_lines("database/witness.hex", [promises[at : at + 20].hex(" ", 4) for at in range(0, len(promises), 512)])
    matches_text("database/members.json", (tmp_path / "ledger.db.members").read_text() + "\n")


def test_a_copy_of_the_books() -> None:
    """One row of each table, of which the values are the names of the columns."""
    copy = io.BytesIO()
    binary = {"slots", "grant"}
    rows = {
        table: tuple(each.encode() if each in binary and table in ("block", "alarm") else each for each in columns)
        for table, columns in TABLES.items()
    }
    write_copy(copy, Head(schema=3, revision=7), ((table, [row]) for table, row in rows.items()))
    matches_text("database/copy.jsonl", copy.getvalue().decode())
    golden = io.BytesIO((DATA / "database/copy.jsonl").read_bytes())
    assert Head(schema=3, revision=7) == read_head(golden)
    assert [(table, TABLES[table], row) for table, row in rows.items()] == list(read_rows(golden))

"""Migrations from every earlier version: the schema is that of a new database, and no row is lost."""

import asyncio
import io
import json
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import asyncpg
import msgspec
import pytest

from parts.postgres import Postgres
from podpool.core.cooldown_levels import CooldownLevels
from podpool.ledger.admin_messages import PodReport, PodUsage
from podpool.ledger.domain.rows import SubnetRow
from podpool.ledger.errors import Invalid
from podpool.ledger.storage.backup import (
    TABLES,
    BackupHeader,
    BackupRow,
    quote_columns,
    read_header,
    read_rows,
    select_all,
    write_backup,
)
from podpool.ledger.storage.fsck import check
from podpool.ledger.storage.postgres.backup import back_up, restore
from podpool.ledger.storage.postgres.connection import migrate as migrate_postgres
from podpool.ledger.storage.schema_migrations import migration_scripts, revision_table
from podpool.ledger.storage.sqlite.backup import back_up as back_up_sqlite
from podpool.ledger.storage.sqlite.backup import restore as restore_sqlite
from podpool.ledger.storage.sqlite.repository import connect as connect_sqlite
from podpool.ledger.storage.sqlite.repository import migrate as migrate_sqlite
from tests.ledger.harness import Leader, LedgerHarness, ids, item, run

SHARDS = 7
VERSIONS = range(1, len(migration_scripts("sqlite")) + 1)
IDENTITIES = ("event", "allocation_period")


@pytest.fixture(scope="module")
def rows() -> list[BackupRow]:
    """The rows of a ledger that was used."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", gateway="10.0.0.1")
    harness.subnet("fd00::/64", name="six")
    leader = Leader(harness)
    states = [leader.node(f"n{number}", wanted=30) for number in range(3)]
    leader.reconcile_one(item("n0", states[0], wanted=5, released=ids(states[0])[:20]))
    leader.reconcile_one(item("n1", states[1], node_gone=True))
    pod = PodUsage(network="vnet", address="10.0.0.9", namespace="d", name="p", uid="u", since="2026-11-16T02:30:00Z")
    run(harness.client.report_pods(PodReport(cluster="c1", pods=(pod,))))
    run(harness.client.history(node="n0"))  # indexes events into periods
    connection = sqlite3.connect(":memory:")
    connection.deserialize(harness.store.image())
    file = io.BytesIO()
    write_backup(
        file, BackupHeader(schema=1, revision=1), [(table, connection.execute(select_all(table))) for table in TABLES]
    )
    connection.close()
    file.seek(0)
    read_header(file)
    return list(read_rows(file))


@pytest.fixture(scope="module")
def single_cooldown_rows(rows: list[BackupRow]) -> list[BackupRow]:
    """The same in the version with a single cooldown, where subnets did not count their NCs."""
    cooldowns = {"pods": {"cooldown": 60.0, "cooldown_exhausted": 10.0}, "six": {}}

    def former(table: str, columns: tuple[str, ...], row: tuple[object, ...]) -> BackupRow:
        if table != "subnet":
            return table, columns, row
        subnet = json.loads(str(row[-1]))
        del subnet["network_containers"]
        subnet["spec"] |= cooldowns[subnet["spec"]["name"]]
        return table, columns, (*row[:-1], json.dumps(subnet))

    return [former(*each) for each in before_shards(rows) if each[0] != "ledger_time"]


def cooldowns_of(rows: list[BackupRow]) -> dict[str, CooldownLevels]:
    subnets = [msgspec.json.decode(str(row[-1]), type=SubnetRow) for table, _, row in rows if table == "subnet"]
    return {subnet.spec.name: subnet.spec.cooldown_levels for subnet in subnets}


CONVERTED = {"pods": CooldownLevels(130.0, 60.0, 10.0), "six": CooldownLevels(130.0, 30.0, 5.0)}


def write_former_backup(path: Path, rows: list[BackupRow], *, schema: int = 3) -> None:
    with path.open("wb") as file:
        lines: list[object] = [BackupHeader(schema=schema, revision=9)]
        for (table, columns), group in groupby(rows, key=itemgetter(0, 1)):
            lines += [{"table": table, "columns": columns}, *(row for *_, row in group)]
        file.writelines(msgspec.json.encode(line) + b"\n" for line in (*lines, {"rows": len(rows)}))


def read_backup(file: io.BytesIO) -> list[BackupRow]:
    file.seek(0)
    read_header(file)
    return list(read_rows(file))


def test_both_databases_have_the_same_versions() -> None:
    assert len(migration_scripts("sqlite")) == len(migration_scripts("postgres"))


class TestSqlite:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_migration_from_every_version(self, rows: list[BackupRow], version: int, tmp_path: Path) -> None:
        connection = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        migrate_sqlite(connection, upto=version)
        connection.execute(f"DELETE FROM {revision_table(version)}")  # noqa: S608  our tables
        old_rows = list(rows_of_version(rows, lambda table: sqlite_columns(connection, table), version=version))
        for table, columns, row in old_rows:
            connection.execute(insert(table, columns, "?" * len(columns)), row)
        migrate_sqlite(connection)
        found = [
            (table, TABLES[table], tuple(row)) for table in TABLES for row in connection.execute(select_all(table))
        ]
        assert [] == check(found).faults
        assert unchanged(found, old_rows, version=version)
        new = new_sqlite()
        assert sqlite_schema(connection) == sqlite_schema(new)
        new.close()
        connection.close()

    def test_cooldown_becomes_the_filling_level(self, single_cooldown_rows: list[BackupRow], tmp_path: Path) -> None:
        connection = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        migrate_sqlite(connection, upto=3)
        connection.execute("DELETE FROM ledger")
        for table, columns, row in single_cooldown_rows:
            connection.execute(insert(table, columns, "?" * len(columns)), row)
        migrate_sqlite(connection)
        found = [
            (table, TABLES[table], tuple(row)) for table in TABLES for row in connection.execute(select_all(table))
        ]
        connection.close()
        assert [] == check(found).faults
        assert CONVERTED == cooldowns_of(found)

    def test_backup_of_an_earlier_version_is_converted(
        self, single_cooldown_rows: list[BackupRow], tmp_path: Path
    ) -> None:
        write_former_backup(tmp_path / "backup", single_cooldown_rows)
        restored = io.BytesIO()
        with (tmp_path / "backup").open("rb") as file:
            restore_sqlite(tmp_path / "ledger.db", file)
        back_up_sqlite(tmp_path / "ledger.db", restored)
        found = read_backup(restored)
        assert [] == check(found).faults
        assert CONVERTED == cooldowns_of(found)

    def test_later_versions_are_refused_and_not_changed(self, rows: list[BackupRow], tmp_path: Path) -> None:
        later, database = len(VERSIONS) + 1, tmp_path / "later.db"
        connection = sqlite3.connect(database)
        connection.execute(f"PRAGMA user_version={later}")
        connection.close()
        before = database.read_bytes()
        with pytest.raises(Invalid, match=f"the database has version {later} .* knows versions up to {len(VERSIONS)}"):
            connect_sqlite(str(database))
        assert (before, [database]) == (database.read_bytes(), list(tmp_path.iterdir()))
        write_former_backup(tmp_path / "backup", rows, schema=later)
        with (tmp_path / "backup").open("rb") as file, pytest.raises(Invalid, match=f"the backup has version {later}"):
            restore_sqlite(tmp_path / "ledger.db", file)

    def test_tables_of_other_names_are_refused_and_not_changed(self, tmp_path: Path) -> None:
        """Of development versions, whose numbers mean other tables."""
        database = tmp_path / "former.db"
        connection = sqlite3.connect(database)
        connection.executescript("CREATE TABLE container (number INTEGER PRIMARY KEY); PRAGMA user_version=3")
        connection.close()
        before = database.read_bytes()
        with pytest.raises(Invalid, match="version 3 of the tables, but no table network_container"):
            connect_sqlite(str(database))
        assert before == database.read_bytes()

    def test_backup_has_every_table_and_column(self) -> None:
        connection = new_sqlite()
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        assert set(TABLES) == {name for (name,) in found}
        assert all(set(TABLES[table]) == sqlite_columns(connection, table) for table in TABLES)
        connection.close()


@pytest.mark.real
@pytest.mark.xdist_group("postgres")
class TestPostgres:
    @pytest.fixture
    def url(self, postgres: Postgres) -> Iterator[str]:
        for name in ("migrations", "fresh"):
            postgres.psql(f"CREATE DATABASE {name}")
        yield postgres.url("migrations")
        for name in ("migrations", "fresh"):
            postgres.psql(f"DROP DATABASE {name}")

    @pytest.mark.parametrize("version", VERSIONS)
    def test_migration_from_every_version(self, rows: list[BackupRow], version: int, url: str) -> None:
        async def main() -> None:
            connection = await asyncpg.connect(url)
            await migrate_postgres(connection, upto=version)
            await connection.execute(f"DELETE FROM {revision_table(version)}")  # noqa: S608  our tables
            existing = await postgres_columns(connection)
            old_rows = list(rows_of_version(rows, lambda table: existing.get(table, set()), version=version))
            commits = {"commit_token": 1, "commits": 0}
            only_postgres = {
                "ledger": {**commits, "last_subnet": 9, "last_nc": 9},
                "shard": {**commits, "last_nc": 0, "reserved_nc": 0},
            }
            for table, columns, row in old_rows:
                more = only_postgres.get(table, {})
                placeholders = [f"${number}" for number in range(1, len(columns) + len(more) + 1)]
                await connection.execute(insert(table, (*columns, *more), placeholders), *row, *more.values())
            await migrate_postgres(connection)
            await migrate_postgres(connection)  # a repetition changes nothing
            file = io.BytesIO()
            await back_up(connection, file)
            file.seek(0)
            read_header(file)
            found = list(read_rows(file))
            assert [] == check(found).faults
            assert unchanged(found, old_rows, version=version)
            fresh = await asyncpg.connect(url, database="fresh")
            await migrate_postgres(fresh)
            assert await postgres_schema(fresh) == await postgres_schema(connection)
            await fresh.close()
            await connection.close()

        asyncio.run(main())

    def test_cooldown_becomes_the_filling_level(self, single_cooldown_rows: list[BackupRow], url: str) -> None:
        async def main() -> list[BackupRow]:
            connection = await asyncpg.connect(url)
            await migrate_postgres(connection, upto=3)
            for table, columns, row in single_cooldown_rows:
                if table != "ledger":
                    placeholders = [f"${number}" for number in range(1, len(columns) + 1)]
                    await connection.execute(insert(table, columns, placeholders), *row)
            await migrate_postgres(connection)
            file = io.BytesIO()
            await back_up(connection, file)
            await connection.close()
            return read_backup(file)

        found = asyncio.run(main())
        assert [] == check(found).faults
        assert CONVERTED == cooldowns_of(found)

    def test_backup_of_an_earlier_version_is_converted(
        self, single_cooldown_rows: list[BackupRow], url: str, tmp_path: Path
    ) -> None:
        async def main() -> list[BackupRow]:
            connection = await asyncpg.connect(url)
            await migrate_postgres(connection)
            with (tmp_path / "backup").open("rb") as file:
                await restore(connection, file, rng=random.Random(1))  # noqa: S311  reproducible
            restored = io.BytesIO()
            await back_up(connection, restored)
            await connection.close()
            return read_backup(restored)

        write_former_backup(tmp_path / "backup", single_cooldown_rows)
        found = asyncio.run(main())
        assert [] == check(found).faults
        assert CONVERTED == cooldowns_of(found)

    def test_replica_of_a_former_version_cannot_commit(self, url: str) -> None:
        """It would drop fields of the rows: the table that each of its commits writes has another name."""

        async def main() -> None:
            connection = await asyncpg.connect(url)
            await migrate_postgres(connection, upto=3)
            commit = await connection.prepare("INSERT INTO change VALUES ($1, 1, '{}')")
            await commit.fetch(1)
            await migrate_postgres(connection)
            with pytest.raises(asyncpg.PostgresError):
                await commit.fetch(2)
            await connection.close()

        asyncio.run(main())

    def test_later_versions_are_refused(self, url: str) -> None:
        async def main() -> None:
            connection = await asyncpg.connect(url)
            await migrate_postgres(connection)
            await connection.execute("INSERT INTO schema_version VALUES ($1)", len(VERSIONS) + 1)
            with pytest.raises(Invalid, match="the database has version"):
                await migrate_postgres(connection)
            await connection.close()

        asyncio.run(main())

    def test_tables_of_other_names_are_refused(self, url: str) -> None:
        async def main() -> None:
            connection = await asyncpg.connect(url)
            await connection.execute("CREATE TABLE container (number integer)")
            await connection.execute("CREATE TABLE schema_version (version integer NOT NULL)")
            await connection.execute("INSERT INTO schema_version VALUES (3)")
            with pytest.raises(Invalid, match="version 3 of the tables, but no table network_container"):
                await migrate_postgres(connection)
            await connection.close()

        asyncio.run(main())

    def test_concurrent_replicas_migrate_once(self, url: str) -> None:
        async def start() -> None:
            connection = await asyncpg.connect(url)
            await migrate_postgres(connection)
            await connection.close()

        async def main() -> None:
            await asyncio.gather(*(start() for _ in range(4)))
            connection = await asyncpg.connect(url)
            assert [*VERSIONS] == [row[0] for row in await connection.fetch("SELECT version FROM schema_version")]
            await connection.close()

        asyncio.run(main())


def insert(table: str, columns: Sequence[str], placeholders: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({quote_columns(columns)}) VALUES ({', '.join(placeholders)})"  # noqa: S608  our own names


def before_shards(rows: Iterable[BackupRow]) -> Iterator[BackupRow]:
    """Return rows of a ledger with one network as they were before each network became a shard."""
    for table, columns, row in rows:
        values = dict(zip(columns, row, strict=True))
        if table == "shard":
            if values["network"]:
                yield "ledger", ("one", "revision", "epoch"), (1, values["revision"], values["epoch"])
        elif table == "cluster":
            cluster = json.loads(str(values["row"]))
            cluster.pop("network", None)
            yield "cluster", ("id", "row"), (values["id"], json.dumps(cluster, sort_keys=True))
        elif table == "event":
            yield table, columns[:-1], row[:-1]
        else:
            yield table, columns, row


def rows_of_version(
    rows: Iterable[BackupRow], columns_of: Callable[[str], set[str]], *, version: int
) -> Iterator[BackupRow]:
    """Return the rows without the tables and columns that an older version lacks."""
    for table, columns, row in rows if version >= SHARDS else before_shards(rows):
        existing = columns_of(table)
        pairs = [(column, value) for column, value in zip(columns, row, strict=True) if column in existing]
        if pairs:
            yield table, tuple(column for column, _ in pairs), tuple(value for _, value in pairs)


def unchanged(found: list[BackupRow], old_rows: list[BackupRow], *, version: int) -> bool:
    """Return whether the rows of the older version are unchanged."""
    found = found if version >= SHARDS else list(before_shards(found))
    old_columns = {table: columns for table, columns, _ in old_rows}
    found = [
        (table, old_columns[table], select(old_columns[table], columns, row))
        for table, columns, row in found
        if table in old_columns
    ]
    return found == old_rows


def select(chosen: Sequence[str], columns: Sequence[str], row: Sequence[object]) -> tuple[object, ...]:
    return tuple(value for column, value in zip(columns, row, strict=True) if column in chosen)


def new_sqlite() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate_sqlite(connection)
    return connection


def sqlite_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def sqlite_schema(connection: sqlite3.Connection) -> list[tuple[str]]:
    return connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()


async def postgres_columns(connection: "asyncpg.Connection") -> dict[str, set[str]]:
    existing: dict[str, set[str]] = {}
    for table, column in await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    ):
        existing.setdefault(table, set()).add(column)
    return existing


async def postgres_schema(connection: "asyncpg.Connection") -> list[object]:
    columns = await connection.fetch(
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'public' ORDER BY 1, 2"
    )
    indexes = await connection.fetch("SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1")
    return [*map(tuple, columns), *map(tuple, indexes)]

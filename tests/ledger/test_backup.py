"""Backup, restore and fsck: complete or rejected, the same from either database, and a restore is detected."""

import asyncio
import io
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import msgspec
import pytest

from parts.postgres import Postgres
from podpool.ledger.domain.address_block import PRIMARY, Block
from podpool.ledger.domain.rows import NcRow, SubnetRow, encode_row
from podpool.ledger.errors import Conflict, Invalid
from podpool.ledger.messages import NetworkContainerState, OpenTermRequest, ReconcileRequest, SubnetSpec
from podpool.ledger.storage.backup import BackupRow, read_header, read_rows, verify_backup
from podpool.ledger.storage.database import parse_database
from podpool.ledger.storage.fsck import check
from podpool.ledger.storage.sqlite.store import SqliteStore
from tests.ledger.harness import item
from tests.ledger.load import Cluster, check_consistent, ledger_on, make_subnets, recover

RNG = random.SystemRandom()


def fill(path: Path) -> NetworkContainerState:
    """Create a database with two network containers; returns the state of one."""

    async def main() -> NetworkContainerState:
        store = SqliteStore(path)
        ledger = ledger_on(store)
        await ledger.start()
        await ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
        term = (await ledger.open_term(OpenTermRequest(cluster="c1"))).term
        items = (item("n1", wanted=70), item("n2", wanted=3))
        response = await ledger.reconcile(ReconcileRequest(cluster="c1", term=term, number=1, items=items))
        await store.close()
        state = response.results[0].state
        assert state is not None
        return state

    return asyncio.run(main())


def backup_of(url: str) -> bytes:
    file = io.BytesIO()
    parse_database(url).back_up(file)
    return file.getvalue()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    fill(tmp_path / "ledger.db")
    return f"sqlite://{tmp_path / 'ledger.db'}"


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    postgres.psql("CREATE DATABASE copies")
    yield postgres.url("copies")
    postgres.psql("DROP DATABASE copies")


class TestFiles:
    @pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
    def test_truncated_backup_is_rejected(self, sqlite_url: str, tmp_path: Path, share: float) -> None:
        whole = backup_of(sqlite_url)
        truncated = tmp_path / "truncated"
        truncated.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(Invalid, match="is truncated"):
            verify_backup(truncated)

    def test_other_file_is_rejected(self, tmp_path: Path) -> None:
        (tmp_path / "other").write_text("{}\n")
        with pytest.raises(Invalid, match="is not a backup"):
            verify_backup(tmp_path / "other")

    def test_restore_under_a_running_ledger_is_rejected(self, sqlite_url: str, tmp_path: Path) -> None:
        backup = backup_of(sqlite_url)

        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            with pytest.raises(Conflict, match="stop it first"):
                parse_database(sqlite_url).restore(io.BytesIO(backup), rng=RNG)
            await store.close()

        asyncio.run(main())

    def test_backup_while_the_ledger_runs(self, sqlite_url: str, tmp_path: Path) -> None:
        before = backup_of(sqlite_url)

        async def main() -> bytes:
            store = SqliteStore(tmp_path / "ledger.db")
            during = backup_of(sqlite_url)
            await store.close()
            return during

        assert before == asyncio.run(main())

    def test_restore_of_the_latest_backup_is_detected(self, sqlite_url: str, tmp_path: Path) -> None:
        """What was committed after the backup is unknown."""
        parse_database(sqlite_url).restore(io.BytesIO(backup_of(sqlite_url)), rng=RNG)

        async def main() -> list[str]:
            store = SqliteStore(tmp_path / "ledger.db")
            ledger = ledger_on(store)
            await ledger.start()
            pending_inventories = (await ledger.admin.recovery()).pending_inventories
            await store.close()
            return [each.cluster for each in pending_inventories]

        assert ["c1"] == asyncio.run(main())


@pytest.mark.real
@pytest.mark.xdist_group("postgres")
class TestBetweenDatabases:
    def test_round_trip_through_postgresql(self, sqlite_url: str, postgres_url: str) -> None:
        backup = backup_of(sqlite_url)
        parse_database(postgres_url).restore(io.BytesIO(backup), rng=RNG)
        assert backup == backup_of(postgres_url)
        parse_database(sqlite_url).restore(io.BytesIO(backup_of(postgres_url)), rng=RNG)
        assert backup == backup_of(sqlite_url)

    def test_running_replicas_detect_a_restore_and_recover(self, postgres_url: str) -> None:
        async def main() -> None:
            store = await parse_database(postgres_url).open(rng=RNG)
            ledger = ledger_on(store)
            await ledger.start()
            await make_subnets(ledger)
            cluster = Cluster("c1", [ledger], seed=1)
            await cluster.lead()
            await cluster.call()
            backup = await asyncio.to_thread(backup_of, postgres_url)
            await cluster.call()
            await asyncio.to_thread(parse_database(postgres_url).restore, io.BytesIO(backup), rng=RNG)
            assert {"c1"} == {each.cluster for each in (await ledger.admin.recovery()).pending_inventories}
            await recover([cluster])
            await cluster.call()
            await check_consistent(ledger, [cluster], cooling=True)
            await store.close()

        asyncio.run(main())
        assert [] == check(rows_of(backup_of(postgres_url))).faults


@pytest.mark.real
@pytest.mark.xdist_group("postgres")
class TestLongHistory:
    """Millions of rows of history take minutes, and more memory than a ledger has."""

    ROWS = 120_000
    TIMEOUT = "'50ms'"
    """Set for the database, as administrators do: one statement that copies all rows takes longer."""

    @pytest.fixture
    def url(self, postgres_url: str, postgres: Postgres) -> str:
        async def main() -> None:
            store = await parse_database(postgres_url).open(rng=RNG)
            await store.close()
            connection = await asyncpg.connect(postgres_url)
            await connection.execute(
                "INSERT INTO pod_usage SELECT 'vnet', '10.0.0.9', 'c1', 'uid-' || number, 'default', 'pod-' || number,"
                " number, number + 1, 'n1' FROM generate_series(1, $1::integer) AS number",
                self.ROWS,
            )
            await connection.close()

        asyncio.run(main())
        postgres.psql(f"ALTER DATABASE copies SET statement_timeout = {self.TIMEOUT}")
        return postgres_url

    def test_backup_and_restore_are_streams_without_timeouts(self, url: str, tmp_path: Path) -> None:
        backup = tmp_path / "backup"
        tracemalloc.start()
        with backup.open("wb") as file:
            assert self.ROWS < parse_database(url).back_up(file)
        with backup.open("rb") as file:
            parse_database(url).restore(file, rng=RNG)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < backup.stat().st_size / 2


def rows_of(backup: bytes) -> list[BackupRow]:
    file = io.BytesIO(backup)
    read_header(file)
    return list(read_rows(file))


class TestFsck:
    def test_database_written_by_the_ledger_is_consistent(self, sqlite_url: str) -> None:
        found = check(rows_of(backup_of(sqlite_url)))
        assert ([], 1, 2, 75) == (found.faults, found.subnets, found.network_containers, found.addresses)

    @pytest.mark.parametrize(
        ("table", "damage", "message"),
        [
            ("subnet", lambda row: recount(row, held=7), "held addresses: stored 7, counted 75"),
            ("subnet", lambda row: recount(row, pod_shortage=1), "short for waiting Pods"),
            ("subnet", lambda row: recount(row, cooling=((1 << 50, 2),)), "addresses cooling down"),
            ("subnet", lambda row: recount(row, totals=(1, 2, 3, 4, 5, 6)), "projected addresses, by ladder step"),
            ("subnet", lambda row: {**row, "due": 5.0}, "columns and row differ"),
            ("network_container", lambda row: moved(row, blocks=(0,)), "blocks: stored"),
            ("network_container", lambda row: moved(row, closed=True), "which is closed"),
            ("network_container", lambda row: {**row, "node": "other"}, "columns and row differ"),
            (
                "block",
                lambda row: given(row, slot=9, owner=77, grant=b"g" * 16),
                "network container 77, which does not exist",
            ),
            ("block", lambda row: given(row, slot=0, owner=1, grant=b"g" * 16), "is not assignable"),
            ("block", lambda row: given(row, slot=9, owner=1, grant=PRIMARY), "has 2 primaries"),
            ("block", lambda row: {**row, "ready": 17}, "column ready is 17"),
            ("membership", lambda row: {**row, "cluster": "other"}, "is not a member"),
        ],
    )
    def test_fault_is_reported(
        self, sqlite_url: str, table: str, damage: Callable[[dict[str, object]], dict[str, object]], message: str
    ) -> None:
        rows = rows_of(backup_of(sqlite_url))
        index = next(index for index, line in enumerate(rows) if line[0] == table)
        _, columns, row = rows[index]
        damaged = damage(dict(zip(columns, row, strict=True)))
        rows[index] = (table, columns, tuple(damaged[column] for column in columns))
        assert any(message in fault for fault in check(rows).faults), check(rows).faults


def recount(row: dict[str, object], **counts: object) -> dict[str, object]:
    subnet = msgspec.json.decode(str(row["row"]), type=SubnetRow)
    return {**row, "row": encode_row(msgspec.structs.replace(subnet, **counts))}


def moved(row: dict[str, object], **fields: object) -> dict[str, object]:
    container = msgspec.json.decode(str(row["row"]), type=NcRow)
    return {**row, "row": encode_row(msgspec.structs.replace(container, **fields))}


def given(row: dict[str, object], *, slot: int, owner: int, grant: bytes) -> dict[str, object]:
    block = Block.decode(row["slots"])  # type: ignore[arg-type]  # any value of the column
    block.assign([slot], owner=owner, grants=[grant])
    return {**row, "slots": block.encode()}


@pytest.mark.integration
class TestCommands:
    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "podpool", "ledger", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_backup_check_and_restore(self, sqlite_url: str, tmp_path: Path) -> None:
        backup, other = str(tmp_path / "backup"), f"sqlite://{tmp_path / 'other.db'}"
        assert (0, f"{backup}: 13 rows\n") == output_of(self.run("backup", backup, "--database", sqlite_url))
        assert 0o600 == Path(backup).stat().st_mode & 0o777
        assert "restored revision" in self.run("restore", backup, "--database", other).stdout
        consistent = "the database is consistent: 1 subnets, 2 network containers, 75 addresses\n"
        for arguments in (("--database", other), ("--file", backup)):
            assert (0, consistent) == output_of(self.run("check", *arguments))

    def test_invalid_url_is_rejected_without_its_password(self) -> None:
        failed = self.run("check", "--database", "mysql://me:secret@host/name")
        assert failed.returncode == 2
        assert "mysql://me@host/name" in failed.stderr
        assert "secret" not in failed.stderr

    def test_backup_does_not_create_a_database(self, tmp_path: Path) -> None:
        missing = self.run("backup", str(tmp_path / "backup"), "--database", f"sqlite://{tmp_path / 'none.db'}")
        assert "there is no ledger database" in missing.stderr
        assert not (tmp_path / "none.db").exists()


def output_of(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    return done.returncode, done.stdout

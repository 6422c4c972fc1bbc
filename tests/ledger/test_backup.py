"""Copies of the books: whole or refused, the same from either database, and whoever restores one is found out."""

import asyncio
import io
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from parts.postgres import Postgres
from podpool.ledger.errors import Conflict, Invalid
from podpool.ledger.messages import NetworkContainerState, SubnetSpec, OpenTermRequest, ReconcileRequest
from podpool.ledger.storage.backup import Line, verify_backup, read_header, read_rows
from podpool.ledger.domain.block import PRIMARY, Block
from podpool.ledger.storage.database import parse_database
from podpool.ledger.storage.fsck import check
from podpool.ledger.domain.rows import NetworkContainerRow, SubnetRow, encode_row
from podpool.ledger.storage.sqlite.store import SqliteStore
from tests.ledger.crowds import Cluster, agree, lead_again, ledger_on, make_subnets
from tests.ledger.offices import item

RNG = random.SystemRandom()


def fill(path: Path) -> NetworkContainerState:
    """Books in a file, with one container."""

    async def main() -> NetworkContainerState:
        store = SqliteStore(path)
        ledger = ledger_on(store)
        await ledger.start()
        await ledger.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
        term = (await ledger.open_term(OpenTermRequest(cluster="c1"))).term
        items = (item("n1", wanted=70), item("n2", wanted=3))
        answer = await ledger.reconcile(ReconcileRequest(cluster="c1", term=term, number=1, items=items))
        await store.close()
        state = answer.results[0].state
        assert state is not None
        return state

    return asyncio.run(main())


def copied(url: str) -> bytes:
    file = io.BytesIO()
    parse_database(url).back_up(file)
    return file.getvalue()


@pytest.fixture
def repo(tmp_path: Path) -> str:
    fill(tmp_path / "ledger.db")
    return f"sqlite://{tmp_path / 'ledger.db'}"


@pytest.fixture
def server(postgres: Postgres) -> Iterator[str]:
    postgres.psql("CREATE DATABASE copies")
    yield postgres.url("copies")
    postgres.psql("DROP DATABASE copies")


class TestFiles:
    @pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
    def test_a_torn_copy_is_refused(self, repo: str, tmp_path: Path, share: float) -> None:
        whole = copied(repo)
        torn = tmp_path / "torn"
        torn.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(Invalid, match="is torn"):
            verify_backup(torn)

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "other").write_text("{}\n")
        with pytest.raises(Invalid, match="no copy"):
            verify_backup(tmp_path / "other")

    def test_no_copy_is_put_under_a_ledger_that_runs(self, repo: str, tmp_path: Path) -> None:
        copy = copied(repo)

        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            with pytest.raises(Conflict, match="stop it first"):
                parse_database(repo).restore(io.BytesIO(copy), rng=RNG)
            await store.close()

        asyncio.run(main())

    def test_a_copy_can_be_made_while_the_ledger_runs(self, repo: str, tmp_path: Path) -> None:
        before = copied(repo)

        async def main() -> bytes:
            store = SqliteStore(tmp_path / "ledger.db")
            during = copied(repo)
            await store.close()
            return during

        assert before == asyncio.run(main())

    def test_even_the_latest_copy_is_a_restore(self, repo: str, tmp_path: Path) -> None:
        """Nobody can know what was answered between the copy and the end of the books that it replaces."""
        parse_database(repo).restore(io.BytesIO(copied(repo)), rng=RNG)

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
    def test_what_went_into_postgresql_comes_back_as_it_was(self, repo: str, server: str) -> None:
        copy = copied(repo)
        parse_database(server).restore(io.BytesIO(copy), rng=RNG)
        assert copy == copied(server)
        parse_database(repo).restore(io.BytesIO(copied(server)), rng=RNG)
        assert copy == copied(repo)

    def test_replicas_that_run_notice_a_restore_and_recover(self, server: str) -> None:
        async def main() -> None:
            store = await parse_database(server).open(rng=RNG)
            ledger = ledger_on(store)
            await ledger.start()
            await make_subnets(ledger)
            cluster = Cluster("c1", [ledger], seed=1)
            await cluster.lead()
            await cluster.call()
            copy = await asyncio.to_thread(copied, server)
            await cluster.call()
            await asyncio.to_thread(parse_database(server).restore, io.BytesIO(copy), rng=RNG)
            assert {"c1"} == {each.cluster for each in (await ledger.admin.recovery()).pending_inventories}
            await lead_again([cluster])
            await cluster.call()
            await agree(ledger, [cluster], cooling=True)
            await store.close()

        asyncio.run(main())
        assert [] == check(read_lines(copied(server))).faults


def read_lines(copy: bytes) -> list[Line]:
    file = io.BytesIO(copy)
    read_header(file)
    return list(read_rows(file))


class TestCheck:
    def test_books_that_were_made_by_the_ledger_are_consistent(self, repo: str) -> None:
        found = check(read_lines(copied(repo)))
        assert ([], 1, 2, 75) == (found.faults, found.subnets, found.network_containers, found.addresses)

    @pytest.mark.parametrize(
        ("table", "spoil", "words"),
        [
            ("subnet", lambda row: recount(row, held=7), "held addresses: stored 7, counted 75"),
            ("subnet", lambda row: recount(row, pod_shortage=1), "short for waiting Pods"),
            ("subnet", lambda row: recount(row, cooling=((1 << 50, 2),)), "addresses cooling down"),
            ("subnet", lambda row: recount(row, totals=(1, 2, 3, 4, 5, 6)), "projected addresses, by ladder step"),
            ("subnet", lambda row: {**row, "due": 5.0}, "columns and row differ"),
            ("network_container", lambda row: moved(row, blocks=(0,)), "blocks: stored"),
            ("network_container", lambda row: moved(row, closed=True), "which is closed"),
            ("network_container", lambda row: {**row, "node": "other"}, "columns and row differ"),
            ("block", lambda row: given(row, slot=9, owner=77, grant=b"g" * 16), "network container 77, which does not exist"),
            ("block", lambda row: given(row, slot=0, owner=1, grant=b"g" * 16), "is not assignable"),
            ("block", lambda row: given(row, slot=9, owner=1, grant=PRIMARY), "has 2 primaries"),
            ("block", lambda row: {**row, "ready": 17}, "column ready is 17"),
            ("membership", lambda row: {**row, "cluster": "nobody"}, "is not a member"),
        ],
    )
    def test_a_fault_is_told_in_words(
        self, repo: str, table: str, spoil: Callable[[dict[str, object]], dict[str, object]], words: str
    ) -> None:
        lines = read_lines(copied(repo))
        at = next(at for at, line in enumerate(lines) if line[0] == table)
        _, columns, row = lines[at]
        spoilt = spoil(dict(zip(columns, row, strict=True)))
        lines[at] = (table, columns, tuple(spoilt[column] for column in columns))
        assert any(words in fault for fault in check(lines).faults), check(lines).faults


def recount(row: dict[str, object], **counts: object) -> dict[str, object]:
    subnet = msgspec.json.decode(str(row["row"]), type=SubnetRow)
    return {**row, "row": encode_row(msgspec.structs.replace(subnet, **counts))}


def moved(row: dict[str, object], **fields: object) -> dict[str, object]:
    container = msgspec.json.decode(str(row["row"]), type=NetworkContainerRow)
    return {**row, "row": encode_row(msgspec.structs.replace(container, **fields))}


def given(row: dict[str, object], *, slot: int, owner: int, grant: bytes) -> dict[str, object]:
    block = Block.decode(row["slots"])  # type: ignore[arg-type]  # whatever a person may write
    block.assign([slot], owner=owner, grants=[grant])
    return {**row, "slots": block.encode()}


class TestCommands:
    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "podpool", "ledger", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_backup_check_and_restore(self, repo: str, tmp_path: Path) -> None:
        copy, other = str(tmp_path / "copy"), f"sqlite://{tmp_path / 'other.db'}"
        assert (0, f"{copy}: 11 rows\n") == told(self.run("backup", copy, "--database", repo))
        assert 0o600 == Path(copy).stat().st_mode & 0o777
        assert "restored revision" in self.run("restore", copy, "--database", other).stdout
        consistent = "the books are consistent: 1 subnets, 2 containers, 75 addresses\n"
        for words in (("--database", other), ("--file", copy)):
            assert (0, consistent) == told(self.run("check", *words))

    def test_what_is_no_database_is_refused_without_its_password(self) -> None:
        refused = self.run("check", "--database", "mysql://me:secret@host/name")
        assert refused.returncode == 2
        assert "mysql://me@host/name" in refused.stderr
        assert "secret" not in refused.stderr

    def test_a_ledger_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        missing = self.run("backup", str(tmp_path / "copy"), "--database", f"sqlite://{tmp_path / 'none.db'}")
        assert "there is no ledger" in missing.stderr
        assert not (tmp_path / "none.db").exists()


def told(ended: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    return ended.returncode, ended.stdout

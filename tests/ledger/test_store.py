"""The SQLite store: durable before the response, atomic, one writer. Blocks, and the rollback detector."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger.domain.address_block import NOT_FREE, Block
from podpool.ledger.domain.reconcile import reconcile
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.domain.subnet_layout import BLOCK_SIZE
from podpool.ledger.errors import LedgerError
from podpool.ledger.messages import (
    DemandReport,
    NetworkContainerState,
    OpenTermRequest,
    ReconcileRequest,
    ReconcileResponse,
    SubnetName,
    SubnetSpec,
)
from podpool.ledger.storage.rollback_detector import FileRollbackDetector, MemoryRollbackDetector, detect_rollback
from podpool.ledger.storage.sqlite.store import InlineSqliteStore, SqliteStore
from tests.ledger.harness import SUBNET, Leader, LedgerHarness, ManualClock, ids, item, run


def ledger_on(store: SqliteStore | InlineSqliteStore) -> LedgerService:
    return LedgerService(store, clock=ManualClock(), rng=random.Random(1))  # noqa: S311  reproducible


@pytest.mark.integration
class TestFiles:
    def test_restart_keeps_committed_state_and_is_no_rollback(self, tmp_path: Path) -> None:
        async def first() -> tuple[int, NetworkContainerState | None]:
            store = SqliteStore(tmp_path / "state" / "ledger.db")
            ledger = ledger_on(store)
            await ledger.start()
            await ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
            term = (await ledger.open_term(OpenTermRequest(cluster="c1"))).term
            response = await ledger.reconcile(
                ReconcileRequest(cluster="c1", term=term, number=1, items=(item(wanted=20),))
            )
            await store.close()
            return term, response.results[0].state

        async def second(term: int) -> tuple[bool, NetworkContainerState | None]:
            store = SqliteStore(tmp_path / "state" / "ledger.db")
            ledger = ledger_on(store)
            await ledger.start()
            response = await ledger.reconcile(
                ReconcileRequest(cluster="c1", term=term, number=1, items=(item(wanted=20),))
            )
            await store.close()
            return response.changed, response.results[0].state

        term, state = asyncio.run(first())
        assert state is not None
        assert (False, state) == asyncio.run(second(term))

    @pytest.mark.parametrize("changed", ["a", "b"])
    def test_restored_file_is_detected(self, tmp_path: Path, changed: str) -> None:
        """Whichever network of the file has lost a commit, its controllers are asked for their inventories."""
        path = tmp_path / "ledger.db"

        async def run(*networks: str, create: bool = False) -> tuple[bool, list[bool]]:
            store = SqliteStore(path)
            ledger = ledger_on(store)
            detected = store.rollback() is not None
            await ledger.start()
            if create:
                for number, network in enumerate(networks):
                    spec = SubnetSpec(network=network, name="pods", cidr=f"10.{number}.0.0/24")
                    await ledger.admin.create_subnet(spec)
            requests = [OpenTermRequest(cluster="c1", network=network) for network in networks]
            required = [(await ledger.open_term(request)).inventory_required for request in requests]
            await store.close()
            return detected, required

        assert (False, [False, False]) == asyncio.run(run("a", "b", create=True))
        copy = path.read_bytes()
        assert (False, [False]) == asyncio.run(run(changed))
        path.write_bytes(copy)
        assert (True, [True]) == asyncio.run(run(changed))
        assert (False, []) == asyncio.run(run())

    def test_concurrent_callers_share_commits_and_fail_alone(self, tmp_path: Path) -> None:
        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            commits: list[int] = []
            store.on_commit(commits.append)
            ledger = ledger_on(store)
            await ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/16"))
            terms = await asyncio.gather(*(ledger.open_term(OpenTermRequest(cluster=f"c{each}")) for each in range(40)))
            calls = [
                ledger.reconcile(
                    ReconcileRequest(cluster=f"c{each}", term=term.term, number=1, items=(item(wanted=16),))
                )
                for each, term in enumerate(terms)
            ]
            bad = ledger.reconcile(ReconcileRequest(cluster="c1", term=7_777_777, number=1))
            *responses, failure = await asyncio.gather(*calls, bad, return_exceptions=True)
            assert isinstance(failure, Exception)
            states = [response.results[0].state for response in responses if not isinstance(response, BaseException)]
            held = [each for state in states if state for each in (state.primary, *(g.address for g in state.grants))]
            (utilization,) = await ledger.utilization(SUBNET)
            assert len(held) == len(set(held)) == utilization.reserved
            await store.close()
            assert 83 == sum(commits)

        asyncio.run(main())

    def test_closed_store_raises(self, tmp_path: Path) -> None:
        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            await store.close()
            with pytest.raises(Exception, match="stopped"):
                await ledger_on(store).subnets()

        asyncio.run(main())

    def test_listener_is_called_in_its_loop(self, tmp_path: Path) -> None:
        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            changes: asyncio.Queue[object] = asyncio.Queue()
            unsubscribe = store.subscribe(lambda network, numbers: changes.put_nowait((network, *numbers)))
            await ledger_on(store).admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
            assert ("vnet", 1) == await changes.get()
            unsubscribe()
            await store.close()

        asyncio.run(main())

    @pytest.mark.parametrize("seed", range(3))
    def test_kill_loses_no_committed_grant(self, tmp_path: Path, seed: int) -> None:
        """SIGKILL under load at a random time, repeatedly: each grant of a response is held, once."""
        rng = random.Random(seed)  # noqa: S311  reproducible
        responded: dict[str, str] = {}
        clusters: set[str] = set()
        for round_ in range(3):
            script = Path(__file__).with_name("busy_ledger.py")
            command = [sys.executable, str(script), str(tmp_path / "ledger.db"), f"run{round_}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as busy:
                assert busy.stdout is not None
                lines = [busy.stdout.readline().split() for _ in range(rng.randrange(1, 300))]
                busy.send_signal(signal.SIGKILL)
                remainder = busy.stdout.read().splitlines(keepends=True)
                lines += [line.split() for line in remainder if line.endswith("\n")]
            responded.update((grant, address) for _, grant, address in lines)
            clusters.update(f"run{round_}-{number}" for number in range(6))

        async def held() -> tuple[dict[str, str], int, bool]:
            store = SqliteStore(tmp_path / "ledger.db")
            ledger = ledger_on(store)
            rolled_back = store.rollback() is not None
            lists = [(await ledger.network_containers(cluster)).network_containers for cluster in sorted(clusters)]
            grants = {grant.id: grant.address for each in lists for record in each for grant in record.state.grants}
            primaries = sum(len(each) for each in lists)
            (utilization,) = await ledger.utilization(SUBNET)
            await store.close()
            return grants, utilization.reserved - primaries, rolled_back

        grants, counted, rolled_back = asyncio.run(held())
        assert not rolled_back
        assert responded.items() <= grants.items()
        assert len(grants) == len(set(grants.values())) == counted


class Killed(BaseException):
    """Simulates the end of the process."""


class KilledAfter:
    """A repository that raises `Killed` after a number of calls."""

    def __init__(self, repo: Repository, calls: int) -> None:
        self._repo = repo
        self._calls = calls

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  any attribute
        found = getattr(self._repo, name)
        return self._counting(found) if callable(found) else found

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  any argument
            self._calls -= 1
            if self._calls < 0:
                raise Killed
            return method(*arguments, **named)

        return call


class TestAtomicity:
    def test_call_killed_between_any_two_statements_leaves_no_change(self) -> None:
        harness = LedgerHarness()
        harness.subnet("10.0.0.0/25", cooldown=0.0, cooldown_exhausted=0.0)
        leader = Leader(harness)
        states = [leader.node(f"n{number}", wanted=30) for number in range(3)]
        items = (
            item("n0", states[0], wanted=35, released=ids(states[0])[:20], report=DemandReport(waiting=2)),
            item("n1", states[1], node_gone=True),
            item("n2", states[2], wanted=90),
            item("n3", wanted=9),
        )
        call = ReconcileRequest(cluster="c1", term=leader.term, number=leader.number + 1, items=items)
        before = harness.store.image()
        response: ReconcileResponse | LedgerError | None = None
        for calls in range(1_000):
            try:
                response = run(harness.store.write(_killed_after(call, calls), network="vnet"))
            except Killed:
                assert before == harness.store.image()
                continue
            break
        assert calls > 20
        assert isinstance(response, ReconcileResponse)
        assert [None] * 4 == [result.error for result in response.results]

    def test_failed_transaction_leaves_no_change(self) -> None:
        harness = LedgerHarness()

        def fail(repo: Repository) -> None:
            repo.advance_revision()
            raise ValueError("on purpose")

        before = harness.store.image()
        with pytest.raises(ValueError, match="on purpose"):
            run(harness.store.write(fail))
        assert before == harness.store.image()
        harness.subnet()

    def test_nothing_is_committed_without_a_recorded_intent(self) -> None:
        class Broken(MemoryRollbackDetector):
            def record_intent(self, **_: object) -> None:
                raise OSError("disk full")

        store = InlineSqliteStore(detector=Broken())
        ledger = ledger_on(store)
        before = store.image()
        with pytest.raises(OSError, match="disk full"):
            run(ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24")))
        assert before == store.image()


def _killed_after(call: ReconcileRequest, calls: int) -> Callable[[Repository], ReconcileResponse | LedgerError]:
    rng = random.Random(2)  # noqa: S311  reproducible

    def transaction(repo: Repository) -> ReconcileResponse | LedgerError:
        limited = cast("Repository", KilledAfter(repo, calls))
        (response,) = reconcile(limited, [call], time=1_000_000.0, rng=rng, breaker=BreakerSettings())
        return response

    return transaction


class TestLayout:
    def test_block_row_is_below_2_kb(self) -> None:
        assert len(Block.new(range(BLOCK_SIZE)).encode()) < 2_000

    @given(
        st.lists(st.tuples(st.integers(0, BLOCK_SIZE - 1), st.booleans(), st.integers(0, 50)), max_size=40),
        st.integers(1, BLOCK_SIZE),
    )
    def test_block_returns_the_slots_free_for_longest(
        self, operations: list[tuple[int, bool, int]], count: int
    ) -> None:
        block = Block.new(range(BLOCK_SIZE))
        free = dict.fromkeys(range(BLOCK_SIZE), -1)
        for slot, assign, since in operations:
            if assign and slot in free:
                block.assign([slot], owner=7, grants=[bytes([slot]) * 16])
                del free[slot]
            elif not assign and slot not in free:
                block.free(slot, since=since)
                free[slot] = since
        again = Block.decode(block.encode())
        reusable_stamp = 25
        ready = [slot for slot in free if free[slot] <= reusable_stamp]
        found = again.find_free(count, reusable_stamp=reusable_stamp)
        assert sorted(ready, key=lambda slot: (free[slot], slot))[:count] == found
        assert sorted(set(range(BLOCK_SIZE)) - set(free)) == [slot for slot, _ in again.owned_by(7)]
        assert all(grant == bytes([slot]) * 16 for slot, grant in again.owned_by(7))

    def test_full_block_has_no_free_slot(self) -> None:
        block = Block.new([3])
        assert [3] == block.find_free(2, reusable_stamp=0)
        block.assign([3], owner=1, grants=[bytes(16)])
        assert (None, []) == (block.ready, block.find_free(1, reusable_stamp=NOT_FREE - 1))

    def test_search_for_a_reusable_block_uses_the_index(self, tmp_path: Path) -> None:
        asyncio.run(SqliteStore(tmp_path / "ledger.db").close())
        with sqlite3.connect(tmp_path / "ledger.db") as connection:
            plan = connection.execute(
                "EXPLAIN QUERY PLAN SELECT number FROM block"
                " WHERE subnet = 1 AND ready <= 5 ORDER BY ready, number LIMIT 1"
            ).fetchall()
        connection.close()
        (step,) = plan
        assert "block_ready" in step[3]

    def test_one_event_row_for_each_call_with_changes(self, tmp_path: Path) -> None:
        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            ledger = ledger_on(store)
            await ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
            term = (await ledger.open_term(OpenTermRequest(cluster="c1"))).term
            for number in (1, 1, 2):
                items = tuple(item(f"n{each}", wanted=3) for each in range(5))
                await ledger.reconcile(ReconcileRequest(cluster="c1", term=term, number=number, items=items))
            await store.close()

        asyncio.run(main())
        connection = sqlite3.connect(tmp_path / "ledger.db")
        (count,) = connection.execute("SELECT count(*) FROM event WHERE kind LIKE 'reconcile%'").fetchone()
        connection.close()
        assert 1 == count


class TestRollbackDetector:
    def test_intent_without_commit_is_no_rollback(self, tmp_path: Path) -> None:
        detector = FileRollbackDetector(tmp_path / "ledger.db")
        detector.record_intent(revision=5, committed=4, members=())
        detector.close()
        again = FileRollbackDetector(tmp_path / "ledger.db")
        assert detect_rollback(again, revision=4) is None
        assert detect_rollback(again, revision=3) is not None
        again.close()

    def test_database_below_a_recorded_commit_is_rolled_back(self, tmp_path: Path) -> None:
        detector = FileRollbackDetector(tmp_path / "ledger.db")
        detector.record_intent(revision=5, committed=4, members=[("c1", "vnet", "pods")])
        detector.record_commit(5)
        detector.record_intent(revision=6, committed=5, members=[("c1", "vnet", "pods"), ("c2", "vnet", "pods")])
        detector.close()
        again = FileRollbackDetector(tmp_path / "ledger.db")
        rollback = detect_rollback(again, revision=4)
        assert rollback is not None
        assert (5, (("c1", "vnet", "pods"), ("c2", "vnet", "pods"))) == (rollback.revision, rollback.members)
        again.close()

    @pytest.mark.parametrize("offset", [0, 512, 1_024])
    def test_damaged_record_is_ignored(self, tmp_path: Path, offset: int) -> None:
        detector = FileRollbackDetector(tmp_path / "ledger.db")
        for revision in range(1, 9):
            detector.record_intent(revision=revision, committed=revision - 1, members=())
            detector.record_commit(revision)
        detector.close()
        path = tmp_path / "ledger.db.revision"
        damaged = bytearray(path.read_bytes())
        damaged[offset + 3] ^= 255
        path.write_bytes(damaged)
        again = FileRollbackDetector(tmp_path / "ledger.db")
        assert again.last_committed() in (7, 8)
        again.close()

    def test_new_database_without_records_is_no_rollback(self, tmp_path: Path) -> None:
        detector = FileRollbackDetector(tmp_path / "ledger.db")
        assert detect_rollback(detector, revision=0) is None
        assert detect_rollback(detector, revision=1) is not None
        detector.close()


def test_size_grows_with_used_addresses_not_with_the_subnet() -> None:
    harness = LedgerHarness()
    harness.subnet("fd00::/64")
    before = len(harness.store.image())
    Leader(harness).reconcile_one(item(wanted=100))
    assert len(harness.store.image()) - before < 100_000
    assert harness.state().subnet == SubnetName(network="vnet", name="pods")


def test_a_transaction_that_sqlite_has_rolled_back_is_reported_with_its_cause() -> None:
    """As after an error of the disk; nothing else is committed under its name."""
    store = InlineSqliteStore()
    ledger = ledger_on(store)
    run(ledger.start())

    def fail(repo: Repository) -> None:
        repo.advance_revision()
        cast("Any", repo)._sql.execute("ROLLBACK")  # noqa: SLF001  planted: SQLite does it by itself
        raise sqlite3.OperationalError("disk I/O error")

    before = run(store.read(lambda repo: repo.revision))
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        run(store.write(fail))
    assert before == run(store.read(lambda repo: repo.revision))
    run(ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24")))

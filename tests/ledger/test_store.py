"""Books on disk: durable when answered, all or nothing, one writer."""

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

from podpool.ledger.domain.circuit_breaker import BreakerSettings
from podpool.ledger.domain.reconcile import reconcile
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.domain.subnet_layout import BLOCK_SIZE
from podpool.ledger.errors import LedgerError
from podpool.ledger.messages import NetworkContainerState, SubnetSpec, OpenTermRequest, ReconcileRequest, ReconcileResponse, DemandReport, SubnetName
from podpool.ledger.domain.block import NOT_FREE, Block
from podpool.ledger.storage.rollback_detector import FileRollbackDetector, MemoryRollbackDetector, detect_rollback
from podpool.ledger.storage.sqlite.store import InlineSqliteStore, SqliteStore
from podpool.ledger.domain.repository import Repository
from tests.ledger.offices import SUBNET, HandClock, Leader, Office, done, ids, item


def ledger_on(store: SqliteStore | InlineSqliteStore) -> LedgerService:
    return LedgerService(store, clock=HandClock(), rng=random.Random(1))  # noqa: S311  the same each time


class TestFiles:
    def test_what_was_answered_is_there_after_a_restart_and_is_no_restore(self, tmp_path: Path) -> None:
        async def first() -> tuple[int, NetworkContainerState | None]:
            store = SqliteStore(tmp_path / "books" / "ledger.db")
            ledger = ledger_on(store)
            await ledger.start()
            await ledger.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
            term = (await ledger.open_term(OpenTermRequest(cluster="c1"))).term
            answer = await ledger.reconcile(ReconcileRequest(cluster="c1", term=term, number=1, items=(item(wanted=20),)))
            await store.close()
            return term, answer.results[0].state

        async def second(term: int) -> tuple[bool, NetworkContainerState | None]:
            store = SqliteStore(tmp_path / "books" / "ledger.db")
            ledger = ledger_on(store)
            await ledger.start()
            answer = await ledger.reconcile(ReconcileRequest(cluster="c1", term=term, number=1, items=(item(wanted=20),)))
            await store.close()
            return answer.changed, answer.results[0].state

        term, state = asyncio.run(first())
        assert state is not None
        assert (False, state) == asyncio.run(second(term))

    def test_a_copy_put_back_is_noticed_by_the_witness_beside_it(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.db"

        async def run(count: int) -> bool:
            store = SqliteStore(path)
            ledger = ledger_on(store)
            noticed = store.restored() is not None
            await ledger.start()
            for number in range(count):
                await ledger.open_term(OpenTermRequest(cluster=f"c{number}"))
            await store.close()
            return noticed

        assert not asyncio.run(run(1))
        copy = path.read_bytes()
        assert not asyncio.run(run(1))
        path.write_bytes(copy)
        assert asyncio.run(run(0))
        assert not asyncio.run(run(0))

    def test_concurrent_callers_share_commits_and_one_failure_is_its_own(self, tmp_path: Path) -> None:
        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            commits: list[int] = []
            store.on_commit(commits.append)
            ledger = ledger_on(store)
            await ledger.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/16"))
            terms = await asyncio.gather(*(ledger.open_term(OpenTermRequest(cluster=f"c{each}")) for each in range(40)))
            calls = [
                ledger.reconcile(ReconcileRequest(cluster=f"c{each}", term=term.term, number=1, items=(item(wanted=16),)))
                for each, term in enumerate(terms)
            ]
            bad = ledger.reconcile(ReconcileRequest(cluster="c1", term=7_777_777, number=1))
            *answers, failure = await asyncio.gather(*calls, bad, return_exceptions=True)
            assert isinstance(failure, Exception)
            states = [answer.results[0].state for answer in answers if not isinstance(answer, BaseException)]
            held = [each for state in states if state for each in (state.primary, *(g.address for g in state.grants))]
            (utilization,) = await ledger.utilization(SUBNET)
            assert len(held) == len(set(held)) == utilization.reserved
            await store.close()
            assert 83 == sum(commits)

        asyncio.run(main())

    def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            await store.close()
            with pytest.raises(Exception, match="stopped"):
                await ledger_on(store).subnets()

        asyncio.run(main())

    def test_a_follower_is_told_in_its_own_loop(self, tmp_path: Path) -> None:
        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            heard: asyncio.Queue[object] = asyncio.Queue()
            leave = store.subscribe(heard.put_nowait)
            await ledger_on(store).create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
            assert (1,) == await heard.get()
            leave()
            await store.close()

        asyncio.run(main())

    @pytest.mark.parametrize("seed", range(3))
    def test_nothing_that_was_answered_is_lost_by_a_kill(self, tmp_path: Path, seed: int) -> None:
        """SIGKILL under load, at a random moment, a few times on one file: each grant that was told is held, once."""
        chance = random.Random(seed)  # noqa: S311  the same each time
        answered: dict[str, str] = {}
        clusters: set[str] = set()
        for run in range(3):
            script = Path(__file__).with_name("busy.py")
            command = [sys.executable, str(script), str(tmp_path / "ledger.db"), f"run{run}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as busy:
                assert busy.stdout is not None
                lines = [busy.stdout.readline().split() for _ in range(chance.randrange(1, 300))]
                busy.send_signal(signal.SIGKILL)
                rest = busy.stdout.read().splitlines(keepends=True)
                lines += [line.split() for line in rest if line.endswith("\n")]
            answered.update((grant, address) for _, grant, address in lines)
            clusters.update(f"run{run}-{number}" for number in range(6))

        async def held() -> tuple[dict[str, str], int, bool]:
            store = SqliteStore(tmp_path / "ledger.db")
            ledger = ledger_on(store)
            restored = store.restored() is not None
            lists = [(await ledger.ncs(cluster)).network_containers for cluster in sorted(clusters)]
            grants = {grant.id: grant.address for each in lists for record in each for grant in record.state.grants}
            primaries = sum(len(each) for each in lists)
            (utilization,) = await ledger.utilization(SUBNET)
            await store.close()
            return grants, utilization.reserved - primaries, restored

        grants, counted, restored = asyncio.run(held())
        assert not restored
        assert answered.items() <= grants.items()
        assert len(grants) == len(set(grants.values())) == counted


class Killed(BaseException):
    """The process ends here."""


class Mortal:
    """Books that die at the nth thing that is asked of them."""

    def __init__(self, repo: Repository, lives: int) -> None:
        self._books = repo
        self._lives = lives

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the books have
        found = getattr(self._books, name)
        return self._counted(found) if callable(found) else found

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  whatever it takes
            self._lives -= 1
            if self._lives < 0:
                raise Killed
            return method(*arguments, **named)

        return call


class TestAtomicity:
    def test_a_call_that_dies_between_any_two_statements_leaves_no_trace(self) -> None:
        office = Office()
        office.subnet("10.0.0.0/25", cooldown=0.0, cooldown_exhausted=0.0)
        leader = Leader(office)
        states = [leader.node(f"n{number}", wanted=30) for number in range(3)]
        items = (
            item("n0", states[0], wanted=35, released=ids(states[0])[:20], report=DemandReport(waiting=2)),
            item("n1", states[1], gone=True),
            item("n2", states[2], wanted=90),
            item("n3", wanted=9),
        )
        call = ReconcileRequest(cluster="c1", term=leader.term, number=leader.number + 1, items=items)
        before = office.store.image()
        answer: ReconcileResponse | LedgerError | None = None
        for lives in range(1_000):
            try:
                answer = done(office.store.write(_dying(call, lives)))
            except Killed:
                assert before == office.store.image()
                continue
            break
        assert lives > 20
        assert isinstance(answer, ReconcileResponse)
        assert [None] * 4 == [result.error for result in answer.results]

    def test_work_that_fails_takes_nothing_else_with_it(self) -> None:
        office = Office()

        def fail(repo: Repository) -> None:
            repo.advance_revision()
            raise ValueError("on purpose")

        before = office.store.image()
        with pytest.raises(ValueError, match="on purpose"):
            done(office.store.write(fail))
        assert before == office.store.image()
        office.subnet()

    def test_nothing_is_committed_that_the_witness_was_not_promised(self) -> None:
        class Broken(MemoryRollbackDetector):
            def record_intent(self, **_: object) -> None:
                raise OSError("disk full")

        store = InlineSqliteStore(witness=Broken())
        ledger = ledger_on(store)
        before = store.image()
        with pytest.raises(OSError, match="disk full"):
            done(ledger.open_term(OpenTermRequest(cluster="c1")))
        assert before == store.image()


def _dying(call: ReconcileRequest, lives: int) -> Callable[[Repository], ReconcileResponse | LedgerError]:
    rng = random.Random(2)  # noqa: S311  the same each time

    def work(repo: Repository) -> ReconcileResponse | LedgerError:
        mortal = cast("Repository", Mortal(repo, lives))
        (answer,) = reconcile(mortal, [call], wall=1_000_000.0, rng=rng, brake=BreakerSettings())
        return answer

    return work


class TestLayout:
    def test_a_block_is_one_row_below_2_kb(self) -> None:
        assert len(Block.new(range(BLOCK_SIZE)).encode()) < 2_000

    @given(
        st.lists(st.tuples(st.integers(0, BLOCK_SIZE - 1), st.booleans(), st.integers(0, 50)), max_size=40),
        st.integers(1, BLOCK_SIZE),
    )
    def test_a_block_gives_what_has_been_free_for_longest(self, moves: list[tuple[int, bool, int]], count: int) -> None:
        block = Block.new(range(BLOCK_SIZE))
        free = dict.fromkeys(range(BLOCK_SIZE), -1)
        for slot, give, since in moves:
            if give and slot in free:
                block.assign([slot], owner=7, grants=[bytes([slot]) * 16])
                del free[slot]
            elif not give and slot not in free:
                block.free(slot, since=since)
                free[slot] = since
        again = Block.decode(block.encode())
        reusable_stamp = 25
        ready = [slot for slot in free if free[slot] <= reusable_stamp]
        found = again.find_free(count, reusable_stamp=reusable_stamp)
        assert sorted(ready, key=lambda slot: (free[slot], slot))[:count] == found
        assert sorted(set(range(BLOCK_SIZE)) - set(free)) == [slot for slot, _ in again.owned_by(7)]
        assert all(grant == bytes([slot]) * 16 for slot, grant in again.owned_by(7))

    def test_a_full_block_has_no_room(self) -> None:
        block = Block.new([3])
        assert [3] == block.find_free(2, reusable_stamp=0)
        block.assign([3], owner=1, grants=[bytes(16)])
        assert (None, []) == (block.ready, block.find_free(1, reusable_stamp=NOT_FREE - 1))

    def test_the_search_for_a_block_with_room_uses_its_index(self, tmp_path: Path) -> None:
        asyncio.run(SqliteStore(tmp_path / "ledger.db").close())
        with sqlite3.connect(tmp_path / "ledger.db") as connection:
            plan = connection.execute(
                "EXPLAIN QUERY PLAN SELECT number FROM block"
                " WHERE subnet = 1 AND ready <= 5 ORDER BY ready, number LIMIT 1"
            ).fetchall()
        connection.close()
        (step,) = plan
        assert "block_ready" in step[3]

    def test_one_event_row_for_each_call_that_moved_something(self, tmp_path: Path) -> None:
        async def main() -> None:
            store = SqliteStore(tmp_path / "ledger.db")
            ledger = ledger_on(store)
            await ledger.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
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


class TestWitness:
    def test_a_promise_that_was_never_kept_is_no_restore(self, tmp_path: Path) -> None:
        witness = FileRollbackDetector(tmp_path / "ledger.db")
        witness.record_intent(revision=5, kept=4, members=())
        witness.close()
        again = FileRollbackDetector(tmp_path / "ledger.db")
        assert detect_rollback(again, revision=4) is None
        assert detect_rollback(again, revision=3) is not None
        again.close()

    def test_a_kept_promise_binds_the_books(self, tmp_path: Path) -> None:
        witness = FileRollbackDetector(tmp_path / "ledger.db")
        witness.record_intent(revision=5, kept=4, members=[("c1", "vnet", "pods")])
        witness.keep(5)
        witness.record_intent(revision=6, kept=5, members=[("c1", "vnet", "pods"), ("c2", "vnet", "pods")])
        witness.close()
        again = FileRollbackDetector(tmp_path / "ledger.db")
        restored = detect_rollback(again, revision=4)
        assert restored is not None
        assert (5, (("c1", "vnet", "pods"), ("c2", "vnet", "pods"))) == (restored.revision, restored.members)
        again.close()

    @pytest.mark.parametrize("place", [0, 512, 1_024])
    def test_a_torn_record_is_not_believed_and_the_others_are(self, tmp_path: Path, place: int) -> None:
        witness = FileRollbackDetector(tmp_path / "ledger.db")
        for revision in range(1, 9):
            witness.record_intent(revision=revision, kept=revision - 1, members=())
            witness.keep(revision)
        witness.close()
        path = tmp_path / "ledger.db.witness"
        torn = bytearray(path.read_bytes())
        torn[place + 3] ^= 255
        path.write_bytes(torn)
        again = FileRollbackDetector(tmp_path / "ledger.db")
        assert again.kept() in (7, 8)
        again.close()

    def test_new_books_without_a_witness_are_new(self, tmp_path: Path) -> None:
        witness = FileRollbackDetector(tmp_path / "ledger.db")
        assert detect_rollback(witness, revision=0) is None
        assert detect_rollback(witness, revision=1) is not None
        witness.close()


def test_books_grow_with_what_is_used_and_not_with_what_there_is() -> None:
    office = Office()
    office.subnet("fd00::/64")
    before = len(office.store.image())
    Leader(office).one(item(wanted=100))
    assert len(office.store.image()) - before < 100_000
    assert office.state().subnet == SubnetName(network="vnet", name="pods")

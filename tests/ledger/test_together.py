"""Calls that wait at the same time are decided together: each is answered as if it had come alone."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from podpool.ledger.domain.circuit_breaker import BreakerSettings
from podpool.ledger.domain.reconcile import reconcile
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import LedgerError, StaleTerm
from podpool.ledger.messages import NetworkContainerState, ReconcileItem, SubnetSpec, OpenTermRequest, ReconcileRequest, ReconcileResponse, DemandReport
from podpool.ledger.domain.repository import BatchTransaction
from podpool.ledger.storage.group_commit import Transaction, run_group
from podpool.ledger.domain.rows import ClusterRow
from podpool.ledger.storage.sqlite.store import SqliteStore
from podpool.ledger.domain.repository import Repository, LedgerStore
from tests.ledger.offices import HandClock, Leader, Office, addresses, done, ids, item
from tests.ledger.stores import TwoReplicas

Test: TypeAlias = Callable[[LedgerStore], Coroutine[Any, Any, None]]
Waiting: TypeAlias = Callable[[Test], None]

pytestmark = pytest.mark.usefixtures("books")


def together(office: Office, *calls: ReconcileRequest) -> list[ReconcileResponse | LedgerError]:
    """Have calls decided in one go."""
    wall = office.clock.wall()
    return done(office.store.write(lambda repo: reconcile(repo, calls, wall=wall, rng=office.rng, brake=BreakerSettings())))


def test_neighbours_are_given_different_addresses_and_see_the_subnet_as_all_have_left_it() -> None:
    office = Office()
    office.subnet("10.0.0.0/25")
    leaders = [Leader(office, f"c{number}") for number in range(3)]
    calls = [ReconcileRequest(cluster=each.cluster, term=each.term, number=1, items=(item(wanted=15),)) for each in leaders]
    answers = together(office, *calls)
    states = [answer.results[0].state for answer in answers if isinstance(answer, ReconcileResponse)]
    held = [address for state in states if state for address in (state.primary, *addresses(state))]
    assert 48 == len(held) == len(set(held))
    assert [48] * 3 == [a.subnets[0].reserved for a in answers if isinstance(a, ReconcileResponse)]
    assert 48 == office.reserved()


def test_of_two_calls_of_a_cluster_the_one_with_the_lower_number_is_late() -> None:
    office = Office()
    office.subnet()
    leader = Leader(office)
    calls = [
        ReconcileRequest(cluster="c1", term=leader.term, number=number, items=(item(wanted=wanted),))
        for number, wanted in ((2, 5), (1, 9), (3, 7))
    ]
    second, first, third = together(office, *calls)
    assert isinstance(first, ReconcileResponse)
    assert isinstance(second, ReconcileResponse)
    assert isinstance(third, ReconcileResponse)
    assert [True, False, True] == [second.changed, first.changed, third.changed]
    assert first.results == second.results
    assert third.results[0].state is not None
    assert (2, 7) == (third.results[0].state.version, len(third.results[0].state.grants))


def test_what_one_lets_go_of_the_next_can_have() -> None:
    office = Office()
    office.subnet("10.0.0.0/28", cooldown=0.0, cooldown_exhausted=0.0, reserved_for_primaries=0)
    first, second = Leader(office, "c1"), Leader(office, "c2")
    full = first.node(wanted=12)
    freed = item("n1", full, wanted=2, released=ids(full)[:10])
    calls = [
        ReconcileRequest(cluster="c1", term=first.term, number=first.number + 1, items=(freed,)),
        ReconcileRequest(cluster="c2", term=second.term, number=1, items=(item(wanted=9, report=DemandReport(waiting=9)),)),
    ]
    _, answer = together(office, *calls)
    assert isinstance(answer, ReconcileResponse)
    assert answer.results[0].state is not None
    assert set(addresses(answer.results[0].state)) <= {*addresses(full)[:10], "10.0.0.14"}
    assert 0 == answer.results[0].state.short


def test_a_restore_that_one_reveals_ends_the_terms_of_all() -> None:
    office = Office()
    office.subnet()
    first, second = Leader(office, "c1"), Leader(office, "c2")
    calls = [
        ReconcileRequest(cluster="c1", term=first.term, number=1, items=(item(wanted=5),)),
        ReconcileRequest(cluster="c2", term=second.term, number=1, seen=1 << 40, items=(item(wanted=5),)),
    ]
    assert [StaleTerm, StaleTerm] == [type(answer) for answer in together(office, *calls)]
    assert 0 == office.reserved()
    assert office.state().frozen


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_together_the_books_agree_with_the_answers(seed: int) -> None:
    """Five clusters in a subnet that is too small for them; some calls come late, some twice in one go."""
    rng = random.Random(seed)  # noqa: S311  the same each time
    office = Office()
    office.subnet("10.0.0.0/26", cooldown=0.0, cooldown_exhausted=0.0)
    leaders = [Leader(office, f"c{number}") for number in range(5)]
    known: dict[tuple[str, str], NetworkContainerState] = {}

    def call(leader: Leader) -> ReconcileRequest:
        leader.number += 1
        items = [changed(leader.cluster, node) for node in rng.sample(("a", "b", "c"), rng.randint(1, 3))]
        number = leader.number - rng.choice((0, 0, 0, 1))
        return ReconcileRequest(cluster=leader.cluster, term=leader.term, number=number, items=tuple(items))

    def changed(cluster: str, node: str) -> ReconcileItem:
        state = known.get((cluster, node))
        released = [id_ for id_ in ids(state) if rng.random() < 0.4] if state else []
        report = DemandReport(demand=rng.randint(0, 9), waiting=rng.randint(0, 4))
        gone = state is not None and rng.random() < 0.1
        return item(node, state, wanted=rng.randint(0, 12), released=released, report=report, gone=gone)

    for _ in range(20):
        calls = [call(rng.choice(leaders)) for _ in range(rng.randint(1, 8))]
        for asked, answer in zip(calls, together(office, *calls), strict=True):
            assert isinstance(answer, ReconcileResponse)
            for each, result in zip(asked.items, answer.results, strict=True):
                if result.state is not None:
                    known[asked.cluster, each.node] = result.state
        known = {place: state for place, state in known.items() if not state.closed}
        shown = [each.state for leader in leaders for each in done(office.ledger.containers(leader.cluster)).network_containers]
        assert sorted(known.values(), key=lambda each: each.nc_id) == sorted(shown, key=lambda each: each.nc_id)
        held = [address for state in shown for address in (*addresses(state), *filter(None, [state.primary]))]
        assert len(set(held)) == len(held) == office.reserved()
        assert sum(state.short for state in shown) == office.state().waiting + office.state().waiting_for_buffer


class TestSharing:
    """How a work is done that several wait for."""

    def test_one_that_fails_leaves_no_trace_and_takes_nobody_with_it(self, waiting: Waiting) -> None:
        def write(repo: Repository, asked: Sequence[str]) -> list[str]:
            for each in asked:
                repo.put_cluster(ClusterRow(id=each))
                if each == "bad":
                    raise ValueError("on purpose")
            return list(asked)

        async def ask_all(store: LedgerStore) -> None:
            works = [store.write(BatchTransaction(write, each)) for each in ("a", "b", "bad", "c")]
            *good, bad, last = await asyncio.gather(*works, return_exceptions=True)
            assert ["a", "b", "c"] == [*good, last]
            assert isinstance(bad, ValueError)
            assert ["a", "b", "c"] == await store.read(lambda repo: [row.id for row in repo.clusters()])

        waiting(ask_all)

    def test_neighbours_share_it_in_their_order(self) -> None:
        seen: list[object] = []

        def note(_: Repository, asked: Sequence[int]) -> list[int]:
            seen.append(list(asked))
            return [each * 10 for each in asked]

        def attempt_all(repo: Repository) -> list[object]:
            works: list[Transaction] = [BatchTransaction(note, 1), BatchTransaction(note, 2), lambda _: seen.append("alone"), BatchTransaction(note, 3)]
            return [each.get() for each in run_group(works, lambda work: work(repo))]

        assert [10, 20, None, 30] == done(Office().store.read(attempt_all))
        assert [[1, 2], "alone", [3]] == seen

    def test_what_comes_in_between_stays_in_between(self, waiting: Waiting) -> None:
        async def ask_all(store: LedgerStore) -> None:
            ledger = LedgerService(store, clock=HandClock(), rng=random.Random(1))  # noqa: S311  the same each time
            await ledger.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
            term = await ledger.open_term(OpenTermRequest(cluster="c1"))
            one, two = (
                ReconcileRequest(cluster="c1", term=term.term, number=number, items=(item(wanted=1),)) for number in (1, 2)
            )
            asked = (ledger.reconcile(one), ledger.open_term(OpenTermRequest(cluster="c1")), ledger.reconcile(two))
            first, _, last = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(first, ReconcileResponse)
            assert isinstance(last, StaleTerm)

        waiting(ask_all)


@pytest.fixture
def waiting(repo: str, tmp_path: Path) -> Waiting:
    """A store whose callers wait for its writer."""

    async def on_file(test: Test) -> None:
        store = SqliteStore(tmp_path / "ledger.db")
        try:
            await test(store)
        finally:
            await store.close()

    if repo == "sqlite":
        return lambda test: asyncio.run(on_file(test))
    store = Office().store
    return lambda test: done(test(store.first if isinstance(store, TwoReplicas) else store))

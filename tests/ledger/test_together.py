"""Calls that wait at the same time are decided together: each is answered as if it had come alone."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from podpool.ledger.domain.circuit_breaker import Brake
from podpool.ledger.domain.reconcile import reconcile
from podpool.ledger.domain.service import Ledger
from podpool.ledger.errors import LedgerError, TermEnded
from podpool.ledger.messages import ContainerState, Item, NewSubnet, OpenTerm, Reconcile, ReconcileAnswer, Report
from podpool.ledger.storage.group_commit import Shared, Work, attempts
from podpool.ledger.domain.rows import ClusterRow
from podpool.ledger.storage.sqlite.store import ThreadStore
from podpool.ledger.domain.repository import Books, Store
from tests.ledger.offices import HandClock, Leader, Office, addresses, done, ids, item
from tests.ledger.stores import TwoReplicas

Test: TypeAlias = Callable[[Store], Coroutine[Any, Any, None]]
Waiting: TypeAlias = Callable[[Test], None]

pytestmark = pytest.mark.usefixtures("books")


def together(office: Office, *calls: Reconcile) -> list[ReconcileAnswer | LedgerError]:
    """Have calls decided in one go."""
    wall = office.clock.wall()
    return done(office.store.write(lambda books: reconcile(books, calls, wall=wall, rng=office.rng, brake=Brake())))


def test_neighbours_are_given_different_addresses_and_see_the_subnet_as_all_have_left_it() -> None:
    office = Office()
    office.subnet("10.0.0.0/25")
    leaders = [Leader(office, f"c{number}") for number in range(3)]
    calls = [Reconcile(cluster=each.cluster, term=each.term, number=1, items=(item(wanted=15),)) for each in leaders]
    answers = together(office, *calls)
    states = [answer.results[0].state for answer in answers if isinstance(answer, ReconcileAnswer)]
    held = [address for state in states if state for address in (state.primary, *addresses(state))]
    assert 48 == len(held) == len(set(held))
    assert [48] * 3 == [a.subnets[0].reserved for a in answers if isinstance(a, ReconcileAnswer)]
    assert 48 == office.reserved()


def test_of_two_calls_of_a_cluster_the_one_with_the_lower_number_is_late() -> None:
    office = Office()
    office.subnet()
    leader = Leader(office)
    calls = [
        Reconcile(cluster="c1", term=leader.term, number=number, items=(item(wanted=wanted),))
        for number, wanted in ((2, 5), (1, 9), (3, 7))
    ]
    second, first, third = together(office, *calls)
    assert isinstance(first, ReconcileAnswer)
    assert isinstance(second, ReconcileAnswer)
    assert isinstance(third, ReconcileAnswer)
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
        Reconcile(cluster="c1", term=first.term, number=first.number + 1, items=(freed,)),
        Reconcile(cluster="c2", term=second.term, number=1, items=(item(wanted=9, report=Report(waiting=9)),)),
    ]
    _, answer = together(office, *calls)
    assert isinstance(answer, ReconcileAnswer)
    assert answer.results[0].state is not None
    assert set(addresses(answer.results[0].state)) <= {*addresses(full)[:10], "10.0.0.14"}
    assert 0 == answer.results[0].state.short


def test_a_restore_that_one_reveals_ends_the_terms_of_all() -> None:
    office = Office()
    office.subnet()
    first, second = Leader(office, "c1"), Leader(office, "c2")
    calls = [
        Reconcile(cluster="c1", term=first.term, number=1, items=(item(wanted=5),)),
        Reconcile(cluster="c2", term=second.term, number=1, seen=1 << 40, items=(item(wanted=5),)),
    ]
    assert [TermEnded, TermEnded] == [type(answer) for answer in together(office, *calls)]
    assert 0 == office.reserved()
    assert office.state().frozen


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_together_the_books_agree_with_the_answers(seed: int) -> None:
    """Five clusters in a subnet that is too small for them; some calls come late, some twice in one go."""
    rng = random.Random(seed)  # noqa: S311  the same each time
    office = Office()
    office.subnet("10.0.0.0/26", cooldown=0.0, cooldown_exhausted=0.0)
    leaders = [Leader(office, f"c{number}") for number in range(5)]
    known: dict[tuple[str, str], ContainerState] = {}

    def call(leader: Leader) -> Reconcile:
        leader.number += 1
        items = [changed(leader.cluster, node) for node in rng.sample(("a", "b", "c"), rng.randint(1, 3))]
        number = leader.number - rng.choice((0, 0, 0, 1))
        return Reconcile(cluster=leader.cluster, term=leader.term, number=number, items=tuple(items))

    def changed(cluster: str, node: str) -> Item:
        state = known.get((cluster, node))
        released = [id_ for id_ in ids(state) if rng.random() < 0.4] if state else []
        report = Report(demand=rng.randint(0, 9), waiting=rng.randint(0, 4))
        gone = state is not None and rng.random() < 0.1
        return item(node, state, wanted=rng.randint(0, 12), released=released, report=report, gone=gone)

    for _ in range(20):
        calls = [call(rng.choice(leaders)) for _ in range(rng.randint(1, 8))]
        for asked, answer in zip(calls, together(office, *calls), strict=True):
            assert isinstance(answer, ReconcileAnswer)
            for each, result in zip(asked.items, answer.results, strict=True):
                if result.state is not None:
                    known[asked.cluster, each.node] = result.state
        known = {place: state for place, state in known.items() if not state.closed}
        shown = [each.state for leader in leaders for each in done(office.ledger.containers(leader.cluster)).containers]
        assert sorted(known.values(), key=lambda each: each.container) == sorted(shown, key=lambda each: each.container)
        held = [address for state in shown for address in (*addresses(state), *filter(None, [state.primary]))]
        assert len(set(held)) == len(held) == office.reserved()
        assert sum(state.short for state in shown) == office.state().waiting + office.state().wishing


class TestSharing:
    """How a work is done that several wait for."""

    def test_one_that_fails_leaves_no_trace_and_takes_nobody_with_it(self, waiting: Waiting) -> None:
        def write(books: Books, asked: Sequence[str]) -> list[str]:
            for each in asked:
                books.put_cluster(ClusterRow(id=each))
                if each == "bad":
                    raise ValueError("on purpose")
            return list(asked)

        async def ask_all(store: Store) -> None:
            works = [store.write(Shared(write, each)) for each in ("a", "b", "bad", "c")]
            *good, bad, last = await asyncio.gather(*works, return_exceptions=True)
            assert ["a", "b", "c"] == [*good, last]
            assert isinstance(bad, ValueError)
            assert ["a", "b", "c"] == await store.read(lambda books: [row.id for row in books.clusters()])

        waiting(ask_all)

    def test_neighbours_share_it_in_their_order(self) -> None:
        seen: list[object] = []

        def note(_: Books, asked: Sequence[int]) -> list[int]:
            seen.append(list(asked))
            return [each * 10 for each in asked]

        def attempt_all(books: Books) -> list[object]:
            works: list[Work] = [Shared(note, 1), Shared(note, 2), lambda _: seen.append("alone"), Shared(note, 3)]
            return [each.get() for each in attempts(works, lambda work: work(books))]

        assert [10, 20, None, 30] == done(Office().store.read(attempt_all))
        assert [[1, 2], "alone", [3]] == seen

    def test_what_comes_in_between_stays_in_between(self, waiting: Waiting) -> None:
        async def ask_all(store: Store) -> None:
            ledger = Ledger(store, clock=HandClock(), rng=random.Random(1))  # noqa: S311  the same each time
            await ledger.create_subnet(NewSubnet(network="vnet", name="pods", cidr="10.0.0.0/24"))
            term = await ledger.open_term(OpenTerm(cluster="c1"))
            one, two = (
                Reconcile(cluster="c1", term=term.term, number=number, items=(item(wanted=1),)) for number in (1, 2)
            )
            asked = (ledger.reconcile(one), ledger.open_term(OpenTerm(cluster="c1")), ledger.reconcile(two))
            first, _, last = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(first, ReconcileAnswer)
            assert isinstance(last, TermEnded)

        waiting(ask_all)


@pytest.fixture
def waiting(books: str, tmp_path: Path) -> Waiting:
    """A store whose callers wait for its writer."""

    async def on_file(test: Test) -> None:
        store = ThreadStore(tmp_path / "ledger.db")
        try:
            await test(store)
        finally:
            await store.close()

    if books == "sqlite":
        return lambda test: asyncio.run(on_file(test))
    store = Office().store
    return lambda test: done(test(store.first if isinstance(store, TwoReplicas) else store))

"""Concurrent calls are reconciled reconcile_together: each gets the response that it would get alone."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger.domain.reconcile import reconcile
from podpool.ledger.domain.repository import BatchTransaction, LedgerStore, Repository
from podpool.ledger.domain.rows import ClusterRow
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import LedgerError, StaleTerm
from podpool.ledger.messages import (
    DemandReport,
    NetworkContainerState,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    ReconcileResponse,
    SubnetSpec,
)
from podpool.ledger.storage.group_commit import Transaction, run_group
from podpool.ledger.storage.sqlite.store import SqliteStore
from tests.ledger.backends import TwoReplicas
from tests.ledger.harness import Leader, LedgerHarness, ManualClock, addresses, ids, item, run

Test: TypeAlias = Callable[[LedgerStore], Coroutine[Any, Any, None]]
WithStore: TypeAlias = Callable[[Test], None]

pytestmark = pytest.mark.usefixtures("backend")


def reconcile_together(harness: LedgerHarness, *calls: ReconcileRequest) -> list[ReconcileResponse | LedgerError]:
    """Reconcile calls in one transaction."""
    now = harness.clock.wall()
    return run(
        harness.store.write(
            lambda repo: reconcile(repo, calls, time=now, rng=harness.rng, breaker=BreakerSettings()), network="vnet"
        )
    )


def test_calls_get_different_addresses_and_the_final_subnet_state() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/25")
    leaders = [Leader(harness, f"c{number}") for number in range(3)]
    calls = [
        ReconcileRequest(cluster=each.cluster, term=each.term, number=1, items=(item(wanted=15),)) for each in leaders
    ]
    responses = reconcile_together(harness, *calls)
    states = [response.results[0].state for response in responses if isinstance(response, ReconcileResponse)]
    held = [address for state in states if state for address in (state.primary, *addresses(state))]
    assert 48 == len(held) == len(set(held))
    assert [48] * 3 == [a.subnets[0].reserved for a in responses if isinstance(a, ReconcileResponse)]
    assert 48 == harness.reserved()


def test_call_with_a_lower_number_is_stale() -> None:
    harness = LedgerHarness()
    harness.subnet()
    leader = Leader(harness)
    calls = [
        ReconcileRequest(cluster="c1", term=leader.term, number=number, items=(item(wanted=wanted),))
        for number, wanted in ((2, 5), (1, 9), (3, 7))
    ]
    second, first, third = reconcile_together(harness, *calls)
    assert isinstance(first, ReconcileResponse)
    assert isinstance(second, ReconcileResponse)
    assert isinstance(third, ReconcileResponse)
    assert [True, False, True] == [second.changed, first.changed, third.changed]
    assert first.results == second.results
    assert third.results[0].state is not None
    assert (2, 7) == (third.results[0].state.version, len(third.results[0].state.grants))


def test_released_address_is_granted_to_the_next_call() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", cooldown=0.0, cooldown_exhausted=0.0, reserved_for_primaries=0)
    first, second = Leader(harness, "c1"), Leader(harness, "c2")
    full = first.node(wanted=12)
    freed = item("n1", full, wanted=2, released=ids(full)[:10])
    calls = [
        ReconcileRequest(cluster="c1", term=first.term, number=first.number + 1, items=(freed,)),
        ReconcileRequest(
            cluster="c2", term=second.term, number=1, items=(item(wanted=9, report=DemandReport(waiting=9)),)
        ),
    ]
    _, response = reconcile_together(harness, *calls)
    assert isinstance(response, ReconcileResponse)
    assert response.results[0].state is not None
    assert set(addresses(response.results[0].state)) <= {*addresses(full)[:10], "10.0.0.14"}
    assert 0 == response.results[0].state.shortage


def test_rollback_revealed_by_one_call_ends_all_terms() -> None:
    harness = LedgerHarness()
    harness.subnet()
    first, second = Leader(harness, "c1"), Leader(harness, "c2")
    calls = [
        ReconcileRequest(cluster="c1", term=first.term, number=1, items=(item(wanted=5),)),
        ReconcileRequest(cluster="c2", term=second.term, number=1, known_revision=1 << 40, items=(item(wanted=5),)),
    ]
    assert [StaleTerm, StaleTerm] == [type(response) for response in reconcile_together(harness, *calls)]
    assert 0 == harness.reserved()
    assert harness.state().frozen


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_match_the_database(seed: int) -> None:
    """Five clusters in a subnet that is too small; some calls are stale, some clusters call twice at once."""
    rng = random.Random(seed)  # noqa: S311  reproducible
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/26", cooldown=0.0, cooldown_exhausted=0.0)
    leaders = [Leader(harness, f"c{number}") for number in range(5)]
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
        node_gone = state is not None and rng.random() < 0.1
        return item(node, state, wanted=rng.randint(0, 12), released=released, report=report, node_gone=node_gone)

    for _ in range(20):
        calls = [call(rng.choice(leaders)) for _ in range(rng.randint(1, 8))]
        for arguments, response in zip(calls, reconcile_together(harness, *calls), strict=True):
            assert isinstance(response, ReconcileResponse)
            for each, result in zip(arguments.items, response.results, strict=True):
                if result.state is not None:
                    known[arguments.cluster, each.node] = result.state
        known = {place: state for place, state in known.items() if not state.closed}
        listed_states = [
            each.state
            for leader in leaders
            for each in run(harness.ledger.network_containers(leader.cluster)).network_containers
        ]
        assert sorted(known.values(), key=lambda each: each.nc_id) == sorted(listed_states, key=lambda each: each.nc_id)
        held = [address for state in listed_states for address in (*addresses(state), *filter(None, [state.primary]))]
        assert len(set(held)) == len(held) == harness.reserved()
        assert (
            sum(state.shortage for state in listed_states)
            == harness.state().waiting + harness.state().waiting_for_buffer
        )


class TestBatchTransaction:
    """Transactions that are run once for several callers."""

    def test_failed_call_leaves_no_change_and_fails_alone(self, with_store: WithStore) -> None:
        def write(repo: Repository, arguments: Sequence[str]) -> list[str]:
            for each in arguments:
                repo.put_cluster(ClusterRow(id=each))
                if each == "bad":
                    raise ValueError("on purpose")
            return list(arguments)

        async def run_all(store: LedgerStore) -> None:
            transactions = [store.write(BatchTransaction(write, each)) for each in ("a", "b", "bad", "c")]
            *good, bad, last = await asyncio.gather(*transactions, return_exceptions=True)
            assert ["a", "b", "c"] == [*good, last]
            assert isinstance(bad, ValueError)
            assert ["a", "b", "c"] == await store.read(lambda repo: [row.id for row in repo.clusters()])

        with_store(run_all)

    def test_neighbours_run_as_one_batch_in_order(self) -> None:
        calls_seen: list[object] = []

        def record(_: Repository, arguments: Sequence[int]) -> list[int]:
            calls_seen.append(list(arguments))
            return [each * 10 for each in arguments]

        def run_all_transactions(repo: Repository) -> list[object]:
            transactions: list[Transaction] = [
                BatchTransaction(record, 1),
                BatchTransaction(record, 2),
                lambda _: calls_seen.append("alone"),
                BatchTransaction(record, 3),
            ]
            return [each.get() for each in run_group(transactions, lambda batch: batch(repo))]

        assert [10, 20, None, 30] == run(LedgerHarness().store.read(run_all_transactions))
        assert [[1, 2], "alone", [3]] == calls_seen

    def test_order_of_other_transactions_is_kept(self, with_store: WithStore) -> None:
        async def run_all(store: LedgerStore) -> None:
            ledger = LedgerService(store, clock=ManualClock(), rng=random.Random(1))  # noqa: S311  reproducible
            await ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
            term = await ledger.open_term(OpenTermRequest(cluster="c1"))
            one, two = (
                ReconcileRequest(cluster="c1", term=term.term, number=number, items=(item(wanted=1),))
                for number in (1, 2)
            )
            arguments = (ledger.reconcile(one), ledger.open_term(OpenTermRequest(cluster="c1")), ledger.reconcile(two))
            first, _, last = await asyncio.gather(*arguments, return_exceptions=True)
            assert isinstance(first, ReconcileResponse)
            assert isinstance(last, StaleTerm)

        with_store(run_all)


@pytest.fixture
def with_store(backend: str, tmp_path: Path) -> WithStore:
    """Runs a test on a store with a writer of its own."""

    async def on_file(test: Test) -> None:
        store = SqliteStore(tmp_path / "ledger.db")
        try:
            await test(store)
        finally:
            await store.close()

    if backend == "sqlite":
        return lambda test: asyncio.run(on_file(test))
    store = LedgerHarness().store
    return lambda test: run(test(store.first if isinstance(store, TwoReplicas) else store))

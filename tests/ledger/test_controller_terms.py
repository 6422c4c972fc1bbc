"""Terms and numbers: late, repeated and reordered requests."""

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podpool.ledger.errors import StaleTerm
from podpool.ledger.messages import (
    NetworkContainerList,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    ReconcileResponse,
)
from tests.ledger.harness import Leader, LedgerHarness, addresses, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture
def harness() -> LedgerHarness:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    return harness


def send(leader: Leader, number: int, *items: object, term: int | None = None) -> ReconcileResponse:
    unread = cast("tuple[ReconcileItem, ...]", items)
    call = ReconcileRequest(cluster=leader.cluster, term=term or leader.term, number=number, items=unread)
    return run(leader.harness.client.reconcile(call))


def test_each_term_is_above_all_that_the_cluster_has_seen(harness: LedgerHarness) -> None:
    terms = [run(harness.client.open_term(OpenTermRequest(cluster="c1"))).term for _ in range(5)]
    assert terms == sorted(set(terms))
    assert terms[-1] < run(harness.client.open_term(OpenTermRequest(cluster="c1", known_term=terms[-1]))).term


def test_stale_term_changes_nothing(harness: LedgerHarness) -> None:
    old = Leader(harness)
    state = old.node(wanted=4)
    new = Leader(harness, known_term=old.term)
    with pytest.raises(StaleTerm) as refused:
        old.reconcile(item("n1", state, released=ids(state)))
    assert "term" == refused.value.field
    assert state == new.reconcile_one(item("n1", state, wanted=4))


def test_request_without_a_term_is_rejected(harness: LedgerHarness) -> None:
    with pytest.raises(StaleTerm, match="open a term"):
        run(harness.client.reconcile(ReconcileRequest(cluster="c9", term=0, number=1)))


def test_terms_of_clusters_are_independent(harness: LedgerHarness) -> None:
    first, second = Leader(harness, "c1"), Leader(harness, "c2")
    assert first.node().primary != second.node().primary


def test_repeated_request_is_processed_once(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    first = send(leader, 1, item(wanted=4))
    again = send(leader, 1, item(wanted=4))
    assert first.results == again.results
    assert (True, False) == (first.changed, again.changed)
    assert 5 == harness.reserved()


def test_request_after_a_later_one_changes_nothing(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    state = leader.node(wanted=4)
    later = send(leader, 5, item("n1", state, wanted=6))
    late = send(leader, 4, item("n1", state, wanted=9, released=ids(state), node_gone=True))
    assert later.results == late.results
    assert not late.changed


def test_late_request_opens_no_nc(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    send(leader, 2)
    (result,) = send(leader, 1, item()).results
    assert result.error is not None
    assert "superseded" == result.error.error
    assert 0 == harness.reserved()


def test_numbers_restart_with_each_term(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    send(leader, 1_000, item(wanted=1))
    leader.lead()
    assert send(leader, 1, item(wanted=2)).changed


def test_request_without_changes_keeps_the_revision(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    state = leader.node(wanted=4)
    before = leader.reconcile(item("n1", state, wanted=4)).revision
    assert before == leader.reconcile(item("n1", state, wanted=4)).revision


@settings(max_examples=min(25, settings().max_examples))
@given(st.permutations(range(1, 6)), st.lists(st.integers(1, 5), max_size=5))
def test_reordered_requests_count_only_if_above_all_before(order: list[int], repeats: list[int]) -> None:
    """Only a request above all before it takes effect: the database is as if the others had been lost."""
    arrived, model_nc = (LedgerHarness(), LedgerHarness())
    leaders = []
    for harness in (arrived, model_nc):
        harness.subnet("10.0.0.0/24")
        leaders.append(Leader(harness))
    highest = 0
    for number in [*order, *repeats]:
        send(leaders[0], number, item("n1", wanted=number), item(f"m{number}"))
        if number > highest:
            highest = number
            send(leaders[1], number, item("n1", wanted=number), item(f"m{number}"))
    shown, expected = (unnamed(run(harness.client.network_containers("c1"))) for harness in (arrived, model_nc))
    assert expected == shown


def unnamed(shown: NetworkContainerList) -> list[object]:
    """Return all but the random IDs."""
    return [
        (each.node, each.wanted, each.state.version, each.state.primary, addresses(each.state))
        for each in shown.network_containers
    ]

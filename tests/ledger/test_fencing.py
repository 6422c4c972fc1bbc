"""Terms and numbers: late, repeated and reordered calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podpool.ledger.errors import StaleTerm
from podpool.ledger.messages import NetworkContainerList, OpenTermRequest, ReconcileRequest, ReconcileResponse
from tests.ledger.harness import Leader, LedgerHarness, addresses, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture
def harness() -> LedgerHarness:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    return harness


def send(leader: Leader, number: int, *items: object, term: int | None = None) -> ReconcileResponse:
    # items of any kind: none is looked at
    call = ReconcileRequest(cluster=leader.cluster, term=term or leader.term, number=number, items=items)  # type: ignore[arg-type]
    return run(leader.harness.client.reconcile(call))


def test_each_term_is_above_every_one_that_the_cluster_has_seen(harness: LedgerHarness) -> None:
    terms = [run(harness.client.open_term(OpenTermRequest(cluster="c1"))).term for _ in range(5)]
    assert terms == sorted(set(terms))
    assert terms[-1] < run(harness.client.open_term(OpenTermRequest(cluster="c1", known_term=terms[-1]))).term


def test_an_older_term_changes_nothing(harness: LedgerHarness) -> None:
    old = Leader(harness)
    state = old.node(wanted=4)
    new = Leader(harness, known_term=old.term)
    with pytest.raises(StaleTerm) as refused:
        old.reconcile(item("n1", state, released=ids(state)))
    assert "term" == refused.value.field
    assert state == new.reconcile_one(item("n1", state, wanted=4))


def test_a_cluster_without_a_term_is_told_to_open_one(harness: LedgerHarness) -> None:
    with pytest.raises(StaleTerm, match="open a term"):
        run(harness.client.reconcile(ReconcileRequest(cluster="c9", term=0, number=1)))


def test_a_term_of_one_cluster_says_nothing_about_another(harness: LedgerHarness) -> None:
    first, second = Leader(harness, "c1"), Leader(harness, "c2")
    assert first.node().primary != second.node().primary


def test_a_repeated_call_shows_what_is_and_acts_once(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    first = send(leader, 1, item(wanted=4))
    again = send(leader, 1, item(wanted=4))
    assert first.results == again.results
    assert (True, False) == (first.changed, again.changed)
    assert 5 == harness.reserved()


def test_a_call_that_comes_after_a_later_one_changes_nothing(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    state = leader.node(wanted=4)
    later = send(leader, 5, item("n1", state, wanted=6))
    late = send(leader, 4, item("n1", state, wanted=9, released=ids(state), node_gone=True))
    assert later.results == late.results
    assert not late.changed


def test_a_container_that_a_late_call_would_have_opened_is_not(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    send(leader, 2)
    (result,) = send(leader, 1, item()).results
    assert result.error is not None
    assert "superseded" == result.error.error
    assert 0 == harness.reserved()


def test_numbers_begin_again_with_each_term(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    send(leader, 1_000, item(wanted=1))
    leader.lead()
    assert send(leader, 1, item(wanted=2)).changed


def test_a_call_that_changes_nothing_leaves_the_revision(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    state = leader.node(wanted=4)
    before = leader.reconcile(item("n1", state, wanted=4)).revision
    assert before == leader.reconcile(item("n1", state, wanted=4)).revision


@settings(max_examples=25)
@given(st.permutations(range(1, 6)), st.lists(st.integers(1, 5), max_size=5))
def test_whatever_order_calls_arrive_in_the_result_is_that_of_those_that_were_in_order(
    order: list[int], repeats: list[int]
) -> None:
    """Only a call above all before it acts: the books are as if the others had been lost."""
    arrived, plain = (LedgerHarness(), LedgerHarness())
    leaders = []
    for harness in (arrived, plain):
        harness.subnet("10.0.0.0/24")
        leaders.append(Leader(harness))
    highest = 0
    for number in [*order, *repeats]:
        send(leaders[0], number, item("n1", wanted=number), item(f"m{number}"))
        if number > highest:
            highest = number
            send(leaders[1], number, item("n1", wanted=number), item(f"m{number}"))
    shown, expected = (unnamed(run(harness.client.network_containers("c1"))) for harness in (arrived, plain))
    assert expected == shown


def unnamed(shown: NetworkContainerList) -> list[object]:
    """All but the names, which a work that is done again draws again."""
    return [
        (each.node, each.wanted, each.state.version, each.state.primary, addresses(each.state))
        for each in shown.network_containers
    ]

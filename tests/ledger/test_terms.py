"""Terms and numbers: late, repeated and reordered calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podpool.ledger.errors import StaleTerm
from podpool.ledger.messages import NetworkContainerList, OpenTermRequest, ReconcileRequest, ReconcileResponse
from tests.ledger.offices import Leader, Office, addresses, done, ids, item

pytestmark = pytest.mark.usefixtures("books")


@pytest.fixture
def office() -> Office:
    office = Office()
    office.subnet("10.0.0.0/24")
    return office


def send(leader: Leader, number: int, *items: object, term: int | None = None) -> ReconcileResponse:
    # items of any kind: none is looked at
    call = ReconcileRequest(cluster=leader.cluster, term=term or leader.term, number=number, items=items)  # type: ignore[arg-type]
    return done(leader.office.client.reconcile(call))


def test_each_term_is_above_every_one_that_the_cluster_has_seen(office: Office) -> None:
    terms = [done(office.client.open_term(OpenTermRequest(cluster="c1"))).term for _ in range(5)]
    assert terms == sorted(set(terms))
    assert terms[-1] < done(office.client.open_term(OpenTermRequest(cluster="c1", known=terms[-1]))).term


def test_an_older_term_changes_nothing(office: Office) -> None:
    old = Leader(office)
    state = old.node(wanted=4)
    new = Leader(office, known=old.term)
    with pytest.raises(StaleTerm) as refused:
        old.call(item("n1", state, released=ids(state)))
    assert "term" == refused.value.field
    assert state == new.one(item("n1", state, wanted=4))


def test_a_cluster_without_a_term_is_told_to_open_one(office: Office) -> None:
    with pytest.raises(StaleTerm, match="open a term"):
        done(office.client.reconcile(ReconcileRequest(cluster="c9", term=0, number=1)))


def test_a_term_of_one_cluster_says_nothing_about_another(office: Office) -> None:
    first, second = Leader(office, "c1"), Leader(office, "c2")
    assert first.node().primary != second.node().primary


def test_a_repeated_call_shows_what_is_and_acts_once(office: Office) -> None:
    leader = Leader(office)
    first = send(leader, 1, item(wanted=4))
    again = send(leader, 1, item(wanted=4))
    assert first.results == again.results
    assert (True, False) == (first.changed, again.changed)
    assert 5 == office.reserved()


def test_a_call_that_comes_after_a_later_one_changes_nothing(office: Office) -> None:
    leader = Leader(office)
    state = leader.node(wanted=4)
    later = send(leader, 5, item("n1", state, wanted=6))
    late = send(leader, 4, item("n1", state, wanted=9, released=ids(state), gone=True))
    assert later.results == late.results
    assert not late.changed


def test_a_container_that_a_late_call_would_have_opened_is_not(office: Office) -> None:
    leader = Leader(office)
    send(leader, 2)
    (result,) = send(leader, 1, item()).results
    assert result.error is not None
    assert "superseded" == result.error.error
    assert 0 == office.reserved()


def test_numbers_begin_again_with_each_term(office: Office) -> None:
    leader = Leader(office)
    send(leader, 1_000, item(wanted=1))
    leader.lead()
    assert send(leader, 1, item(wanted=2)).changed


def test_a_call_that_changes_nothing_leaves_the_revision(office: Office) -> None:
    leader = Leader(office)
    state = leader.node(wanted=4)
    before = leader.call(item("n1", state, wanted=4)).revision
    assert before == leader.call(item("n1", state, wanted=4)).revision


@settings(max_examples=25)
@given(st.permutations(range(1, 6)), st.lists(st.integers(1, 5), max_size=5))
def test_whatever_order_calls_arrive_in_the_result_is_that_of_those_that_were_in_order(
    order: list[int], repeats: list[int]
) -> None:
    """Only a call above all before it acts: the books are as if the others had been lost."""
    arrived, plain = (Office(), Office())
    leaders = []
    for office in (arrived, plain):
        office.subnet("10.0.0.0/24")
        leaders.append(Leader(office))
    highest = 0
    for number in [*order, *repeats]:
        send(leaders[0], number, item("n1", wanted=number), item(f"m{number}"))
        if number > highest:
            highest = number
            send(leaders[1], number, item("n1", wanted=number), item(f"m{number}"))
    shown, expected = (unnamed(done(office.client.containers("c1"))) for office in (arrived, plain))
    assert expected == shown


def unnamed(shown: NetworkContainerList) -> list[object]:
    """All but the names, which a work that is done again draws again."""
    return [
        (each.node, each.wanted, each.state.version, each.state.primary, addresses(each.state))
        for each in shown.network_containers
    ]

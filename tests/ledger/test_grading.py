"""The scaler and the exhaustion that the ledger decides for a subnet."""

import pytest

from podpool.core.scaling import Scaler
from podpool.ledger.messages import Item, Report
from tests.ledger.offices import Leader, Office, ids, item

pytestmark = pytest.mark.usefixtures("books")


def nodes(office: Office, count: int, *, demand: int, cluster: str = "c1") -> Leader:
    leader = Leader(office, cluster)
    leader.call(*(item(f"n{number}", report=Report(demand=demand)) for number in range(count)))
    return leader


def test_the_batch_goes_down_at_once_when_the_demand_of_all_clusters_does_not_fit() -> None:
    office = Office()
    office.subnet("10.0.0.0/24")
    nodes(office, 7, demand=8)
    assert Scaler(16, 50) == office.state().scaler
    nodes(office, 7, demand=8, cluster="c2")
    assert Scaler(16, 50) == office.state().scaler
    nodes(office, 1, demand=8, cluster="c3")
    assert Scaler(4, 50) == office.state().scaler
    assert 15 * 12 == office.state().projected


@pytest.mark.parametrize("hold", [60.0, 10.0])
def test_the_batch_goes_up_after_a_hold_by_itself(hold: float) -> None:
    office = Office()
    office.subnet("10.0.0.0/24", step_up_hold=hold)
    leader = nodes(office, 20, demand=1)
    assert Scaler(8, 50) == office.state().scaler
    leader.call(*(item(f"n{number}", report=Report(demand=0), maximum=1) for number in range(20)))
    office.later(hold - 1.0)
    assert Scaler(8, 50) == office.state().scaler
    office.later(2.0)
    assert Scaler(16, 50) == office.state().scaler


def test_and_only_to_where_its_margin_is_left() -> None:
    office = Office()
    office.subnet("10.0.0.0/24", step_up_margin=80)
    leader = nodes(office, 20, demand=1)
    leader.call(*(item(f"n{number}", report=Report(demand=0), maximum=1) for number in range(20)))
    office.later(120.0)
    assert Scaler(8, 50) == office.state().scaler


def test_a_waiting_pod_brings_the_bare_rung_and_the_hold_leaves_it() -> None:
    office = Office()
    office.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    leader = Leader(office)
    hog = leader.node("hog", wanted=12, demand=1)
    waiting = leader.node("n1", wanted=1, waiting=1, demand=1)
    assert Scaler(1, 0) == office.state().scaler
    leader.one(item("hog", hog, wanted=1, released=ids(hog)[:11], report=Report(demand=1)))
    assert 0 == leader.one(item("n1", waiting, wanted=1, report=Report(waiting=1, demand=1))).short
    assert Scaler(1, 0) == office.state().scaler
    office.later(61.0)
    assert Scaler(1, 50) == office.state().scaler


def test_a_pinned_scaler_counts_as_the_cluster_says() -> None:
    office = Office()
    office.subnet("10.0.0.0/24")
    leader = Leader(office)
    leader.one(item(report=Report(demand=1), pinned=Scaler(128, 50)))
    assert 128 == office.state().projected


def test_a_closed_container_counts_no_more() -> None:
    office = Office()
    office.subnet("10.0.0.0/24")
    leader = Leader(office)
    state = leader.node(demand=25)
    assert 48 == office.state().projected
    leader.one(item("n1", state, gone=True))
    assert 0 == office.state().projected


def test_exhausted_above_the_upper_threshold_and_clear_below_the_lower() -> None:
    office = Office()
    office.subnet("10.0.0.0/24", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    leader = Leader(office)
    state = leader.node(wanted=227)
    assert not office.state().exhausted
    state = leader.one(item("n1", state, wanted=228))
    assert office.state().exhausted
    state = leader.one(item("n1", state, wanted=203, released=ids(state)[:25]))
    assert office.state().exhausted
    leader.one(item("n1", state, wanted=202, released=ids(state)[:1]))
    assert not office.state().exhausted


def test_the_all_clear_waits_for_what_everybody_would_then_hold() -> None:
    office = Office()
    office.subnet("10.0.0.0/24", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0, batch=1, buffer=0)
    leader = Leader(office)
    state = leader.one(item(wanted=250, report=Report(demand=250)))
    assert office.state().exhausted
    state = leader.one(item("n1", state, wanted=100, released=ids(state)[:150], report=Report(demand=250)))
    assert office.state().exhausted
    leader.one(item("n1", state, wanted=100, report=Report(demand=100)))
    assert not office.state().exhausted


def test_the_end_of_a_rest_alone_can_bring_the_all_clear() -> None:
    office = Office()
    office.subnet("10.0.0.0/28", reserved_for_primaries=0)
    leader = Leader(office)
    state = leader.node(wanted=13)
    leader.one(item("n1", state, wanted=0, released=ids(state)))
    assert office.state().exhausted
    office.later(6.0)
    assert not office.state().exhausted


def foreign(node: str, wanted: int) -> Item:
    return item(node, wanted=wanted, report=None)


def test_a_foreign_request_counts_for_the_scaler_that_it_was_read_with() -> None:
    """One node with 9 Pods on a subnet of 30 is enough to oscillate for good, if requests are read anew each time."""
    office = Office()
    office.subnet("10.0.0.0/27", reserved_for_primaries=0)
    leader = Leader(office)
    leader.one(foreign("n1", 31))
    seen = [office.state().scaler]
    for _ in range(40):
        batch = seen[-1].batch
        target = -(-(max(seen[-1].buffer * batch, 200) + 900) // (100 * batch)) * batch - 1
        leader.one(foreign("n1", target))
        office.later(15.0)
        if office.state().scaler != seen[-1]:
            seen.append(office.state().scaler)
    assert len(seen) <= 4


def test_the_batch_does_not_go_up_before_foreign_agents_have_answered() -> None:
    office = Office()
    office.subnet("10.0.0.0/24", reserved_for_primaries=0)
    leader = nodes(office, 20, demand=1)
    assert Scaler(8, 50) == office.state().scaler
    leader.call(*(item(f"n{number}", report=Report(demand=0), maximum=1) for number in range(20)))
    office.later(50.0)
    leader.one(foreign("f1", 3))
    office.later(55.0)
    assert Scaler(8, 50) == office.state().scaler
    office.later(6.0)
    office.later(61.0)
    assert Scaler(16, 50) == office.state().scaler

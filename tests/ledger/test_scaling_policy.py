"""The scaler and the exhaustion that the ledger decides for a subnet."""

import pytest

from podpool.core.scaling import Scaler
from podpool.ledger.messages import DemandReport, ReconcileItem
from tests.ledger.harness import Leader, LedgerHarness, ids, item

pytestmark = pytest.mark.usefixtures("backend")


def nodes(harness: LedgerHarness, count: int, *, demand: int, cluster: str = "c1") -> Leader:
    leader = Leader(harness, cluster)
    leader.reconcile(*(item(f"n{number}", report=DemandReport(demand=demand)) for number in range(count)))
    return leader


def test_the_batch_goes_down_at_once_when_the_demand_of_all_clusters_does_not_fit() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    nodes(harness, 7, demand=8)
    assert Scaler(16, 50) == harness.state().scaler
    nodes(harness, 7, demand=8, cluster="c2")
    assert Scaler(16, 50) == harness.state().scaler
    nodes(harness, 1, demand=8, cluster="c3")
    assert Scaler(4, 50) == harness.state().scaler
    assert 15 * 12 == harness.state().projected


@pytest.mark.parametrize("hold", [60.0, 10.0])
def test_the_batch_goes_up_after_a_hold_by_itself(hold: float) -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", step_up_hold=hold)
    leader = nodes(harness, 20, demand=1)
    assert Scaler(8, 50) == harness.state().scaler
    leader.reconcile(*(item(f"n{number}", report=DemandReport(demand=0), maximum=1) for number in range(20)))
    harness.advance(hold - 1.0)
    assert Scaler(8, 50) == harness.state().scaler
    harness.advance(2.0)
    assert Scaler(16, 50) == harness.state().scaler


def test_and_only_to_where_its_margin_is_left() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", step_up_margin=80)
    leader = nodes(harness, 20, demand=1)
    leader.reconcile(*(item(f"n{number}", report=DemandReport(demand=0), maximum=1) for number in range(20)))
    harness.advance(120.0)
    assert Scaler(8, 50) == harness.state().scaler


def test_a_waiting_pod_brings_the_bare_rung_and_the_hold_leaves_it() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    leader = Leader(harness)
    hog = leader.node("hog", wanted=12, demand=1)
    waiting = leader.node("n1", wanted=1, waiting=1, demand=1)
    assert Scaler(1, 0) == harness.state().scaler
    leader.reconcile_one(item("hog", hog, wanted=1, released=ids(hog)[:11], report=DemandReport(demand=1)))
    assert 0 == leader.reconcile_one(item("n1", waiting, wanted=1, report=DemandReport(waiting=1, demand=1))).shortage
    assert Scaler(1, 0) == harness.state().scaler
    harness.advance(61.0)
    assert Scaler(1, 50) == harness.state().scaler


def test_a_pinned_scaler_counts_as_the_cluster_says() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    leader = Leader(harness)
    leader.reconcile_one(item(report=DemandReport(demand=1), pinned=Scaler(128, 50)))
    assert 128 == harness.state().projected


def test_a_closed_container_counts_no_more() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    leader = Leader(harness)
    state = leader.node(demand=25)
    assert 48 == harness.state().projected
    leader.reconcile_one(item("n1", state, node_gone=True))
    assert 0 == harness.state().projected


def test_exhausted_above_the_upper_threshold_and_clear_below_the_lower() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    leader = Leader(harness)
    state = leader.node(wanted=227)
    assert not harness.state().exhausted
    state = leader.reconcile_one(item("n1", state, wanted=228))
    assert harness.state().exhausted
    state = leader.reconcile_one(item("n1", state, wanted=203, released=ids(state)[:25]))
    assert harness.state().exhausted
    leader.reconcile_one(item("n1", state, wanted=202, released=ids(state)[:1]))
    assert not harness.state().exhausted


def test_the_all_clear_waits_for_what_everybody_would_then_hold() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0, batch=1, buffer=0)
    leader = Leader(harness)
    state = leader.reconcile_one(item(wanted=250, report=DemandReport(demand=250)))
    assert harness.state().exhausted
    state = leader.reconcile_one(
        item("n1", state, wanted=100, released=ids(state)[:150], report=DemandReport(demand=250))
    )
    assert harness.state().exhausted
    leader.reconcile_one(item("n1", state, wanted=100, report=DemandReport(demand=100)))
    assert not harness.state().exhausted


def test_the_end_of_a_rest_alone_can_bring_the_all_clear() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0)
    leader = Leader(harness)
    state = leader.node(wanted=13)
    leader.reconcile_one(item("n1", state, wanted=0, released=ids(state)))
    assert harness.state().exhausted
    harness.advance(6.0)
    assert not harness.state().exhausted


def third_party(node: str, wanted: int) -> ReconcileItem:
    return item(node, wanted=wanted, report=None)


def test_a_foreign_request_counts_for_the_scaler_that_it_was_read_with() -> None:
    """One node with 9 Pods on a subnet of 30 is enough to oscillate for good, if requests are read anew each time."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/27", reserved_for_primaries=0)
    leader = Leader(harness)
    leader.reconcile_one(third_party("n1", 31))
    seen = [harness.state().scaler]
    for _ in range(40):
        batch = seen[-1].batch
        target = -(-(max(seen[-1].buffer * batch, 200) + 900) // (100 * batch)) * batch - 1
        leader.reconcile_one(third_party("n1", target))
        harness.advance(15.0)
        if harness.state().scaler != seen[-1]:
            seen.append(harness.state().scaler)
    assert len(seen) <= 4


def test_the_batch_does_not_go_up_before_foreign_agents_have_answered() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", reserved_for_primaries=0)
    leader = nodes(harness, 20, demand=1)
    assert Scaler(8, 50) == harness.state().scaler
    leader.reconcile(*(item(f"n{number}", report=DemandReport(demand=0), maximum=1) for number in range(20)))
    harness.advance(50.0)
    leader.reconcile_one(third_party("f1", 3))
    harness.advance(55.0)
    assert Scaler(8, 50) == harness.state().scaler
    harness.advance(6.0)
    harness.advance(61.0)
    assert Scaler(16, 50) == harness.state().scaler

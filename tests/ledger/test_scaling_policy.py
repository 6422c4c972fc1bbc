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


def test_batch_steps_down_at_once_when_demand_does_not_fit() -> None:
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
def test_batch_steps_up_after_the_hold_time(hold: float) -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", step_up_hold=hold)
    leader = nodes(harness, 20, demand=1)
    assert Scaler(8, 50) == harness.state().scaler
    leader.reconcile(*(item(f"n{number}", report=DemandReport(demand=0), maximum=1) for number in range(20)))
    harness.advance(hold - 1.0)
    assert Scaler(8, 50) == harness.state().scaler
    harness.advance(2.0)
    assert Scaler(16, 50) == harness.state().scaler


def test_batch_steps_up_only_within_the_margin() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", step_up_margin=80)
    leader = nodes(harness, 20, demand=1)
    leader.reconcile(*(item(f"n{number}", report=DemandReport(demand=0), maximum=1) for number in range(20)))
    harness.advance(120.0)
    assert Scaler(8, 50) == harness.state().scaler


def test_waiting_pod_selects_the_smallest_scaler_until_the_hold_ends() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    leader = Leader(harness)
    holder = leader.node("hog", wanted=12, demand=1)
    waiting = leader.node("n1", wanted=1, waiting=1, demand=1)
    assert Scaler(1, 0) == harness.state().scaler
    leader.reconcile_one(item("hog", holder, wanted=1, released=ids(holder)[:11], report=DemandReport(demand=1)))
    assert 0 == leader.reconcile_one(item("n1", waiting, wanted=1, report=DemandReport(waiting=1, demand=1))).shortage
    assert Scaler(1, 0) == harness.state().scaler
    harness.advance(61.0)
    assert Scaler(1, 50) == harness.state().scaler


def test_pinned_scaler_is_used_for_the_projection() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    leader = Leader(harness)
    leader.reconcile_one(item(report=DemandReport(demand=1), pinned=Scaler(128, 50)))
    assert 128 == harness.state().projected


def test_closed_nc_is_not_projected() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    leader = Leader(harness)
    state = leader.node(demand=25)
    assert 48 == harness.state().projected
    leader.reconcile_one(item("n1", state, node_gone=True))
    assert 0 == harness.state().projected


def test_exhausted_above_the_upper_until_below_the_lower_threshold() -> None:
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


def test_exhaustion_ends_only_if_the_projection_fits() -> None:
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


def test_end_of_a_cooldown_can_end_exhaustion() -> None:
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


def test_third_party_request_is_interpreted_with_its_scaler() -> None:
    """One node with 9 Pods on a subnet of 30 would oscillate, if requests were interpreted with each new scaler."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/27", reserved_for_primaries=0)
    leader = Leader(harness)
    leader.reconcile_one(third_party("n1", 31))
    occupancy = [harness.state().scaler]
    for _ in range(40):
        batch = occupancy[-1].batch
        target = -(-(max(occupancy[-1].buffer * batch, 200) + 900) // (100 * batch)) * batch - 1
        leader.reconcile_one(third_party("n1", target))
        harness.advance(15.0)
        if harness.state().scaler != occupancy[-1]:
            occupancy.append(harness.state().scaler)
    assert len(occupancy) <= 4


def test_batch_steps_up_only_after_third_party_agents_have_reacted() -> None:
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

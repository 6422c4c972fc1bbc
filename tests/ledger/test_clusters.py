"""Administration of clusters: the mass-loss circuit breaker, and retiring."""

import pytest

from podpool.ledger.admin_messages import PodReport, PodUsage
from podpool.ledger.errors import NotFound, StaleTerm
from podpool.ledger.messages import NetworkContainerResult, NetworkContainerState, ReconcileRequest, ReconcileResponse
from tests.ledger.harness import Leader, LedgerHarness, item, run

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture
def harness() -> LedgerHarness:
    made = LedgerHarness()
    made.subnet("10.0.0.0/22")
    return made


def nodes(leader: Leader, count: int) -> dict[str, NetworkContainerState]:
    names = [f"n{number:02}" for number in range(count)]
    results = leader.reconcile(*(item(name, wanted=3) for name in names)).results
    return {name: result.state for name, result in zip(names, results, strict=True) if result.state}


def lose(leader: Leader, states: dict[str, NetworkContainerState], count: int) -> list[NetworkContainerResult]:
    """Report the nodes of the first so many NCs as gone, in one request."""
    lost = [(name, states.pop(name)) for name in list(states)[:count]]
    results = leader.reconcile(*(item(name, state, node_gone=True) for name, state in lost)).results
    states.update({name: state for (name, state), result in zip(lost, results, strict=True) if result.error})
    return list(results)


def codes(results: list[NetworkContainerResult]) -> set[str]:
    return {result.error.error if result.error else "closed" for result in results}


@pytest.mark.parametrize(
    ("known", "lost", "outcome"),
    [
        (4, 4, "closed"),  # fewer than five
        (20, 6, "closed"),  # 30 %
        (20, 7, "breaker-open"),
        (5, 5, "breaker-open"),
        (100, 30, "closed"),
        (100, 31, "breaker-open"),
    ],
)
def test_breaker_opens_above_30_percent_and_at_least_five(
    harness: LedgerHarness, known: int, lost: int, outcome: str
) -> None:
    leader = Leader(harness)
    states = nodes(leader, known)
    held = harness.reserved()
    assert {outcome} == codes(lose(leader, states, lost))
    harness.advance(31.0)
    assert held - (4 * lost if outcome == "closed" else 0) == harness.reserved()


def test_losses_add_up_within_the_window(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    states = nodes(leader, 20)
    for _ in range(3):
        assert {"closed"} == codes(lose(leader, states, 2))
        harness.clock.now += 200.0
    assert {"breaker-open"} == codes(lose(leader, states, 1))

    calm = Leader(harness, "calm")
    states = nodes(calm, 20)
    for _ in range(3):
        assert {"closed"} == codes(lose(calm, states, 4))
        harness.clock.now += 661.0


def test_missing_count_opens_the_breaker_before_any_release(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    states = nodes(leader, 20)
    name, state = next(iter(states.items()))
    leader.number += 1
    call = ReconcileRequest(
        cluster=leader.cluster,
        term=leader.term,
        number=leader.number,
        missing=7,
        items=(item(name, state, node_gone=True),),
    )
    response: ReconcileResponse = run(harness.client.reconcile(call))
    assert {"breaker-open"} == codes(list(response.results))


def test_open_breaker_blocks_only_lost_nodes(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    states = nodes(leader, 10)
    lose(leader, states, 9)
    assert 5 == len(leader.reconcile_one(item("n00", states["n00"], wanted=5)).grants)
    assert leader.node("new", wanted=3).grants
    other = Leader(harness, "other")
    assert {"closed"} == codes(lose(other, nodes(other, 4), 4))


def test_confirmed_loss_releases_the_ncs(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    states = nodes(leader, 10)
    assert {"breaker-open"} == codes(lose(leader, states, 9))
    (shown,) = run(harness.client.clusters()).clusters
    assert ("c1", 10, "1970-01-12T13:46:40.000+00:00") == (shown.id, shown.network_containers, shown.breaker_open_since)
    (shown,) = run(harness.client.confirm_loss("c1")).clusters
    assert shown.breaker_open_since is None
    assert {"closed"} == codes(lose(leader, states, 9))
    with pytest.raises(NotFound):
        run(harness.client.confirm_loss("none"))


def test_breaker_closes_after_the_hold_time(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    states = nodes(leader, 10)
    assert {"breaker-open"} == codes(lose(leader, states, 9))
    harness.clock.now += 86_399.0
    assert {"breaker-open"} == codes(lose(leader, states, 9))
    harness.clock.now += 1.0
    assert {"closed"} == codes(lose(leader, states, 9))


def test_breaker_closes_when_the_nodes_are_back(harness: LedgerHarness) -> None:
    """Else a loss days later would count as one that was open for a day."""
    leader = Leader(harness)
    states = nodes(leader, 10)
    assert {"breaker-open"} == codes(lose(leader, states, 9))
    leader.reconcile(item("n00", states["n00"], wanted=3), missing=9)
    (shown,) = run(harness.client.clusters()).clusters
    assert shown.breaker_open_since
    leader.reconcile(item("n00", states["n00"], wanted=3), missing=2)
    (shown,) = run(harness.client.clusters()).clusters
    assert shown.breaker_open_since is None
    harness.clock.now += 2 * 86_400.0
    assert {"breaker-open"} == codes(lose(leader, states, 9))


def test_retire_releases_only_the_cluster(harness: LedgerHarness) -> None:
    leader, other = Leader(harness, "c1"), Leader(harness, "c2")
    nodes(leader, 6)
    kept = nodes(other, 2)
    done_with = run(harness.client.retire("c1"))
    assert (6, 24) == (done_with.network_containers, done_with.addresses)
    assert 32 == harness.reserved(), "it cools down first"
    harness.advance(31.0)
    assert 8 == harness.reserved()
    assert ["c2"] == [each.id for each in run(harness.client.clusters()).clusters]
    assert 2 == len(run(harness.client.network_containers("c2")).network_containers)
    assert kept["n00"].grants == other.reconcile_one(item("n00", kept["n00"], wanted=3)).grants
    with pytest.raises(StaleTerm):
        leader.reconcile()


def test_retire_ends_the_pods_of_the_cluster_so_that_they_are_trimmed(harness: LedgerHarness) -> None:
    """Nobody reports their end any more."""
    pod = PodUsage(network="lab", address="10.9.0.1", namespace="d", name="p", uid="u", since="1970-01-12T13:46:40Z")
    for cluster in ("c1", "c2"):
        Leader(harness, cluster)
        run(harness.client.report_pods(PodReport(cluster=cluster, pods=(pod,))))
    harness.clock.now += 60
    run(harness.client.retire("c1"))
    shown = {each.cluster: each.until for each in run(harness.client.pod_history("p")).pod_usages}
    assert {"c1": "1970-01-12T13:47:40.000+00:00", "c2": None} == shown
    harness.clock.now += 31 * 86_400
    run(harness.ledger.maintain_history())
    assert ["c2"] == [each.cluster for each in run(harness.client.pod_history("p")).pod_usages]


def test_recovery_does_not_await_a_retired_cluster(harness: LedgerHarness) -> None:
    nodes(Leader(harness, "c1"), 2)
    harness = harness.restore(harness.store.image(), detector=type(harness.detector)())
    assert harness.state().frozen
    run(harness.client.retire("c1"))
    harness.advance(31.0)
    assert not harness.state().frozen
    assert () == run(harness.client.recovery()).pending_inventories

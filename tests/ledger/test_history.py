"""The history of addresses, nodes and Pods."""

import datetime as dt
from typing import Any

import pytest

from podpool.ledger.admin_messages import AllocationPeriod, PodReport, PodUsage
from podpool.ledger.errors import Invalid
from tests.ledger.harness import SUBNET, Leader, LedgerHarness, addresses, ids, inventory_item, item, run

pytestmark = pytest.mark.usefixtures("backend")


def at(time: float) -> str:
    return dt.datetime.fromtimestamp(time, dt.UTC).isoformat(timespec="milliseconds")


def use(address: str, name: str, since: float, until: float | None = None, **more: str) -> PodUsage:
    ended = None if until is None else at(until)
    usual = {"network": "vnet", "namespace": "default", "uid": f"uid-{name}", **more}
    return PodUsage(address=address, name=name, since=at(since), until=ended, **usual)


@pytest.fixture
def harness() -> LedgerHarness:
    made = LedgerHarness()
    made.subnet("10.0.0.0/24", cooldown=0.0, cooldown_exhausted=0.0)
    return made


def of_address(harness: LedgerHarness, address: str, time: float | None = None) -> tuple[AllocationPeriod, ...]:
    when = "" if time is None else at(time)
    return run(harness.client.history(address=address, at=when)).periods


def test_history_of_an_address_lists_each_node(harness: LedgerHarness) -> None:
    leader, start = Leader(harness), harness.clock.now
    one = leader.node("n1", wanted=1)
    address = one.grants[0].address
    harness.clock.now += 100
    leader.reconcile_one(item("n1", one, wanted=0, released=ids(one)))
    harness.clock.now += 100
    two = leader.node("n2", wanted=1)
    while address not in addresses(two):
        two = leader.reconcile_one(item("n2", two, wanted=len(two.grants) + 1))
    result = [(each.node, each.since, each.until) for each in of_address(harness, address)]
    assert [("n2", at(start + 200), None), ("n1", at(start), at(start + 100))] == result
    assert [["n1"], [], ["n2"]] == [
        [each.node for each in of_address(harness, address, start + time)] for time in (50, 150, 250)
    ]
    (now,) = of_address(harness, address, start + 250)
    assert (SUBNET, "c1", two.nc_id) == (now.subnet, now.cluster, now.nc_id)
    assert next(grant.id for grant in two.grants if grant.address == address) == now.grant


def test_history_of_a_node_lists_its_addresses_and_primary(harness: LedgerHarness) -> None:
    leader, start = Leader(harness), harness.clock.now
    state = leader.node("n1", wanted=2)
    harness.clock.now += 10
    later = leader.reconcile_one(item("n1", state, wanted=3))
    (new,) = set(addresses(later)) - set(addresses(state))
    result = run(harness.client.history(node="n1")).periods
    assert {state.primary: None} == {each.address: each.grant for each in result if each.grant is None}
    assert {*addresses(later), state.primary} == {each.address for each in result}
    assert [new] == [each.address for each in result if each.since == at(start + 10)]
    assert {*addresses(state), state.primary} == {
        each.address for each in run(harness.client.history(node="n1", at=at(start + 5))).periods
    }


def test_closing_an_nc_ends_its_periods(harness: LedgerHarness) -> None:
    leader, start = Leader(harness), harness.clock.now
    state = leader.node("n1", wanted=2)
    harness.clock.now += 10
    leader.reconcile_one(item("n1", state, node_gone=True))
    assert () == run(harness.client.history(node="n1", at=at(start + 10))).periods
    assert 3 == len(run(harness.client.history(node="n1", at=at(start + 9))).periods)


def test_address_that_changes_its_owner_within_one_request(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    harness.subnet("10.9.0.0/30", name="tiny", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    tiny = harness.state("tiny").subnet
    one = leader.reconcile_one(item("n1", subnet=tiny, wanted=1))
    (grant,) = one.grants
    swap = leader.reconcile(
        item("n2", subnet=tiny), item("n1", one, subnet=tiny, wanted=0, released=[grant.id])
    ).results
    assert swap[0].state is not None
    assert grant.address == swap[0].state.primary
    assert [("n2", None), ("n1", at(harness.clock.now))] == [
        (each.node, each.until) for each in of_address(harness, grant.address)
    ]


def test_periods_list_reported_pods(harness: LedgerHarness) -> None:
    leader, start = Leader(harness), harness.clock.now
    state = leader.node("n1", wanted=1)
    address = state.grants[0].address
    report = PodReport(cluster="c1", pods=(use(address, "web", start + 10, start + 20), use(address, "db", start + 30)))
    assert 2 == run(harness.client.report_pods(report)).count
    assert 2 == run(harness.client.report_pods(report)).count, "the same again changes nothing"
    harness.clock.now += 100
    assert [[], ["web"], ["web"], [], ["db"]] == [
        [pod.name for each in of_address(harness, address, start + time) for pod in each.pods]
        for time in (5, 10, 15, 20, 35)
    ]
    (tenure,) = of_address(harness, address)
    assert ["db", "web"] == [pod.name for pod in tenure.pods]


def test_usage_without_an_end_ends_with_the_next(harness: LedgerHarness) -> None:
    leader, start = Leader(harness), harness.clock.now
    address = leader.node("n1", wanted=1).grants[0].address
    for name, since in (("first", start + 10), ("second", start + 20)):
        run(harness.client.report_pods(PodReport(cluster="c1", pods=(use(address, name, since),))))
    (tenure,) = of_address(harness, address, start + 25)
    assert ["second"] == [pod.name for pod in tenure.pods]


def test_report_of_a_cluster_does_not_affect_anothers_addresses(harness: LedgerHarness) -> None:
    address = Leader(harness, "c1").node("n1", wanted=1).grants[0].address
    lie = PodReport(cluster="c2", pods=(use(address, "liar", harness.clock.now),))
    run(harness.client.report_pods(lie))
    harness.clock.now += 10
    (tenure,) = of_address(harness, address)
    assert () == tenure.pods
    assert () == run(harness.client.history(address=address)).pod_usages


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("pods.since", {"since": "yesterday"}),
        ("pods.since", {"since": "2026-11-16T02:30:00"}),
        ("pods.until", {"until": "1970-01-01T00:00:00Z"}),
        ("pods.address", {"address": "10.0.0"}),
        ("pods.uid", {"uid": ""}),
        ("pods.name", {"name": "x" * 300}),
        ("pods.node", {"node": "x" * 300}),
    ],
)
def test_invalid_report_is_rejected_as_a_whole(harness: LedgerHarness, field: str, changes: dict[str, str]) -> None:
    good = {"network": "vnet", "address": "10.0.0.4", "namespace": "d", "name": "n", "uid": "u", "since": at(9.0)}
    with pytest.raises(Invalid) as refused:
        run(harness.client.report_pods(PodReport(cluster="c1", pods=(PodUsage(**{**good, **changes}),))))
    assert field == refused.value.field


@pytest.mark.parametrize(
    ("field", "asked"), [("at", {"at": "noon"}), ("limit", {"limit": 1001}), ("address", {"address": "x"})]
)
def test_invalid_query_is_rejected(harness: LedgerHarness, field: str, asked: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        run(harness.client.history(**{"address": "10.0.0.4", **asked}))
    assert field == refused.value.field


def test_address_is_normalized() -> None:
    harness = LedgerHarness()
    harness.subnet("fd00::/120")
    primary = Leader(harness).node("n1").primary
    assert of_address(harness, primary.replace("::", ":0:0:0:0:0:0:0").upper()) == of_address(harness, primary)
    assert of_address(harness, primary)


def test_only_expired_history_is_deleted(harness: LedgerHarness) -> None:
    leader, start = Leader(harness), harness.clock.now
    one, two = leader.node("n1", wanted=1), leader.node("n2", wanted=1)
    pods = (use(one.grants[0].address, "old", start, start + 1), use(two.grants[0].address, "lasting", start))
    run(harness.client.report_pods(PodReport(cluster="c1", pods=pods)))
    leader.reconcile_one(item("n1", one, node_gone=True))
    harness.clock.now += 30 * 86_400.0 - 1
    run(harness.ledger.maintain_history())
    assert 2 == len(run(harness.client.history(node="n1")).periods)
    harness.clock.now += 2
    run(harness.ledger.maintain_history())
    assert () == run(harness.client.history(node="n1")).periods
    (tenure,) = of_address(harness, two.grants[0].address)
    assert ["lasting"] == [pod.name for pod in tenure.pods]
    events = run(harness.store.read(lambda repo: repo.unindexed_events(10)))
    assert [] == events


def test_events_are_indexed_in_batches(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    state = leader.node("n1")
    for count in range(1, 150):
        state = leader.reconcile_one(item("n1", state, wanted=count))
    assert 150 == len(run(harness.client.history(node="n1", limit=1000)).periods)
    assert 7 == len(run(harness.client.history(node="n1", limit=7)).periods)


def test_history_continues_after_a_restore(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    state = leader.node("n1", wanted=2)
    image = harness.store.image()
    harness.clock.now += 10
    state = leader.reconcile_one(item("n1", state, wanted=3))
    harness = harness.restore(image)
    harness.advance(31.0)
    leader.move_to(harness).lead()
    leader.send_inventory(inventory_item("n1", state))
    result = run(harness.client.history(node="n1")).periods
    assert {state.primary, *addresses(state)} == {each.address for each in result}
    assert {None} == {each.until for each in result}


def test_history_outlives_its_subnet(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    state = leader.node("n1", wanted=1)
    leader.reconcile_one(item("n1", state, node_gone=True))
    harness.advance(1.0)
    run(harness.client.delete_subnet(SUBNET))
    assert ["n1"] == [each.node for each in of_address(harness, state.primary)]


class TestPods:
    """Pods by name, also deleted ones, and in networks that the ledger does not manage."""

    @pytest.fixture
    def start(self, harness: LedgerHarness) -> float:
        """Two clusters have reported their Pods; queries follow 100 seconds later."""
        start = harness.clock.now
        reports = {
            "c1": (
                use("10.0.0.9", "web-0", start + 10, start + 20, uid="first", node="n1"),
                use("10.9.0.9", "web-0", start + 10, start + 20, uid="first", node="n1", network="default/fast"),
                use("10.0.0.12", "web-0", start + 30, uid="second", node="n2"),
                use("10.0.0.13", "web-0", start + 31, uid="other", namespace="test"),
            ),
            "c2": (use("10.9.0.9", "web-0", start + 40, uid="foreign", node="m1", network="default/fast"),),
        }
        for cluster, pods in reports.items():
            run(harness.client.report_pods(PodReport(cluster=cluster, pods=pods)))
        harness.clock.now += 100
        return start

    def of_pod(self, harness: LedgerHarness, **asked: str) -> list[tuple[str, str, str]]:
        result = run(harness.client.pod_history("web-0", **asked))  # type: ignore[arg-type]  # all but the limit is text
        assert () == result.periods
        return [(each.address, each.node, each.uid) for each in result.pod_usages]

    def test_usages_by_name_latest_first(self, harness: LedgerHarness, start: float) -> None:
        assert start
        first = [("10.0.0.9", "n1", "first"), ("10.9.0.9", "n1", "first")]
        second, other = ("10.0.0.12", "n2", "second"), ("10.0.0.13", "", "other")
        assert {*first} == {*self.of_pod(harness, namespace="default", cluster="c1")[1:]}
        assert second == self.of_pod(harness, namespace="default", cluster="c1")[0]
        assert [other] == self.of_pod(harness, namespace="test")
        assert [("10.9.0.9", "m1", "foreign"), other, second] == self.of_pod(harness)[:3]
        assert 5 == len(self.of_pod(harness))

    def test_usages_at_a_time(self, harness: LedgerHarness, start: float) -> None:
        assert {"first"} == {uid for *_, uid in self.of_pod(harness, at=at(start + 15))}
        assert [] == self.of_pod(harness, at=at(start + 25))
        assert {"second", "other"} == {uid for *_, uid in self.of_pod(harness, at=at(start + 35))}

    def test_usages_have_cluster_and_end(self, harness: LedgerHarness, start: float) -> None:
        result = run(harness.client.pod_history("web-0", namespace="default", limit=2)).pod_usages
        assert [("c2", "default/fast", None), ("c1", "vnet", None)] == [
            (each.cluster, each.network, each.until) for each in result
        ]
        assert at(start + 20) == run(harness.client.pod_history("web-0", at=at(start + 15))).pod_usages[0].until

    def test_address_of_a_secondary_network_lists_its_pods(self, harness: LedgerHarness, start: float) -> None:
        result = run(harness.client.history(address="10.9.0.9"))
        assert () == result.periods
        assert [("c2", "foreign"), ("c1", "first")] == [(each.cluster, each.uid) for each in result.pod_usages]
        assert ["first"] == [
            each.uid for each in run(harness.client.history(address="10.9.0.9", cluster="c1")).pod_usages
        ]
        assert ["first"] == [
            each.uid for each in run(harness.client.history(address="10.9.0.9", at=at(start + 12))).pod_usages
        ]

    def test_node_lists_its_pods_in_secondary_networks(self, harness: LedgerHarness, start: float) -> None:
        """Those of networks that the ledger manages are part of the node's allocation periods."""
        assert start
        leader = Leader(harness)
        address = leader.node("n1", wanted=1).grants[0].address
        run(
            harness.client.report_pods(
                PodReport(cluster="c1", pods=(use(address, "db", harness.clock.now, node="n1"),))
            )
        )
        result = run(harness.client.history(node="n1"))
        assert "10.9.0.9" in [each.address for each in result.pod_usages]
        assert address not in [each.address for each in result.pod_usages]
        (held,) = (each for each in result.periods if each.address == address)
        assert [("db", "n1")] == [(each.name, each.node) for each in held.pods]

    def test_node_of_a_pod_may_be_reported_later(self, harness: LedgerHarness) -> None:
        for node in ("", "n1", ""):
            run(harness.client.report_pods(PodReport(cluster="c1", pods=(use("10.0.0.9", "db", 5.0, node=node),))))
        assert ["n1"] == [each.node for each in run(harness.client.pod_history("db")).pod_usages]

    def test_unreported_pod_has_no_usages(self, harness: LedgerHarness) -> None:
        assert () == run(harness.client.pod_history("web-0", namespace="default")).pod_usages

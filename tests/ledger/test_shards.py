"""Each network is a shard: its terms, its revision and its recovery concern no other network."""

import pytest

from podpool.ledger.domain.repository import Repository
from podpool.ledger.errors import Invalid, InventoryRequired, NotFound, StaleTerm
from podpool.ledger.messages import OpenTermRequest, ReconcileRequest, SubnetName
from tests.ledger.harness import Leader, LedgerHarness, addresses, inventory_item, item, run

pytestmark = pytest.mark.usefixtures("backend")

A, B = SubnetName(network="a", name="pods"), SubnetName(network="b", name="pods")


@pytest.fixture
def harness() -> LedgerHarness:
    """A ledger with two networks that have the same addresses."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", network="a")
    harness.subnet("10.0.0.0/24", network="b")
    return harness


class TestTerms:
    def test_term_in_one_network_ends_none_in_another(self, harness: LedgerHarness) -> None:
        in_a, in_b = Leader(harness, network="a"), Leader(harness, network="b")
        Leader(harness, network="a", known_term=in_a.term)
        in_b.reconcile_one(item(subnet=B, wanted=2))
        with pytest.raises(StaleTerm):
            in_a.reconcile(item(subnet=A))

    def test_the_same_address_is_granted_in_two_networks(self, harness: LedgerHarness) -> None:
        first = Leader(harness, network="a").reconcile_one(item(subnet=A, wanted=3))
        second = Leader(harness, "c2", network="b").reconcile_one(item(subnet=B, wanted=3))
        assert addresses(first) == addresses(second)

    def test_request_changes_no_subnet_of_another_network(self, harness: LedgerHarness) -> None:
        assert "not-found" == Leader(harness, network="a").error(item(subnet=B)).error

    def test_request_finds_no_network_container_of_another_network(self, harness: LedgerHarness) -> None:
        state = Leader(harness, network="a").reconcile_one(item(subnet=A))
        assert "not-found" == Leader(harness, network="b").error(item("n1", state, subnet=B)).error

    def test_network_is_optional_while_there_is_only_one(self) -> None:
        harness = LedgerHarness()
        with pytest.raises(NotFound, match="no network yet"):
            run(harness.client.open_term(OpenTermRequest(cluster="c1")))
        harness.subnet(network="a")
        assert run(harness.client.open_term(OpenTermRequest(cluster="c1"))).term

    def test_network_must_be_named_if_there_are_several(self, harness: LedgerHarness) -> None:
        with pytest.raises(Invalid, match="2 networks: name the one that is meant"):
            run(harness.client.open_term(OpenTermRequest(cluster="c1")))
        with pytest.raises(NotFound, match="no network c"):
            run(harness.client.reconcile(ReconcileRequest(cluster="c1", network="c", term=1, number=1)))

    def test_revision_is_that_of_the_network(self, harness: LedgerHarness) -> None:
        in_a, in_b = Leader(harness, network="a"), Leader(harness, network="b")
        before = in_b.known_revision
        for count in range(1, 6):
            in_a.reconcile_one(item(subnet=A, wanted=count))
        in_b.reconcile_one(item(subnet=B))
        assert before + 1 == in_b.known_revision


class TestRecovery:
    def test_recovery_of_one_network_stops_no_grant_in_another(self, harness: LedgerHarness) -> None:
        in_a, in_b = Leader(harness, network="a"), Leader(harness, network="b")
        state = in_a.reconcile_one(item(subnet=A, wanted=2))
        in_b.reconcile_one(item(subnet=B, wanted=2))
        in_a.known_revision += 1_000  # it has received what the database has lost
        in_a.lead()
        assert in_a.inventory_required
        with pytest.raises(InventoryRequired):
            in_a.reconcile(item(subnet=A))
        assert 9 == len(in_b.reconcile_one(item(subnet=B, wanted=9)).grants)
        assert 3 == len(in_b.reconcile_one(item("n2", subnet=B, wanted=3)).grants)
        status = run(harness.client.recovery())
        assert {("a", "c1")} == {(each.subnet.network, each.cluster) for each in status.pending_inventories}
        in_a.send_inventory(inventory_item("n1", state))
        harness.advance(60)
        assert 7 == len(in_a.reconcile_one(item("n2", subnet=A, wanted=7)).grants)

    def test_restored_database_recovers_all_networks(self, harness: LedgerHarness) -> None:
        in_a, in_b = Leader(harness, network="a"), Leader(harness, network="b")
        image = harness.store.image()
        states = [in_a.reconcile_one(item(subnet=A, wanted=2)), in_b.reconcile_one(item(subnet=B, wanted=2))]
        restored = harness.restore(image)
        for leader, state in zip((in_a, in_b), states, strict=True):
            leader.move_to(restored).lead()
            assert leader.inventory_required
            leader.send_inventory(inventory_item("n1", state))
        assert () == run(restored.client.recovery()).pending_inventories

    def test_network_that_the_copy_lacks_recovers_too(self, harness: LedgerHarness) -> None:
        Leader(harness, network="a").reconcile_one(item(subnet=A))
        image = harness.store.image()
        harness.subnet("10.0.0.0/24", network="c")
        third = SubnetName(network="c", name="pods")
        leader = Leader(harness, network="c")
        state = leader.reconcile_one(item(subnet=third, wanted=2))
        restored = harness.restore(image)
        restored.subnet("10.0.0.0/24", network="c")
        leader.move_to(restored).lead()
        assert leader.inventory_required
        leader.send_inventory(inventory_item("n1", state))
        restored.advance(60)
        other = Leader(restored, "c2", network="c").reconcile_one(item("n2", subnet=third))
        assert state.primary != other.primary

    def test_cluster_is_excused_in_one_network(self, harness: LedgerHarness) -> None:
        leaders = [Leader(harness, network=network) for network in ("a", "b")]
        for leader, subnet in zip(leaders, (A, B), strict=True):
            leader.reconcile_one(item(subnet=subnet))
            leader.known_revision += 1_000
            leader.lead()
        run(harness.client.excuse("c1", network="a"))
        pending = run(harness.client.recovery()).pending_inventories
        assert ["b"] == [each.subnet.network for each in pending]
        run(harness.client.excuse("c1"))
        assert () == run(harness.client.recovery()).pending_inventories
        with pytest.raises(NotFound):
            run(harness.client.excuse("c1"))


class TestClusters:
    def test_cluster_is_listed_in_each_of_its_networks(self, harness: LedgerHarness) -> None:
        Leader(harness, network="a").reconcile_one(item(subnet=A))
        Leader(harness, network="b")
        listed = [(each.id, each.network, each.network_containers) for each in run(harness.client.clusters()).clusters]
        assert [("c1", "a", 1), ("c1", "b", 0)] == listed

    def test_retired_in_all_networks(self, harness: LedgerHarness) -> None:
        Leader(harness, network="a").reconcile_one(item(subnet=A, wanted=2))
        Leader(harness, network="b").reconcile_one(item(subnet=B, wanted=3))
        retired = run(harness.client.retire("c1"))
        assert (2, 7) == (retired.network_containers, retired.addresses)
        assert () == run(harness.client.network_containers("c1")).network_containers

    def test_network_containers_of_one_network(self, harness: LedgerHarness) -> None:
        Leader(harness, network="a").reconcile_one(item(subnet=A))
        state = Leader(harness, network="b").reconcile_one(item(subnet=B))
        assert 2 == len(run(harness.client.network_containers("c1")).network_containers)
        (only,) = run(harness.client.network_containers("c1", network="b")).network_containers
        assert state == only.state


class TestHistory:
    def test_same_address_in_two_networks_has_two_histories(self, harness: LedgerHarness) -> None:
        state = Leader(harness, network="a").reconcile_one(item("n1", subnet=A))
        Leader(harness, "c2", network="b").reconcile_one(item("n2", subnet=B))
        periods = run(harness.client.history(address=state.primary)).periods
        assert {("a", "n1"), ("b", "n2")} == {(each.subnet.network, each.node) for each in periods}

    def test_timers_of_all_networks_run(self, harness: LedgerHarness) -> None:
        def due(repo: Repository) -> list[tuple[str, int]]:
            return repo.due(harness.clock.now)

        Leader(harness, network="a").reconcile_one(item(subnet=A, wanted=3, report=None))
        Leader(harness, network="b").reconcile_one(item(subnet=B, wanted=3, report=None))
        harness.clock.now += 3_600
        assert ["a", "b"] == [network for network, _ in run(harness.store.query(due))]
        run(harness.ledger.run_due_timers())
        assert [] == run(harness.store.query(due))

"""Recovery after a restore from an older copy, with the traces of the protocol reference (`row_N`)."""

import pytest

from podpool.ledger.errors import Invalid, InventoryRequired, NotFound, StaleTerm
from podpool.ledger.messages import DemandReport, Grant, NetworkContainerState, RecoveryStatus, SubnetName
from podpool.ledger.storage.rollback_detector import MemoryRollbackDetector
from tests.ledger.harness import Leader, LedgerHarness, addresses, ids, inventory_item, item, run

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture
def harness() -> LedgerHarness:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", cooldown=30.0)
    return harness


def recovery(harness: LedgerHarness) -> RecoveryStatus:
    return run(harness.client.recovery())


def finish_cooldowns(harness: LedgerHarness) -> None:
    """Wait until lost cooldowns are over."""
    harness.advance(31.0)


class TestDetection:
    def test_restart_on_the_same_database_is_no_restore(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        state = leader.node(wanted=2)
        leader.move_to(harness.restore(harness.store.image()))
        assert state == leader.reconcile_one(item("n1", state, wanted=2))

    def test_detected_rollback_ends_every_term(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        copy = harness.store.image()
        leader.node()
        leader.move_to(harness.restore(copy))
        leader.known_revision = 0
        with pytest.raises(StaleTerm, match="restored"):
            leader.node()

    def test_higher_known_revision_reveals_a_restore(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        copy, detector = harness.store.image(), harness.detector_copy()
        leader.node()
        restored = harness.restore(copy, detector=detector)
        assert () == recovery(restored).pending_inventories
        leader.move_to(restored)
        with pytest.raises(StaleTerm):
            leader.node()
        assert ["c1"] == [each.cluster for each in recovery(restored).pending_inventories]

    def test_higher_known_term_reveals_a_restore(self, harness: LedgerHarness) -> None:
        copy, detector = harness.store.image(), harness.detector_copy()
        leader = Leader(harness)
        restored = harness.restore(copy, detector=detector)
        leader.known_revision = 0
        leader.move_to(restored).lead()
        assert leader.inventory_required

    def test_database_without_detector_records_counts_as_restored(self, harness: LedgerHarness) -> None:
        Leader(harness).node()
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        assert restored.state().frozen

    def test_new_term_is_above_a_lost_one(self, harness: LedgerHarness) -> None:
        copy = harness.store.image()
        old = Leader(harness)
        new = Leader(harness.restore(copy))
        assert new.term > old.term

    def test_new_term_is_above_a_lost_one_without_detector_records(self, harness: LedgerHarness) -> None:
        """A new leader knows little of what the old one did after the copy; its term is higher nevertheless."""
        copy, detector = harness.store.image(), harness.detector_copy()
        first = Leader(harness)
        later = [Leader(harness).term for _ in range(20)]
        new = Leader(
            harness.restore(copy, detector=detector), known_term=first.term, known_revision=first.known_revision
        )
        assert new.inventory_required
        assert new.term > max(later)

    def test_new_cluster_needs_no_inventory(self, harness: LedgerHarness) -> None:
        Leader(harness, "c1").node()
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        assert not Leader(restored, "new").inventory_required


class TestNothingIsGranted:
    def test_row_7_request_in_flight_gets_no_lost_address(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        first = leader.node("n0")
        copy = harness.store.image()
        used = leader.reconcile_one(item("n0", first, wanted=1))
        restored = harness.restore(copy)
        with pytest.raises(StaleTerm):
            leader.move_to(restored).reconcile_one(item("n1", wanted=200))
        leader.lead()
        with pytest.raises(InventoryRequired):
            leader.reconcile_one(item("n1", wanted=200))
        leader.send_inventory(inventory_item("n0", used))
        finish_cooldowns(restored)
        assert used.grants[0].address not in addresses(leader.reconcile_one(item("n1", wanted=200)))

    def test_not_before_all_inventories_are_in(self, harness: LedgerHarness) -> None:
        first, second = Leader(harness, "c1"), Leader(harness, "c2")
        state, other = first.node(), second.node()
        copy = harness.store.image()
        other = second.reconcile_one(item("n1", other, wanted=3))
        restored = harness.restore(copy)
        for leader in (first, second):
            leader.move_to(restored).lead()
        first.send_inventory(inventory_item("n1", state))
        finish_cooldowns(restored)
        response = first.reconcile(item("n1", state, wanted=5))
        assert (5, ()) == (response.results[0].state and response.results[0].state.shortage, response.servable)
        assert "subnet-frozen" == first.error(item("n2")).error
        second.send_inventory(inventory_item("n1", other))
        assert not set(addresses(first.reconcile_one(item("n1", state, wanted=200)))) & set(addresses(other))

    def test_operator_can_excuse_a_cluster(self, harness: LedgerHarness) -> None:
        Leader(harness, "absent").node()
        leader = Leader(harness)
        state = leader.node()
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        leader.move_to(restored).lead()
        leader.send_inventory(inventory_item("n1", state))
        finish_cooldowns(restored)
        assert 1 == leader.reconcile_one(item("n1", state, wanted=1)).shortage
        assert () == run(restored.client.excuse("absent")).pending_inventories
        assert 0 == leader.reconcile_one(item("n1", state, wanted=1)).shortage
        with pytest.raises(NotFound):
            run(restored.client.excuse("absent"))

    def test_addresses_released_just_before_cool_down(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        state = leader.node()
        copy = harness.store.image()
        used = leader.reconcile_one(item("n1", state, wanted=1))
        gone = leader.reconcile_one(item("n1", state, released=ids(used)))
        restored = harness.restore(copy)
        leader.move_to(restored).lead()
        leader.send_inventory(inventory_item("n1", gone))
        assert 200 == leader.reconcile_one(item("n1", state, wanted=200)).shortage
        finish_cooldowns(restored)
        assert 0 == leader.reconcile_one(item("n1", state, wanted=200)).shortage


class TestInventoriesBecomeTheDatabase:
    def prepared(
        self, harness: LedgerHarness, *, before: int, after: int
    ) -> tuple[Leader, NetworkContainerState, LedgerHarness]:
        """Return a node that held `before` when the copy was made and `after` when it was restored."""
        leader = Leader(harness)
        state = leader.node(wanted=before)
        copy = harness.store.image()
        released = ids(state)[after:]
        state = leader.reconcile_one(item("n1", state, wanted=after, released=released, cooled_seconds=60.0))
        restored = harness.restore(copy)
        leader.move_to(restored).lead()
        assert leader.inventory_required
        return leader, state, restored

    def test_row_7c_lost_grant_stays_with_its_node(self, harness: LedgerHarness) -> None:
        leader, state, restored = self.prepared(harness, before=0, after=3)
        (result,) = leader.send_inventory(inventory_item("n1", state)).results
        assert result.state is not None
        assert (state.grants, state.primary) == (result.state.grants, result.state.primary)
        assert 4 == restored.reserved()

    def test_grant_missing_in_the_inventory_is_freed_after_its_cooldown(self, harness: LedgerHarness) -> None:
        leader, state, restored = self.prepared(harness, before=5, after=2)
        leader.send_inventory(inventory_item("n1", state, cooled_seconds=60.0))
        assert 6 == restored.reserved()
        finish_cooldowns(restored)
        assert 3 == restored.reserved()

    def test_released_grants_are_removed_and_cool_down(self, harness: LedgerHarness) -> None:
        leader, state, restored = self.prepared(harness, before=1, after=4)
        named = ids(state)[2:]
        (result,) = leader.send_inventory(inventory_item("n1", state, released=tuple(named), wanted=2)).results
        assert result.state is not None
        assert state.grants[:2] == result.state.grants
        assert 5 == restored.reserved()
        finish_cooldowns(restored)
        assert 3 == restored.reserved()

    def test_row_8_released_grant_does_not_return(self, harness: LedgerHarness) -> None:
        leader, state, restored = self.prepared(harness, before=2, after=1)
        leader.send_inventory(inventory_item("n1", state))
        finish_cooldowns(restored)
        again = leader.reconcile_one(item("n1", state, wanted=40, released=ids(state)))
        assert not set(ids(state)) & set(ids(again))
        assert 40 == len(set(ids(again)))

    @pytest.mark.parametrize(("shown", "accepted", "expected"), [(1, 0, 3), (9, 0, 10), (1, 12, 13), (9, 12, 13)])
    def test_version_is_above_every_earlier_one(
        self, harness: LedgerHarness, shown: int, accepted: int, expected: int
    ) -> None:
        leader = Leader(harness)
        state = leader.node()
        state = leader.reconcile_one(item("n1", state, wanted=1))
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        leader.move_to(restored).lead()
        report = DemandReport(version=accepted)
        (result,) = leader.send_inventory(inventory_item("n1", state, version=shown, report=report)).results
        assert result.state is not None
        assert expected == result.state.version

    def test_lost_nc_is_recovered(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        copy = harness.store.image()
        state = leader.node(wanted=2)
        restored = harness.restore(copy)
        leader.move_to(restored).lead()
        (result,) = leader.send_inventory(inventory_item("n1", state)).results
        assert result.state is not None
        assert (state.nc_id, state.grants) == (result.state.nc_id, result.state.grants)
        assert state.nc_id == leader.node(wanted=2).nc_id

    def test_closed_nc_stays_closed(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        state = leader.node(wanted=2)
        leader.reconcile_one(item("n1", state, node_gone=True))
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        leader.move_to(restored).lead()
        (result,) = leader.send_inventory(inventory_item("n1", state)).results
        assert result.state is not None
        assert (True, ()) == (result.state.closed, result.state.grants)

    def test_unlisted_nc_keeps_unclaimed_addresses(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        unlisted, state = leader.node("n1", wanted=2), leader.node("n2", wanted=1)
        copy = harness.store.image()
        leader.reconcile_one(item("n2", state, wanted=2))
        restored = harness.restore(copy)
        leader.move_to(restored).lead()
        taken = Grant(id=unlisted.grants[0].id, address=unlisted.grants[0].address)
        leader.send_inventory(inventory_item("n2", state, grants=(*state.grants, taken)))
        finish_cooldowns(restored)
        assert unlisted.grants[1:] == leader.reconcile_one(item("n1", unlisted)).grants

    def test_state_of_an_unlisted_nc_is_withheld_until_all_inventories_are_in(self, harness: LedgerHarness) -> None:
        first, second = Leader(harness, "c1"), Leader(harness, "c2")
        state, other = first.node(wanted=1), second.node()
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        for leader in (first, second):
            leader.move_to(restored).lead()
        first.send_inventory()
        assert "subnet-frozen" == first.error(item("n1", state, wanted=1)).error
        second.send_inventory(inventory_item("n1", other, grants=state.grants))
        assert () == first.reconcile_one(item("n1", state)).grants

    def test_listed_successor_closes_its_predecessor(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        old = leader.node(wanted=2)
        copy = harness.store.image()
        leader.reconcile_one(item("n1", old, node_gone=True))
        new = leader.node(wanted=1)
        restored = harness.restore(copy)
        leader.move_to(restored).lead()
        leader.send_inventory(inventory_item("n1", new))
        assert leader.reconcile_one(item("n1", old)).closed
        assert new.nc_id == leader.node(wanted=1).nc_id
        periods = run(restored.client.history(node="n1")).periods
        assert {new.nc_id} == {each.nc_id for each in periods if each.until is None}

    def test_ncs_that_changed_nodes_are_found_on_them(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        first, second = leader.reconcile_one(item(node_uid="a")), leader.reconcile_one(item(node_uid="b"))
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        leader.move_to(restored).lead()
        leader.send_inventory(inventory_item("n1", first, node_uid="b"), inventory_item("n1", second, node_uid="a"))
        finish_cooldowns(restored)
        assert first.nc_id == leader.reconcile_one(item(node_uid="b")).nc_id
        assert second.nc_id == leader.reconcile_one(item(node_uid="a")).nc_id


class TestInventoryThatIsNotRequired:
    def test_row_6_unknown_grant_changes_nothing(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        state = leader.node(wanted=1)
        leader.reconcile_one(item("n1", state, released=ids(state), cooled_seconds=60.0))
        holder = leader.node("n2", wanted=200)
        response = leader.send_inventory(inventory_item("n1", state))
        assert () == response.conflicts
        (result,) = response.results
        assert result.state is not None
        assert () == result.state.grants
        assert holder == leader.reconcile_one(item("n2", holder, wanted=200))

    def test_it_counts_once_per_recovery(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        state = leader.node(wanted=1)
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        leader.move_to(restored).lead()
        leader.send_inventory(inventory_item("n1", state))
        finish_cooldowns(restored)
        growths = leader.reconcile_one(item("n1", state, wanted=3))
        leader.send_inventory(inventory_item("n1", state))
        assert growths == leader.reconcile_one(item("n1", state, wanted=3))

    def test_inventory_of_a_stale_term_changes_nothing(self, harness: LedgerHarness) -> None:
        leader = Leader(harness)
        state = leader.node(wanted=1)
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        leader.move_to(restored)
        with pytest.raises(StaleTerm):
            leader.send_inventory(inventory_item("n1", state))

    @pytest.mark.parametrize(
        ("field", "bad"),
        [
            ("grants", {"grants": (Grant(id="x", address="10.0.0.9"),)}),
            ("grants", {"grants": (Grant(id="00000000-0000-4000-8000-000000000001", address="10.0.9.9"),)}),
            ("primary", {"primary": "10.0.0.255"}),
            ("wanted", {"wanted": -1}),
            ("network_containers", {"grants": (Grant(id="00000000-0000-4000-8000-000000000001", address="10.0.0.1"),)}),
        ],
    )
    def test_invalid_inventory_is_rejected_as_a_whole(
        self, harness: LedgerHarness, field: str, bad: dict[str, object]
    ) -> None:
        leader = Leader(harness)
        state = leader.node()
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        leader.move_to(restored).lead()
        with pytest.raises(Invalid) as refused:
            leader.send_inventory(inventory_item("n1", state, **bad))
        assert field == refused.value.field
        assert len(recovery(restored).pending_inventories) == 1

    def test_state_of_anothers_nc_is_not_returned(self, harness: LedgerHarness) -> None:
        state = Leader(harness, "c1").node(wanted=2)
        (result,) = Leader(harness, "c2").send_inventory(inventory_item("n1", state)).results
        assert result.error is not None
        assert "not-found" == result.error.error

    @pytest.mark.parametrize("with_witness", [True, False])
    def test_lost_subnet_must_be_created_first(self, harness: LedgerHarness, *, with_witness: bool) -> None:
        first, second = Leader(harness, "c1"), Leader(harness, "c2")
        states = [first.node(), second.node()]
        copy = harness.store.image()
        detector = None if with_witness else harness.detector_copy()
        harness.subnet("10.0.1.0/24", name="late")
        late = SubnetName(network="vnet", name="late")
        lost = first.reconcile_one(item("n2", subnet=late, wanted=3))
        restored = harness.restore(copy, detector=detector)
        for leader in (first, second):
            leader.move_to(restored).lead()
        second.send_inventory(inventory_item("n1", states[1]))
        with pytest.raises(NotFound, match="vnet.late"):
            first.send_inventory(inventory_item("n1", states[0]), inventory_item("n2", lost))
        restored.subnet("10.0.1.0/24", name="late")
        assert "subnet-frozen" == second.error(item("n9", subnet=late)).error
        first.send_inventory(inventory_item("n1", states[0]), inventory_item("n2", lost))
        assert lost.primary != second.reconcile_one(item("n9", subnet=late)).primary

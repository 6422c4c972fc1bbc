"""Ownership conflicts: two inventories that claim one address."""

import pytest

from podpool.ledger.errors import NotFound
from podpool.ledger.messages import Grant, NetworkContainerState, RecoveryStatus, ResolveConflictRequest
from podpool.ledger.storage.rollback_detector import MemoryRollbackDetector
from tests.ledger.harness import SUBNET, Leader, LedgerHarness, addresses, inventory_item, item, run

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


class TestOwnershipConflict:
    def disputed(self, harness: LedgerHarness) -> tuple[Leader, Leader, NetworkContainerState, NetworkContainerState]:
        """Return two clusters whose inventories claim one address."""
        first, second = Leader(harness, "c1"), Leader(harness, "c2")
        mine, other = first.node(wanted=1), second.node(wanted=1)
        restored = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        for leader in (first, second):
            leader.move_to(restored).lead()
        first.send_inventory(inventory_item("n1", mine))
        claim = Grant(id="00000000-0000-4000-8000-000000000001", address=mine.grants[0].address)
        response = second.send_inventory(inventory_item("n1", other, grants=(*other.grants, claim)))
        (conflict,) = response.conflicts
        assert (mine.grants[0].address, mine.nc_id, other.nc_id) == (
            conflict.address,
            conflict.holder,
            conflict.claimant,
        )
        finish_cooldowns(restored)
        return first, second, mine, other

    def test_nothing_is_granted_and_both_states_are_withheld(self, harness: LedgerHarness) -> None:
        first, second, mine, other = self.disputed(harness)
        assert "ownership-disputed" == first.error(item("n1", mine, wanted=1)).error
        assert "ownership-disputed" == second.error(item("n1", other, node_gone=True)).error
        assert "subnet-frozen" == first.error(item("n3")).error
        assert first.harness.state().frozen

    @pytest.mark.parametrize("winner", ["holder", "claimant"])
    def test_operator_assigns_it_to_one_of_them(self, harness: LedgerHarness, winner: str) -> None:
        first, second, mine, other = self.disputed(harness)
        container = mine.nc_id if winner == "holder" else other.nc_id
        address = mine.grants[0].address
        settled = run(
            first.harness.client.resolve_conflict(
                ResolveConflictRequest(subnet=SUBNET, address=address, nc_id=container)
            )
        )
        assert () == settled.conflicts
        ours, theirs = first.reconcile_one(item("n1", mine)), second.reconcile_one(item("n1", other))
        assert [winner == "holder", winner == "claimant"] == [address in addresses(each) for each in (ours, theirs)]
        assert theirs.version > other.version
        assert not set(addresses(ours)) & set(addresses(theirs))
        assert first.node("n3").primary
        result = run(first.harness.client.history(address=address)).periods
        assert [container] == [each.nc_id for each in result if each.until is None]

    def test_only_a_claimant_can_be_assigned_it(self, harness: LedgerHarness) -> None:
        first, *_ = self.disputed(harness)
        client = first.harness.client
        decision = ResolveConflictRequest(subnet=SUBNET, address="10.0.0.200", nc_id="none")
        with pytest.raises(NotFound):
            run(client.resolve_conflict(decision))
        (conflict,) = recovery(first.harness).conflicts
        with pytest.raises(NotFound):
            run(client.resolve_conflict(ResolveConflictRequest(subnet=SUBNET, address=conflict.address, nc_id="none")))

    def test_excused_cluster_that_returns_raises_a_conflict(self, harness: LedgerHarness) -> None:
        leader, late = Leader(harness, "c1"), Leader(harness, "late")
        mine, other = leader.node(), late.node()
        copy = harness.store.image()
        other = late.reconcile_one(item("n1", other, wanted=2))
        restored = harness.restore(copy)
        leader.move_to(restored).lead()
        leader.send_inventory(inventory_item("n1", mine))
        run(restored.client.excuse("late"))
        finish_cooldowns(restored)
        taken = leader.reconcile_one(item("n1", mine, wanted=3))
        late.move_to(restored).lead()
        response = late.send_inventory(inventory_item("n1", other))
        both = set(addresses(taken)) & set(addresses(other))
        assert both
        assert both == {conflict.address for conflict in response.conflicts}

    def test_second_restore_deletes_conflicts_and_requires_inventories(self, harness: LedgerHarness) -> None:
        first, second, mine, other = self.disputed(harness)
        again = first.harness.restore(first.harness.store.image(), detector=MemoryRollbackDetector())
        assert () == recovery(again).conflicts
        for leader, state in ((first, mine), (second, other)):
            leader.move_to(again).lead()
            leader.send_inventory(inventory_item("n1", state))
        finish_cooldowns(again)
        assert mine.grants == first.reconcile_one(item("n1", mine, wanted=1)).grants

"""Memberships in the rollback detector: a file has them, the identity of a server does not."""

from podpool.ledger.messages import SubnetName
from tests.ledger.harness import Leader, LedgerHarness, addresses, inventory_item, item, run


def new_office() -> LedgerHarness:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", cooldown=30.0)
    return harness


def test_inventory_of_a_cluster_newer_than_the_backup_is_required() -> None:
    harness = new_office()
    first = Leader(harness, "c1")
    state = first.node()
    copy = harness.store.image()
    other = Leader(harness, "late").node(wanted=3)
    restored = harness.restore(copy)
    first.move_to(restored).lead()
    first.send_inventory(inventory_item("n1", state))
    restored.advance(31.0)
    assert ["late"] == [each.cluster for each in run(restored.client.recovery()).pending_inventories]
    assert 1 == first.reconcile_one(item("n1", state, wanted=1)).shortage
    late = Leader(restored, "late", known_term=1)
    late.send_inventory(inventory_item("n1", other))
    assert not set(addresses(first.reconcile_one(item("n1", state, wanted=200)))) & set(addresses(other))


def test_other_subnets_are_not_paused() -> None:
    harness = new_office()
    harness.subnet("10.0.1.0/24", name="other")
    other = SubnetName(network="vnet", name="other")
    Leader(harness, "absent").node()
    leader = Leader(harness, "c1")
    state = leader.reconcile_one(item(subnet=other))
    copy = harness.store.image()
    leader.reconcile_one(item("n1", state, subnet=other, wanted=1))
    restored = harness.restore(copy)
    leader.move_to(restored).lead()
    leader.send_inventory(inventory_item("n1", state))
    restored.advance(31.0)
    assert 0 == leader.reconcile_one(item("n1", state, subnet=other, wanted=5)).shortage

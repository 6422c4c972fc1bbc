"""Memberships in the rollback detector: a file has them, the identity of a server does not."""

from podpool.ledger.messages import SubnetName
from tests.ledger.offices import Leader, Office, addresses, done, item, listed


def new_office() -> Office:
    office = Office()
    office.subnet("10.0.0.0/24", cooldown=30.0)
    return office


def test_inventory_of_a_cluster_newer_than_the_backup_is_required() -> None:
    office = new_office()
    first = Leader(office, "c1")
    state = first.node()
    copy = office.store.image()
    other = Leader(office, "late").node(wanted=3)
    restored = office.restored(copy)
    first.moved_to(restored).lead()
    first.list_all(listed("n1", state))
    restored.later(31.0)
    assert ["late"] == [each.cluster for each in done(restored.client.recovery()).pending_inventories]
    assert 1 == first.one(item("n1", state, wanted=1)).shortage
    late = Leader(restored, "late", known=1)
    late.list_all(listed("n1", other))
    assert not set(addresses(first.one(item("n1", state, wanted=200)))) & set(addresses(other))


def test_other_subnets_are_not_paused() -> None:
    office = new_office()
    office.subnet("10.0.1.0/24", name="other")
    other = SubnetName(network="vnet", name="other")
    Leader(office, "absent").node()
    leader = Leader(office, "c1")
    state = leader.one(item(subnet=other))
    copy = office.store.image()
    leader.one(item("n1", state, subnet=other, wanted=1))
    restored = office.restored(copy)
    leader.moved_to(restored).lead()
    leader.list_all(listed("n1", state))
    restored.later(31.0)
    assert 0 == leader.one(item("n1", state, subnet=other, wanted=5)).shortage

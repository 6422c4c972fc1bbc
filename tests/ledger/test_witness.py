"""A witness that remembers who has something where: the one beside a file does, a server's identity does not."""

from podpool.ledger.messages import SubnetName
from tests.ledger.offices import Leader, Office, addresses, done, item, listed


def new_office() -> Office:
    office = Office()
    office.subnet("10.0.0.0/24", cooldown=30.0)
    return office


def test_a_cluster_that_came_after_the_copy_is_waited_for() -> None:
    office = new_office()
    first = Leader(office, "c1")
    state = first.node()
    copy = office.store.image()
    other = Leader(office, "late").node(wanted=3)
    restored = office.restored(copy)
    first.moved_to(restored).lead()
    first.list_all(listed("n1", state))
    restored.later(31.0)
    assert ["late"] == [each.cluster for each in done(restored.client.recovery()).awaited]
    assert 1 == first.one(item("n1", state, wanted=1)).short
    late = Leader(restored, "late", known=1)
    late.list_all(listed("n1", other))
    assert not set(addresses(first.one(item("n1", state, wanted=200)))) & set(addresses(other))


def test_other_subnets_are_not_held_up() -> None:
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
    assert 0 == leader.one(item("n1", state, subnet=other, wanted=5)).short

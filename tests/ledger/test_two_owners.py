"""Two lists that claim one address: an alarm, and how it ends."""

import pytest

from podpool.ledger.errors import NotFound
from podpool.ledger.messages import ContainerState, Grant, Recovery, Settle
from podpool.ledger.storage.rollback_detector import MemoryWitness
from tests.ledger.offices import SUBNET, Leader, Office, addresses, done, item, listed

pytestmark = pytest.mark.usefixtures("books")


@pytest.fixture
def office() -> Office:
    office = Office()
    office.subnet("10.0.0.0/24", cooldown=30.0)
    return office


def recovery(office: Office) -> Recovery:
    return done(office.client.recovery())


def over(office: Office) -> None:
    """Let the rests end that may have been lost with the books."""
    office.later(31.0)


class TestTwoOwners:
    def disputed(self, office: Office) -> tuple[Leader, Leader, ContainerState, ContainerState]:
        """Two clusters that list one address."""
        first, second = Leader(office, "c1"), Leader(office, "c2")
        mine, other = first.node(wanted=1), second.node(wanted=1)
        restored = office.restored(office.store.image(), witness=MemoryWitness())
        for leader in (first, second):
            leader.moved_to(restored).lead()
        first.list_all(listed("n1", mine))
        claim = Grant(id="00000000-0000-4000-8000-000000000001", address=mine.grants[0].address)
        answer = second.list_all(listed("n1", other, grants=(*other.grants, claim)))
        (alarm,) = answer.alarms
        assert (mine.grants[0].address, mine.container, other.container) == (
            alarm.address,
            alarm.holder,
            alarm.claimant,
        )
        over(restored)
        return first, second, mine, other

    def test_nothing_is_granted_and_nothing_is_told_of_the_two(self, office: Office) -> None:
        first, second, mine, other = self.disputed(office)
        assert "two-owners" == first.problem(item("n1", mine, wanted=1)).error
        assert "two-owners" == second.problem(item("n1", other, gone=True)).error
        assert "frozen" == first.problem(item("n3")).error
        assert first.office.state().frozen

    @pytest.mark.parametrize("winner", ["holder", "claimant"])
    def test_a_person_gives_it_to_one_of_them(self, office: Office, winner: str) -> None:
        first, second, mine, other = self.disputed(office)
        container = mine.container if winner == "holder" else other.container
        address = mine.grants[0].address
        settled = done(first.office.client.settle(Settle(subnet=SUBNET, address=address, container=container)))
        assert () == settled.alarms
        ours, theirs = first.one(item("n1", mine)), second.one(item("n1", other))
        assert [winner == "holder", winner == "claimant"] == [address in addresses(each) for each in (ours, theirs)]
        assert theirs.version > other.version
        assert not set(addresses(ours)) & set(addresses(theirs))
        assert first.node("n3").primary
        told = done(first.office.client.history(address=address)).tenures
        assert [container] == [each.container for each in told if each.until is None]

    def test_only_one_of_the_two_can_be_given_it(self, office: Office) -> None:
        first, *_ = self.disputed(office)
        client = first.office.client
        decision = Settle(subnet=SUBNET, address="10.0.0.200", container="nobody")
        with pytest.raises(NotFound):
            done(client.settle(decision))
        (alarm,) = recovery(first.office).alarms
        with pytest.raises(NotFound):
            done(client.settle(Settle(subnet=SUBNET, address=alarm.address, container="nobody")))

    def test_an_excused_cluster_that_returns_raises_the_alarm_that_it_must(self, office: Office) -> None:
        leader, late = Leader(office, "c1"), Leader(office, "late")
        mine, other = leader.node(), late.node()
        copy = office.store.image()
        other = late.one(item("n1", other, wanted=2))
        restored = office.restored(copy)
        leader.moved_to(restored).lead()
        leader.list_all(listed("n1", mine))
        done(restored.client.excuse("late"))
        over(restored)
        taken = leader.one(item("n1", mine, wanted=3))
        late.moved_to(restored).lead()
        answer = late.list_all(listed("n1", other))
        both = set(addresses(taken)) & set(addresses(other))
        assert both
        assert both == {alarm.address for alarm in answer.alarms}

    def test_a_second_restore_forgets_the_alarms_and_asks_again(self, office: Office) -> None:
        first, second, mine, other = self.disputed(office)
        again = first.office.restored(first.office.store.image(), witness=MemoryWitness())
        assert () == recovery(again).alarms
        for leader, state in ((first, mine), (second, other)):
            leader.moved_to(again).lead()
            leader.list_all(listed("n1", state))
        over(again)
        assert mine.grants == first.one(item("n1", mine, wanted=1)).grants

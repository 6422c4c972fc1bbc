"""After a restore from an older copy: the traces that broke earlier drafts, and what the rules say about them."""

import pytest

from podpool.ledger.errors import Invalid, InventoryRequired, NotFound, StaleTerm
from podpool.ledger.messages import NetworkContainerState, Grant, RecoveryStatus, DemandReport, SubnetName
from podpool.ledger.storage.rollback_detector import MemoryRollbackDetector
from tests.ledger.offices import Leader, Office, addresses, done, ids, item, listed

pytestmark = pytest.mark.usefixtures("books")


@pytest.fixture
def office() -> Office:
    office = Office()
    office.subnet("10.0.0.0/24", cooldown=30.0)
    return office


def recovery(office: Office) -> RecoveryStatus:
    return done(office.client.recovery())


def over(office: Office) -> None:
    """Let the rests end that may have been lost with the books."""
    office.later(31.0)


class TestNoticing:
    def test_a_restart_on_the_same_books_is_no_restore(self, office: Office) -> None:
        leader = Leader(office)
        state = leader.node(wanted=2)
        leader.moved_to(office.restored(office.store.image()))
        assert state == leader.one(item("n1", state, wanted=2))

    def test_the_witness_ends_every_term(self, office: Office) -> None:
        leader = Leader(office)
        copy = office.store.image()
        leader.node()
        leader.moved_to(office.restored(copy))
        leader.seen = 0
        with pytest.raises(StaleTerm, match="restored"):
            leader.node()

    def test_a_caller_that_has_seen_a_higher_revision_is_a_witness(self, office: Office) -> None:
        leader = Leader(office)
        copy, witness = office.store.image(), office.witness_copy()
        leader.node()
        restored = office.restored(copy, witness=witness)
        assert () == recovery(restored).pending_inventories
        leader.moved_to(restored)
        with pytest.raises(StaleTerm):
            leader.node()
        assert ["c1"] == [each.cluster for each in recovery(restored).pending_inventories]

    def test_a_caller_that_knows_a_higher_term_is_a_witness(self, office: Office) -> None:
        copy, witness = office.store.image(), office.witness_copy()
        leader = Leader(office)
        restored = office.restored(copy, witness=witness)
        leader.seen = 0
        leader.moved_to(restored).lead()
        assert leader.listing_wanted

    def test_books_without_their_witness_are_taken_as_restored(self, office: Office) -> None:
        Leader(office).node()
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        assert restored.state().frozen

    def test_the_new_term_is_above_one_that_the_books_have_forgotten(self, office: Office) -> None:
        copy = office.store.image()
        old = Leader(office)
        new = Leader(office.restored(copy))
        assert new.term > old.term

    def test_even_when_the_witness_is_lost_too(self, office: Office) -> None:
        """A new leader has seen little of what the old one did after the copy; its term is higher all the same."""
        copy, witness = office.store.image(), office.witness_copy()
        first = Leader(office)
        later = [Leader(office).term for _ in range(20)]
        new = Leader(office.restored(copy, witness=witness), known=first.term, seen=first.seen)
        assert new.listing_wanted
        assert new.term > max(later)

    def test_a_cluster_that_has_nothing_to_lose_need_not_list(self, office: Office) -> None:
        Leader(office, "c1").node()
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        assert not Leader(restored, "new").listing_wanted


class TestNothingIsGranted:
    def test_row_7_a_call_under_way_gets_nothing_that_the_books_have_forgotten(self, office: Office) -> None:
        leader = Leader(office)
        first = leader.node("n0")
        copy = office.store.image()
        used = leader.one(item("n0", first, wanted=1))
        restored = office.restored(copy)
        with pytest.raises(StaleTerm):
            leader.moved_to(restored).one(item("n1", wanted=200))
        leader.lead()
        with pytest.raises(InventoryRequired):
            leader.one(item("n1", wanted=200))
        leader.list_all(listed("n0", used))
        over(restored)
        assert used.grants[0].address not in addresses(leader.one(item("n1", wanted=200)))

    def test_not_before_each_cluster_on_the_subnet_has_listed(self, office: Office) -> None:
        first, second = Leader(office, "c1"), Leader(office, "c2")
        state, other = first.node(), second.node()
        copy = office.store.image()
        other = second.one(item("n1", other, wanted=3))
        restored = office.restored(copy)
        for leader in (first, second):
            leader.moved_to(restored).lead()
        first.list_all(listed("n1", state))
        over(restored)
        answer = first.call(item("n1", state, wanted=5))
        assert (5, ()) == (answer.results[0].state and answer.results[0].state.short, answer.servable)
        assert "frozen" == first.problem(item("n2")).error
        second.list_all(listed("n1", other))
        assert not set(addresses(first.one(item("n1", state, wanted=200)))) & set(addresses(other))

    def test_a_person_can_excuse_a_cluster(self, office: Office) -> None:
        Leader(office, "absent").node()
        leader = Leader(office)
        state = leader.node()
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        leader.moved_to(restored).lead()
        leader.list_all(listed("n1", state))
        over(restored)
        assert 1 == leader.one(item("n1", state, wanted=1)).short
        assert () == done(restored.client.excuse("absent")).pending_inventories
        assert 0 == leader.one(item("n1", state, wanted=1)).short
        with pytest.raises(NotFound):
            done(restored.client.excuse("absent"))

    def test_what_was_released_just_before_rests(self, office: Office) -> None:
        leader = Leader(office)
        state = leader.node()
        copy = office.store.image()
        used = leader.one(item("n1", state, wanted=1))
        gone = leader.one(item("n1", state, released=ids(used)))
        restored = office.restored(copy)
        leader.moved_to(restored).lead()
        leader.list_all(listed("n1", gone))
        assert 200 == leader.one(item("n1", state, wanted=200)).short
        over(restored)
        assert 0 == leader.one(item("n1", state, wanted=200)).short


class TestTheListsBecomeTheBooks:
    def prepared(self, office: Office, *, before: int, after: int) -> tuple[Leader, NetworkContainerState, Office]:
        """A node that held `before` when the copy was made and `after` when it was restored."""
        leader = Leader(office)
        state = leader.node(wanted=before)
        copy = office.store.image()
        released = ids(state)[after:]
        state = leader.one(item("n1", state, wanted=after, released=released, cooled_seconds=60.0))
        restored = office.restored(copy)
        leader.moved_to(restored).lead()
        assert leader.listing_wanted
        return leader, state, restored

    def test_row_7c_a_grant_that_the_books_have_forgotten_stays_with_its_node(self, office: Office) -> None:
        leader, state, restored = self.prepared(office, before=0, after=3)
        (result,) = leader.list_all(listed("n1", state)).results
        assert result.state is not None
        assert (state.grants, state.primary) == (result.state.grants, result.state.primary)
        assert 4 == restored.reserved()

    def test_a_grant_that_only_the_books_have_is_free_after_rest(self, office: Office) -> None:
        leader, state, restored = self.prepared(office, before=5, after=2)
        leader.list_all(listed("n1", state, cooled_seconds=60.0))
        assert 6 == restored.reserved()
        over(restored)
        assert 3 == restored.reserved()

    def test_named_grants_are_taken_off_and_rest(self, office: Office) -> None:
        leader, state, restored = self.prepared(office, before=1, after=4)
        named = ids(state)[2:]
        (result,) = leader.list_all(listed("n1", state, released=tuple(named), wanted=2)).results
        assert result.state is not None
        assert state.grants[:2] == result.state.grants
        assert 5 == restored.reserved()
        over(restored)
        assert 3 == restored.reserved()

    def test_row_8_a_released_name_does_not_come_back(self, office: Office) -> None:
        leader, state, restored = self.prepared(office, before=2, after=1)
        leader.list_all(listed("n1", state))
        over(restored)
        again = leader.one(item("n1", state, wanted=40, released=ids(state)))
        assert not set(ids(state)) & set(ids(again))
        assert 40 == len(set(ids(again)))

    @pytest.mark.parametrize(("shown", "accepted", "expected"), [(1, 0, 3), (9, 0, 10), (1, 12, 13), (9, 12, 13)])
    def test_the_version_is_above_everything_that_was_ever_told(
        self, office: Office, shown: int, accepted: int, expected: int
    ) -> None:
        leader = Leader(office)
        state = leader.node()
        state = leader.one(item("n1", state, wanted=1))
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        leader.moved_to(restored).lead()
        report = DemandReport(version=accepted)
        (result,) = leader.list_all(listed("n1", state, version=shown, report=report)).results
        assert result.state is not None
        assert expected == result.state.version

    def test_a_container_that_the_books_have_forgotten_is_there_again(self, office: Office) -> None:
        leader = Leader(office)
        copy = office.store.image()
        state = leader.node(wanted=2)
        restored = office.restored(copy)
        leader.moved_to(restored).lead()
        (result,) = leader.list_all(listed("n1", state)).results
        assert result.state is not None
        assert (state.nc_id, state.grants) == (result.state.nc_id, result.state.grants)
        assert state.nc_id == leader.node(wanted=2).nc_id

    def test_a_container_that_was_closed_stays_closed(self, office: Office) -> None:
        leader = Leader(office)
        state = leader.node(wanted=2)
        leader.one(item("n1", state, gone=True))
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        leader.moved_to(restored).lead()
        (result,) = leader.list_all(listed("n1", state)).results
        assert result.state is not None
        assert (True, ()) == (result.state.closed, result.state.grants)

    def test_a_container_that_no_list_shows_keeps_what_nobody_lists(self, office: Office) -> None:
        leader = Leader(office)
        unlisted, state = leader.node("n1", wanted=2), leader.node("n2", wanted=1)
        copy = office.store.image()
        leader.one(item("n2", state, wanted=2))
        restored = office.restored(copy)
        leader.moved_to(restored).lead()
        taken = Grant(id=unlisted.grants[0].id, address=unlisted.grants[0].address)
        leader.list_all(listed("n2", state, grants=(*state.grants, taken)))
        over(restored)
        assert unlisted.grants[1:] == leader.one(item("n1", unlisted)).grants

    def test_nothing_is_told_of_an_unlisted_container_before_all_lists_are_in(self, office: Office) -> None:
        first, second = Leader(office, "c1"), Leader(office, "c2")
        state, other = first.node(wanted=1), second.node()
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        for leader in (first, second):
            leader.moved_to(restored).lead()
        first.list_all()
        assert "frozen" == first.problem(item("n1", state, wanted=1)).error
        second.list_all(listed("n1", other, grants=state.grants))
        assert () == first.one(item("n1", state)).grants

    def test_a_follower_of_the_same_node_closes_the_one_that_the_books_have(self, office: Office) -> None:
        leader = Leader(office)
        old = leader.node(wanted=2)
        copy = office.store.image()
        leader.one(item("n1", old, gone=True))
        new = leader.node(wanted=1)
        restored = office.restored(copy)
        leader.moved_to(restored).lead()
        leader.list_all(listed("n1", new))
        assert leader.one(item("n1", old)).closed
        assert new.nc_id == leader.node(wanted=1).nc_id
        told = done(restored.client.history(node="n1")).periods
        assert {new.nc_id} == {each.nc_id for each in told if each.until is None}

    def test_containers_that_changed_their_nodes_are_found_on_them(self, office: Office) -> None:
        leader = Leader(office)
        first, second = leader.one(item(node_uid="a")), leader.one(item(node_uid="b"))
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        leader.moved_to(restored).lead()
        leader.list_all(listed("n1", first, node_uid="b"), listed("n1", second, node_uid="a"))
        over(restored)
        assert first.nc_id == leader.one(item(node_uid="b")).nc_id
        assert second.nc_id == leader.one(item(node_uid="a")).nc_id


class TestAListThatIsNotWanted:
    def test_row_6_a_grant_that_the_books_do_not_hold_changes_nothing(self, office: Office) -> None:
        leader = Leader(office)
        state = leader.node(wanted=1)
        leader.one(item("n1", state, released=ids(state), cooled_seconds=60.0))
        hog = leader.node("n2", wanted=200)
        answer = leader.list_all(listed("n1", state))
        assert () == answer.conflicts
        (result,) = answer.results
        assert result.state is not None
        assert () == result.state.grants
        assert hog == leader.one(item("n2", hog, wanted=200))

    def test_it_counts_once_in_a_recovery(self, office: Office) -> None:
        leader = Leader(office)
        state = leader.node(wanted=1)
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        leader.moved_to(restored).lead()
        leader.list_all(listed("n1", state))
        over(restored)
        growths = leader.one(item("n1", state, wanted=3))
        leader.list_all(listed("n1", state))
        assert growths == leader.one(item("n1", state, wanted=3))

    def test_an_older_term_s_list_changes_nothing(self, office: Office) -> None:
        leader = Leader(office)
        state = leader.node(wanted=1)
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        leader.moved_to(restored)
        with pytest.raises(StaleTerm):
            leader.list_all(listed("n1", state))

    @pytest.mark.parametrize(
        ("field", "bad"),
        [
            ("grants", {"grants": (Grant(id="x", address="10.0.0.9"),)}),
            ("grants", {"grants": (Grant(id="00000000-0000-4000-8000-000000000001", address="10.0.9.9"),)}),
            ("primary", {"primary": "10.0.0.255"}),
            ("wanted", {"wanted": -1}),
            ("containers", {"grants": (Grant(id="00000000-0000-4000-8000-000000000001", address="10.0.0.1"),)}),
        ],
    )
    def test_one_that_cannot_be_meant_is_refused_as_a_whole(
        self, office: Office, field: str, bad: dict[str, object]
    ) -> None:
        leader = Leader(office)
        state = leader.node()
        restored = office.restored(office.store.image(), witness=MemoryRollbackDetector())
        leader.moved_to(restored).lead()
        with pytest.raises(Invalid) as refused:
            leader.list_all(listed("n1", state, **bad))
        assert field == refused.value.field
        assert len(recovery(restored).pending_inventories) == 1

    def test_nothing_is_told_of_another_cluster_s_container(self, office: Office) -> None:
        state = Leader(office, "c1").node(wanted=2)
        (result,) = Leader(office, "c2").list_all(listed("n1", state)).results
        assert result.error is not None
        assert "not-found" == result.error.error

    @pytest.mark.parametrize("with_witness", [True, False])
    def test_a_subnet_that_the_books_have_forgotten_must_be_made_again_first(
        self, office: Office, *, with_witness: bool
    ) -> None:
        first, second = Leader(office, "c1"), Leader(office, "c2")
        states = [first.node(), second.node()]
        copy = office.store.image()
        witness = None if with_witness else office.witness_copy()
        office.subnet("10.0.1.0/24", name="late")
        late = SubnetName(network="vnet", name="late")
        lost = first.one(item("n2", subnet=late, wanted=3))
        restored = office.restored(copy, witness=witness)
        for leader in (first, second):
            leader.moved_to(restored).lead()
        second.list_all(listed("n1", states[1]))
        with pytest.raises(NotFound, match="vnet.late"):
            first.list_all(listed("n1", states[0]), listed("n2", lost))
        restored.subnet("10.0.1.0/24", name="late")
        assert "frozen" == second.problem(item("n9", subnet=late)).error
        first.list_all(listed("n1", states[0]), listed("n2", lost))
        assert lost.primary != second.one(item("n9", subnet=late)).primary

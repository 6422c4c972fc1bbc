"""Decisions about one slice: every state and every listing, and the status that is reported."""

import itertools

import msgspec
import pytest

from podpool.agent.records import NodeConfirmed, SliceAcquired, SliceClosed, SliceRemoved
from podpool.agent.secondary.slice_lifecycle import (
    Action,
    Facts,
    Listing,
    State,
    StatusInputs,
    build_status,
    decide,
    is_urgent,
    status_patch,
)
from podpool.agent.secondary.slices import KEPT_RETURNED, Slices
from podpool.api.node_slices import (
    Assignment,
    FormerNode,
    NodeSlices,
    NodeSlicesSpec,
    NodeSlicesStatus,
    SliceStatus,
)

USES_ADDRESSES = (Action.ACQUIRE, Action.RESUME)
INPUTS = StatusInputs(
    node_uid="uid", boot_id="boot", inventory="request", acknowledgements={}, in_use=lambda each: bool(each.assigned)
)
ASSIGNMENT = Assignment(id="one", network="net", range="10.0.0.0/8", slice="10.0.4.0/24")
ENTRY = SliceStatus(id="one", network="net", range="10.0.0.0/8", slice="10.0.4.0/24")


def facts(state: State, listing: Listing, **fields: object) -> Facts:
    return msgspec.structs.replace(Facts(state=state, listing=listing), **fields)


def slices_of(*, closed: bool = False) -> Slices:
    """Return a journal with one slice."""
    slices = Slices()
    slices.apply(
        SliceAcquired(
            assignment="one",
            name="net-node-10.0.4.0-24",
            network="net",
            range="10.0.0.0/8",
            slice="10.0.4.0/24",
            at=1.0,
            confirmed=True,
        )
    )
    if closed:
        slices.apply(SliceClosed(assignment="one"))
    return slices


def shown(*entries: SliceStatus, listed: bool = True, former: bool = False) -> NodeSlices:
    assignments = (ASSIGNMENT,) if listed else ()
    former_nodes = (FormerNode(node_uid="before", assignments=(ASSIGNMENT,)),) if former else ()
    spec = NodeSlicesSpec(node_uid="uid", assignments=assignments, former=former_nodes)
    return NodeSlices(spec=spec, status=NodeSlicesStatus(slices=entries))


class TestDecisions:
    @pytest.mark.parametrize(("state", "listing"), [*itertools.product(State, Listing)])
    def test_no_address_is_used_without_the_confirmation_of_the_last_acknowledgement(
        self, state: State, listing: Listing
    ) -> None:
        for acknowledgement, confirmed in itertools.product(("", "a"), ("", "b")):
            found = decide(facts(state, listing, acknowledgement=acknowledgement, confirmed=confirmed))
            assert found not in USES_ADDRESSES

    @pytest.mark.parametrize(("state", "listing"), [*itertools.product(State, Listing)])
    def test_nothing_is_acknowledged_or_used_while_the_fence_is_closed(self, state: State, listing: Listing) -> None:
        for acknowledgement in ("", "a"):
            found = decide(
                facts(state, listing, acknowledgement=acknowledgement, confirmed=acknowledgement, fence_open=False)
            )
            assert found not in (*USES_ADDRESSES, Action.ACKNOWLEDGE)

    @pytest.mark.parametrize("listing", [*Listing])
    def test_a_closed_slice_is_returned_when_it_is_unused_and_never_used_after_that(self, listing: Listing) -> None:
        confirmed = {"acknowledgement": "a", "confirmed": "a"}
        assert Action.RETURN_IF_UNUSED is decide(facts(State.CLOSED, listing, **confirmed))
        assert Action.NOTHING is decide(facts(State.RETURNED, listing, **confirmed))

    @pytest.mark.parametrize("listing", [each for each in Listing if each is not Listing.LISTED])
    def test_a_closed_slice_in_use_stays_closed_unless_it_is_listed_again(self, listing: Listing) -> None:
        confirmed = {"acknowledgement": "a", "confirmed": "a"}
        assert Action.NOTHING is decide(facts(State.CLOSED, listing, in_use=True, **confirmed))
        assert Action.RESUME is decide(facts(State.CLOSED, Listing.LISTED, in_use=True, **confirmed))

    @pytest.mark.parametrize(
        ("state", "before", "after"),
        [
            (State.ABSENT, Action.ACKNOWLEDGE, Action.ACQUIRE),
            (State.SUSPENDED, Action.ACKNOWLEDGE, Action.RESUME),
            (State.HELD, Action.NOTHING, Action.NOTHING),
        ],
    )
    def test_a_listed_slice_is_acknowledged_and_used_when_confirmed(
        self, state: State, before: Action, after: Action
    ) -> None:
        assert before is decide(facts(state, Listing.LISTED, confirmed="earlier"))
        assert Action.NOTHING is decide(facts(state, Listing.LISTED, acknowledgement="a", confirmed="earlier"))
        assert after is decide(facts(state, Listing.LISTED, acknowledgement="a", confirmed="a"))

    def test_a_lost_slice_is_suspended_and_acknowledged_for_when_it_is_listed_again(self) -> None:
        assert Action.SUSPEND is decide(facts(State.HELD, Listing.UNLISTED, in_use=True))
        assert Action.ACKNOWLEDGE is decide(facts(State.SUSPENDED, Listing.UNLISTED, in_use=True))

    @pytest.mark.parametrize("listing", [Listing.LISTED, Listing.RETURNING])
    def test_a_slice_that_is_listed_again_unconfirmed_is_suspended(self, listing: Listing) -> None:
        """Another node may have its addresses: the controller confirms it if not (slices-restores, seed 3)."""
        assert Action.SUSPEND is decide(facts(State.HELD, listing, in_use=True))

    @pytest.mark.parametrize("state", [State.HELD, State.SUSPENDED])
    @pytest.mark.parametrize("listing", [Listing.FORMER, Listing.REPLACED])
    def test_a_slice_of_a_former_node_or_of_another_assignment_is_closed(self, state: State, listing: Listing) -> None:
        assert Action.CLOSE is decide(facts(state, listing, in_use=True))

    def test_a_slice_is_returned_when_it_is_unused(self) -> None:
        assert Action.RETURN_IF_UNUSED is decide(facts(State.HELD, Listing.RETURNING))
        assert Action.NOTHING is decide(facts(State.HELD, Listing.RETURNING, in_use=True, confirmed="earlier"))
        assert Action.ACQUIRE_SUSPENDED is decide(facts(State.ABSENT, Listing.RETURNING))

    def test_a_suspended_slice_to_be_returned_may_be_used_on_while_pods_have_addresses(self) -> None:
        assert Action.ACKNOWLEDGE is decide(facts(State.SUSPENDED, Listing.RETURNING, in_use=True))
        assert Action.RETURN_IF_UNUSED is decide(facts(State.SUSPENDED, Listing.RETURNING))

    def test_a_slice_that_overlaps_another_is_not_acknowledged(self) -> None:
        for state in (State.ABSENT, State.CLOSED):
            assert Action.NOTHING is decide(facts(state, Listing.LISTED, in_use=True, overlaps=True))


class TestStatus:
    def test_a_held_slice_is_reported_also_if_nothing_shows_it(self) -> None:
        expected = msgspec.structs.replace(ENTRY, held=True)
        status = build_status(slices_of(), shown(listed=False), INPUTS)
        assert (expected,) == status.slices
        assert (1, "uid", "boot", "request") == (status.protocol, status.node_uid, status.boot_id, status.inventory)

    def test_the_last_acknowledgement_is_reported_else_the_one_that_is_shown(self) -> None:
        before = shown(msgspec.structs.replace(ENTRY, acknowledgement="earlier"))
        new = msgspec.structs.replace(INPUTS, acknowledgements={"one": "new"})
        assert ["new"] == [each.acknowledgement for each in build_status(slices_of(), before, new).slices]
        assert ["earlier"] == [each.acknowledgement for each in build_status(slices_of(), before, INPUTS).slices]
        assert ["new"] == [each.acknowledgement for each in build_status(Slices(), before, new).slices]

    def test_an_assignment_is_not_reported_before_it_is_acknowledged(self) -> None:
        assert () == build_status(Slices(), shown(), INPUTS).slices

    @pytest.mark.parametrize("listed", [True, False])
    def test_what_an_agent_without_this_journal_reported_is_kept(self, listed: bool) -> None:
        entry = msgspec.structs.replace(ENTRY, held=True, in_use=True, acknowledgement="earlier")
        assert (entry,) == build_status(Slices(), shown(entry, listed=listed), INPUTS).slices

    def test_a_slice_is_reported_as_held_until_its_return_is_in_the_journal(self) -> None:
        held, returned = (msgspec.structs.replace(ENTRY, **{field: True}) for field in ("held", "returned"))
        slices = slices_of(closed=True)
        assert (held,) == build_status(slices, shown(), INPUTS).slices
        slices.apply(SliceRemoved(assignment="one"))
        assert (returned,) == build_status(slices, shown(), INPUTS).slices
        assert () == build_status(slices, shown(returned, listed=False), INPUTS).slices

    @pytest.mark.parametrize("listed", [True, False])
    def test_a_return_is_never_withdrawn(self, listed: bool) -> None:
        """A restored API server shows the slice as held, or its agent has lost its journal."""
        slices = slices_of(closed=True)
        slices.apply(SliceRemoved(assignment="one"))
        held = msgspec.structs.replace(ENTRY, held=True, acknowledgement="a")
        returned = msgspec.structs.replace(ENTRY, returned=True)
        assert (returned,) == build_status(slices, shown(held, listed=listed), INPUTS).slices
        assert (returned,) == build_status(Slices(), shown(returned), INPUTS).slices

    def test_slices_of_former_nodes_are_not_reported(self) -> None:
        held = msgspec.structs.replace(ENTRY, held=True)
        for slices in (slices_of(), Slices()):
            assert () == build_status(slices, shown(held, listed=False, former=True), INPUTS).slices

    def test_only_use_is_not_urgent(self) -> None:
        held, acknowledged = (
            NodeSlicesStatus(slices=(msgspec.structs.replace(ENTRY, **fields),))
            for fields in ({"held": True, "in_use": True}, {"acknowledgement": "a"})
        )
        assert not is_urgent(NodeSlicesStatus(slices=(ENTRY,)), held)
        assert is_urgent(NodeSlicesStatus(slices=(ENTRY,)), acknowledged)
        assert is_urgent(NodeSlicesStatus(), NodeSlicesStatus(inventory="request"))

    def test_a_patch_replaces_everything(self) -> None:
        assert {"status": {"protocol": 1, "nodeUID": None, "bootID": None, "inventory": None, "rolledBack": None}} == {
            "status": {
                name: each
                for name, each in status_patch(NodeSlicesStatus(protocol=1))["status"].items()
                if name != "slices" or each
            }
        }


class TestJournal:
    def test_an_opened_fence_suspends_every_slice(self) -> None:
        slices = slices_of()
        for reopened, node_only, confirmed in ((False, True, True), (True, False, True), (True, True, False)):
            slices.apply(NodeConfirmed(boot=2.0, wall=2.0, node_only=node_only, reopened=reopened))
            assert [confirmed] == [each.confirmed for each in slices]

    def test_the_last_returned_slices_are_known(self) -> None:
        slices = Slices()
        for number in range(KEPT_RETURNED + 1):
            id_, prefix = f"slice-{number}", f"10.0.{number}.0/24"
            slices.apply(SliceAcquired(assignment=id_, name=id_, network="", range="10.0.0.0/8", slice=prefix, at=1.0))
            slices.apply(SliceRemoved(assignment=id_))
        assert tuple(f"slice-{number}" for number in range(1, KEPT_RETURNED + 1)) == tuple(slices.returned)

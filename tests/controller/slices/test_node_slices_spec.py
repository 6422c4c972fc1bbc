"""The spec of one node's NodeSlices: each transition of an assignment, and which Node has which."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from podpool.api.builtin import Node, NodeStatus, NodeSystemInfo
from podpool.api.meta import ObjectMeta
from podpool.api.node_slices import Assignment, FormerNode, NodeSlices, NodeSlicesSpec, NodeSlicesStatus, SliceStatus
from podpool.controller.slices.node_slices_spec import (
    DISPUTED,
    UNWANTED,
    DesiredSlice,
    NodeInputs,
    SpecDecision,
    identify_node,
    next_spec,
    release_node,
)
from podpool.controller.slices.slice_ownership import (
    OwnedSlice,
    SliceState,
    read_slices,
    resolve_conflicts,
    without_implausible_claims,
)
from podpool.core.ranges import parse_prefix
from podpool.core.slice_table import parse_slice_size

RANGE, SLICE, OTHER = "10.1.0.0/24", "10.1.0.0/26", "10.1.0.64/26"
DESIRED = DesiredSlice(network="red", range=parse_prefix(RANGE), slice=parse_prefix(SLICE))
OUTGROWN = replace(DESIRED, return_reason="too large")


def assignment(id_: str = "a", slice_: str = SLICE, **fields: Any) -> Assignment:  # noqa: ANN401  of a struct
    return Assignment(id=id_, network="red", range=RANGE, slice=slice_, **fields)


def shown(id_: str = "a", slice_: str = SLICE, **fields: Any) -> SliceStatus:  # noqa: ANN401  of a struct
    return SliceStatus(id=id_, network="red", range=RANGE, slice=slice_, **fields)


def spec(*assignments: Assignment, uid: str = "u1", former: Iterable[FormerNode] = ()) -> NodeSlicesSpec:
    return NodeSlicesSpec(node_uid=uid, assignments=assignments, former=tuple(former))


def status(*slices: SliceStatus, uid: str = "u1", boot: str = "b1", protocol: int = 1) -> NodeSlicesStatus:
    return NodeSlicesStatus(protocol=protocol, node_uid=uid, boot_id=boot, slices=slices)


def inputs(*desired: DesiredSlice, **fields: Any) -> NodeInputs:  # noqa: ANN401  of a struct
    known: dict[str, Any] = {"settled": {"red"}, "sliced": {"red"}, "inventory_complete": True, "answered": True}
    return NodeInputs(desired=desired, **{**known, **fields})


def decide(before: NodeSlicesSpec, shows: NodeSlicesStatus, given: NodeInputs) -> SpecDecision:
    numbers = itertools.count(1)
    return next_spec(before, shows, given, new_id=lambda: f"new-{next(numbers)}")


NEW = assignment("new-1")
ACKNOWLEDGED = status(shown(acknowledgement="k"))
HELD = status(shown(acknowledgement="k", held=True))
CONFIRMED = assignment(confirmed="k")
RETURNING = assignment(return_reason=UNWANTED)


@pytest.mark.parametrize(
    ("before", "shows", "given", "after", "asks"),
    [
        # assigned
        (spec(), status(), inputs(DESIRED), spec(NEW), False),
        (spec(), NodeSlicesStatus(), inputs(DESIRED), spec(NEW), False),
        (spec(), status(), inputs(DESIRED, inventory_complete=False), spec(), True),
        (spec(), status(), inputs(DESIRED, settled=()), spec(), False),
        (spec(), status(), inputs(DESIRED, joined=False), spec(), False),
        (spec(), status(), inputs(OUTGROWN), spec(), False),
        (spec(), status(), inputs(replace(DESIRED, conflicting=True)), spec(), False),
        # kept, and nothing is asked
        (spec(assignment()), status(), inputs(DESIRED, inventory_complete=False), spec(assignment()), False),
        (spec(CONFIRMED), HELD, inputs(DESIRED, inventory_complete=False), spec(CONFIRMED), False),
        # withdrawn if it was never shown, to an agent that has answered
        (spec(assignment()), status(), inputs(), spec(), False),
        (spec(assignment()), status(), inputs(OUTGROWN), spec(), False),
        (spec(assignment()), status(), inputs(settled=()), spec(assignment()), False),
        (spec(assignment()), status(), inputs(answered=False), spec(RETURNING), False),
        (
            spec(assignment()),
            status(),
            inputs(inventory_complete=False),
            spec(RETURNING),
            True,
        ),
        (spec(assignment()), status(protocol=0), inputs(), spec(RETURNING), False),
        (spec(assignment()), ACKNOWLEDGED, inputs(), spec(RETURNING), False),
        (spec(CONFIRMED), status(), inputs(), spec(replace(CONFIRMED, return_reason=UNWANTED)), False),
        # confirmed
        (spec(assignment()), ACKNOWLEDGED, inputs(DESIRED), spec(CONFIRMED), False),
        (spec(assignment(confirmed="old")), ACKNOWLEDGED, inputs(DESIRED), spec(CONFIRMED), False),
        (spec(assignment()), HELD, inputs(DESIRED), spec(CONFIRMED), False),
        (spec(assignment()), ACKNOWLEDGED, inputs(DESIRED, inventory_complete=False), spec(assignment()), True),
        (spec(assignment()), ACKNOWLEDGED, inputs(DESIRED, settled=()), spec(assignment()), False),
        (spec(assignment()), ACKNOWLEDGED, inputs(DESIRED, blocked={"a"}), spec(assignment()), False),
        (spec(assignment()), ACKNOWLEDGED, inputs(replace(DESIRED, conflicting=True)), spec(assignment()), False),
        # a slice to be returned is confirmed only if it is held
        (spec(assignment()), ACKNOWLEDGED, inputs(OUTGROWN), spec(assignment(return_reason="too large")), False),
        (spec(assignment()), HELD, inputs(OUTGROWN), spec(replace(CONFIRMED, return_reason="too large")), False),
        # a return is final
        (spec(CONFIRMED), status(shown(returned=True)), inputs(), spec(), False),
        (spec(CONFIRMED), status(shown(returned=True)), inputs(DESIRED), spec(NEW), False),
        (spec(CONFIRMED), status(shown(returned=True)), inputs(DESIRED, inventory_complete=False), spec(), True),
        (spec(CONFIRMED), status(shown(returned=True)), inputs(settled=()), spec(), False),
        # the return is cancelled, the range changes
        (spec(RETURNING), HELD, inputs(DESIRED), spec(CONFIRMED), False),
        (spec(replace(CONFIRMED, range="10.1.0.0/25")), HELD, inputs(DESIRED), spec(CONFIRMED), False),
        # lost: the agent has it, and spec does not list it
        (spec(), HELD, inputs(DESIRED), spec(CONFIRMED), False),
        (spec(), HELD, inputs(DESIRED, inventory_complete=False), spec(assignment()), True),
        (spec(), HELD, inputs(), spec(replace(CONFIRMED, return_reason=UNWANTED)), False),
        (spec(), HELD, inputs(blocked={"a"}), spec(assignment(return_reason=DISPUTED)), False),
        (spec(), HELD, inputs(settled=()), spec(), False),
        (spec(), HELD, inputs(sliced=()), spec(), False),
        (spec(), status(shown(returned=True)), inputs(), spec(), False),
        # of two assignments of one slice the one in use is kept
        (spec(assignment("b")), HELD, inputs(DESIRED), spec(CONFIRMED), False),
        # the Node is deleted: nothing is asked of its agent
        (spec(CONFIRMED), HELD, inputs(exists=False), spec(CONFIRMED), False),
        (spec(assignment()), ACKNOWLEDGED, inputs(exists=False), spec(assignment()), False),
        (spec(assignment()), status(), inputs(exists=False), spec(), False),
    ],
)
def test_transitions(
    before: NodeSlicesSpec, shows: NodeSlicesStatus, given: NodeInputs, after: NodeSlicesSpec, asks: bool
) -> None:
    assert SpecDecision(after, needs_inventory=asks) == decide(before, shows, given)


def test_all_networks_change_in_one_decision() -> None:
    blue = DesiredSlice(network="blue", range=parse_prefix("10.2.0.0/24"), slice=parse_prefix("10.2.0.0/26"))
    after = decide(spec(), status(), inputs(DESIRED, blue, settled={"red", "blue"})).spec
    assert [("red", "new-1"), ("blue", "new-2")] == [(each.network, each.id) for each in after.assignments]


def node(uid: str, boot: str) -> Node:
    return Node(metadata=ObjectMeta(name="n1", uid=uid), status=NodeStatus(node_info=NodeSystemInfo(boot_id=boot)))


class TestIdentity:
    def test_the_same_boot_is_the_same_node(self) -> None:
        assert spec(CONFIRMED, uid="u2") == identify_node(spec(CONFIRMED), HELD, node("u2", "b1"))

    def test_another_boot_is_another_node_and_the_former_one_keeps_its_slices(self) -> None:
        former = FormerNode(node_uid="u1", boot_id="b1", assignments=(CONFIRMED,))
        assert spec(uid="u2", former=[former]) == identify_node(spec(CONFIRMED), HELD, node("u2", "b2"))

    def test_what_was_returned_or_lost_is_settled_before_another_agent_writes_the_status(self) -> None:
        lost, returned = shown("lost", OTHER, held=True), shown(returned=True)
        after = identify_node(spec(CONFIRMED), status(lost, returned), node("u2", "b2"))
        assert after
        assert [("lost",)] == [tuple(each.id for each in former.assignments) for former in after.former]

    def test_a_former_node_that_comes_back_has_its_slices_again(self) -> None:
        first = FormerNode(node_uid="u1", boot_id="b1", assignments=(CONFIRMED,))
        second = assignment("b", OTHER)
        before = spec(second, uid="u2", former=[first])
        after = identify_node(before, status(shown("b", OTHER), uid="u2", boot="b2"), node("u3", "b1"))
        kept = FormerNode(node_uid="u2", boot_id="b2", assignments=(second,))
        assert spec(CONFIRMED, uid="u3", former=[kept]) == after

    def test_all_that_a_machine_had_is_its_own_again(self) -> None:
        """After a restore a former and the present Node may be of the same boot."""
        former = FormerNode(node_uid="u0", boot_id="b1", assignments=(assignment("b", OTHER),))
        before = spec(CONFIRMED, former=[former])
        for uid in ("u1", "u2"):
            after = identify_node(before, HELD, node(uid, "b1"))
            assert after
            assert ({"a", "b"}, ()) == ({each.id for each in after.assignments}, after.former)

    def test_a_node_does_not_get_what_a_former_one_has(self) -> None:
        former = FormerNode(node_uid="u0", boot_id="b0", assignments=(CONFIRMED,))
        assert () == decide(spec(former=[former]), status(), inputs(DESIRED)).spec.assignments

    def test_a_node_that_has_not_reported_its_boot_is_not_identified(self) -> None:
        assert identify_node(spec(CONFIRMED), HELD, node("u2", "")) is None
        assert spec(uid="u2") == identify_node(spec(), NodeSlicesStatus(), node("u2", ""))

    def test_the_status_of_a_former_node_does_not_count_for_the_present_one(self) -> None:
        """Otherwise its agent would have answered for another, and slices that are released would be owned again."""
        before = identify_node(spec(CONFIRMED), HELD, node("u2", "b2"))
        assert before
        with_slice = replace(before, assignments=(assignment("b", OTHER),))
        states = {each.id: each.state for each in read_slices(NodeSlices(spec=with_slice, status=HELD))}
        assert {"a": SliceState.HELD, "b": SliceState.HELD} == states
        released = release_node(with_slice, HELD, "u1")
        assert (FormerNode(node_uid="u1", boot_id="b1"),) == released.former
        assert ["b"] == [each.id for each in read_slices(NodeSlices(spec=released, status=HELD))]
        written = status(uid="u2", boot="b2")
        assert () == decide(released, written, inputs(settled=())).spec.former

    def test_a_status_from_before_a_registration_does_not_outlive_its_machine(self) -> None:
        """The Node was registered again in the same boot, and its agent has not written its status since."""
        again = identify_node(spec(CONFIRMED), HELD, node("u2", "b1"))
        assert again
        replaced = identify_node(again, HELD, node("u3", "b2"))
        assert replaced
        assert [("u1", "b1")] == [(each.node_uid, each.boot_id) for each in replaced.former]
        assert () == read_slices(NodeSlices(spec=release_node(again, HELD, "u2"), status=HELD))

    def test_nothing_is_left_of_a_node_that_is_gone(self) -> None:
        released = release_node(spec(CONFIRMED), HELD, "u1")
        assert () == read_slices(NodeSlices(spec=released, status=HELD))
        assert spec(uid="u2", former=released.former) == identify_node(released, HELD, node("u2", "b1"))


def owned(
    id_: str, on: str, slice_: str = SLICE, state: SliceState = SliceState.HELD, *, confirmed: bool = False
) -> OwnedSlice:
    return OwnedSlice(
        id=id_,
        network="red",
        range=parse_prefix(RANGE),
        slice=parse_prefix(slice_),
        node=on,
        node_uid=f"uid-{on}",
        state=state,
        confirmed=confirmed,
    )


LAYOUT = parse_slice_size("/26", of=parse_prefix(RANGE))


class TestHostileAgents:
    """An agent may write anything into its own status."""

    @pytest.mark.parametrize(
        ("slice_", "counts"),
        [
            (SLICE, True),
            ("10.1.0.0/25", True),  # of a former size
            ("10.1.0.0/28", True),
            ("10.0.0.0/8", False),
            ("10.1.0.0/23", False),
            ("10.9.0.0/26", True),  # of a former range
            ("fd00::/64", False),
            ("here", False),
        ],
    )
    def test_a_claim_must_fit_a_slice_table(self, slice_: str, counts: bool) -> None:
        obj = NodeSlices(spec=spec(), status=status(shown("a", slice_, held=True)))
        kept, ignored = without_implausible_claims(obj, lambda _: [LAYOUT])
        assert (counts, not counts) == (bool(kept.status.slices), bool(ignored))

    def test_a_claim_has_at_most_the_size_of_sixteen_slices(self) -> None:
        layout = parse_slice_size("/24", of=parse_prefix("10.0.0.0/8"))
        claims = [shown(each, each, held=True) for each in ("10.0.0.0/20", "10.32.0.0/19")]
        kept, ignored = without_implausible_claims(NodeSlices(spec=spec(), status=status(*claims)), lambda _: [layout])
        assert (["10.0.0.0/20"], ["10.32.0.0/19"]) == (
            [each.id for each in kept.status.slices],
            [each.id for each in ignored],
        )

    def test_a_node_claims_at_most_four_slices_of_a_table(self) -> None:
        claims = [shown(str(each), f"10.1.0.{16 * each}/28", held=True) for each in range(6)]
        kept, ignored = without_implausible_claims(NodeSlices(spec=spec(), status=status(*claims)), lambda _: [LAYOUT])
        assert (4, 2) == (len(kept.status.slices), len(ignored))

    def test_what_is_assigned_is_no_claim(self) -> None:
        obj = NodeSlices(spec=spec(CONFIRMED), status=HELD)
        assert (obj, ()) == without_implausible_claims(obj, lambda _: [])


class TestConflicts:
    def test_one_in_use_excludes_one_that_is_not(self) -> None:
        held, acknowledged = owned("a", "n1"), owned("b", "n2", state=SliceState.ACKNOWLEDGED)
        for both in ([held, acknowledged], [acknowledged, held]):
            assert ((held,), frozenset()) == (resolve_conflicts(both).kept, resolve_conflicts(both).blocked)

    def test_two_in_use_are_kept_and_neither_is_confirmed_anew(self) -> None:
        one, other = owned("a", "n1", confirmed=True), owned("b", "n2", "10.1.0.0/27")
        result = resolve_conflicts([one, other])
        assert ({one, other}, frozenset({"a", "b"})) == (set(result.kept), result.blocked)
        assert (False, True) == (result.is_disputed(one), result.is_disputed(other))

    def test_slices_of_one_node_do_not_block_each_other(self) -> None:
        assert frozenset() == resolve_conflicts([owned("a", "n1"), owned("b", "n1", "10.1.0.0/27")]).blocked

    def test_slices_side_by_side_are_no_conflict(self) -> None:
        one, other = owned("a", "n1"), owned("b", "n2", OTHER)
        assert (one, other) == resolve_conflicts([other, one]).kept

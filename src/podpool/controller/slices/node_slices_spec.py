"""Decides the spec of a node's NodeSlices, from the present one, the status, and the slices that the node should have.

Pure. The transitions of an assignment are in `slice_ownership.SliceState`; here are their conditions:

- Listed: the slice inventory is complete, or the agent reports that it has the slice.
- Confirmed: the inventory is complete, and no other Node may use the addresses.
- Withdrawn: the status never showed it, and the agent has answered the inventory of this leader.
- Return requested: it was shown, and the node should not have it (any more).
- Removed: the status shows it as returned.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from podpool.api.builtin import Node
from podpool.api.node_slices import Assignment, FormerNode, NodeSlicesSpec, NodeSlicesStatus
from podpool.controller.slices.slice_ownership import (
    SliceState,
    assignment_state,
    current_boot,
    is_same_node,
    lost_assignments,
    status_is_current,
)
from podpool.core.ranges import Prefix

UNWANTED = "no NetworkAttachmentDefinition uses it any more"
DISPUTED = "another node may use its addresses"


class DesiredSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice that a node should have."""

    network: str
    range: Prefix
    """The whole range that the slice is a part of."""
    slice: Prefix
    return_reason: str = ""
    """Why the node is asked to return it; empty if it is not."""
    conflicting: bool = False
    """Others may use addresses of it: it is neither assigned to the node nor confirmed."""

    @property
    def text(self) -> tuple[str, str]:
        """Network and slice as in an assignment."""
        return self.network, str(self.slice)


class NodeInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node beside its object."""

    exists: bool = True
    """The Node exists. While it does not, nothing is asked of its agent."""
    desired: Sequence[DesiredSlice] = ()
    settled: Collection[str] = ()
    """Networks whose slices are assigned from the present ownership; those of others are left as they are."""
    joined: bool = True
    """Every network has considered the node: what it gets is written at once."""
    sliced: Collection[str] = ()
    """Networks with slice tables; what an agent claims in others is not listed, because it cannot be checked."""
    blocked: Collection[str] = ()
    """IDs of assignments whose addresses another Node may use."""
    inventory_complete: bool = False
    answered: bool = False
    """The agent has answered the inventory of this leader."""


class SpecDecision(msgspec.Struct, frozen=True):
    """The spec that should be, and whether more would be decided if the slice inventory were complete."""

    spec: NodeSlicesSpec
    needs_inventory: bool = False


def identify_node(spec: NodeSlicesSpec, status: NodeSlicesStatus, node: Node) -> NodeSlicesSpec | None:
    """Return the spec with this Node as the present one; None while it may be a former one that has not reported.

    A Node of the same boot has the slices of the one that it was. Those of another machine stay with that.
    """
    if is_identified(spec, node):
        return spec
    kept = [each for each in spec.assignments if assignment_state(each, spec, status) is not None]
    present = _as_former(spec, status, (*kept, *lost_assignments(spec, status)))
    nodes = [each for each in (*spec.former, present) if _is_needed(each, status)]
    if not node.boot_id and any(each.boot_id and each.assignments for each in nodes):
        return None
    is_present = spec.node_uid == node.metadata.uid
    same = [
        each
        for each in nodes
        if (each is present and is_present) or (_is_same(each, node) and (each is present or each.assignments))
    ]
    assignments = {each.id: each for former in same for each in former.assignments}
    others = tuple(each for each in nodes if all(each is not one for one in same))
    return NodeSlicesSpec(node_uid=node.metadata.uid, assignments=tuple(assignments.values()), former=others)


def is_identified(spec: NodeSlicesSpec, node: Node) -> bool:
    """Return whether a Node is the present one of a spec, and none of the former ones."""
    former = any(each.assignments and _is_same(each, node) for each in spec.former)
    return spec.node_uid == node.metadata.uid and not former


def _is_same(former: FormerNode, node: Node) -> bool:
    return is_same_node(former.node_uid or "-", former.boot_id, node)


def release_node(spec: NodeSlicesSpec, status: NodeSlicesStatus, uid: str) -> NodeSlicesSpec:
    """Return the spec without the slices of a Node that is gone."""
    former = tuple(replace(each, assignments=()) if each.node_uid == uid else each for each in spec.former)
    if spec.node_uid in ("", uid):
        spec, former = NodeSlicesSpec(), (*former, _as_former(spec, status))
    return replace(spec, former=tuple(each for each in former if _is_needed(each, status)))


def _as_former(spec: NodeSlicesSpec, status: NodeSlicesStatus, assignments: tuple[Assignment, ...] = ()) -> FormerNode:
    """Return the present Node as a former one, by the UID in its status: it may be that of an earlier registration."""
    shown = status.node_uid if status_is_current(spec, status) else ""
    boot_id = current_boot(spec, status)
    return FormerNode(node_uid=shown or spec.node_uid, boot_id=boot_id, assignments=assignments)


def _is_needed(former: FormerNode, status: NodeSlicesStatus) -> bool:
    """Return whether a former Node has slices, or wrote the status, which must not count for another one."""
    return bool(former.assignments) or former.node_uid == status.node_uid != ""


def next_spec(
    spec: NodeSlicesSpec, status: NodeSlicesStatus, inputs: NodeInputs, *, new_id: Callable[[], str]
) -> SpecDecision:
    """Return the spec of the present Node with its assignments as they should be."""
    decision = _Decision(spec, status, inputs)
    assignments = [each for each in map(decision.update, decision.candidates()) if each is not None]
    have = {(each.network, each.slice) for each in assignments}
    have |= {(each.network, each.slice) for former in spec.former for each in former.assignments}
    assignments += (
        Assignment(id=new_id(), network=desired.network, range=str(desired.range), slice=str(desired.slice))
        for desired in inputs.desired
        if desired.text not in have and decision.may_assign(desired)
    )
    former = tuple(each for each in spec.former if _is_needed(each, status))
    return SpecDecision(
        replace(spec, assignments=tuple(assignments), former=former), needs_inventory=decision.needs_inventory
    )


class _Decision:
    def __init__(self, spec: NodeSlicesSpec, status: NodeSlicesStatus, inputs: NodeInputs) -> None:
        self.needs_inventory = False
        self._spec = spec
        self._status = status
        self._inputs = inputs
        self._shown = {each.id: each for each in status.slices} if status_is_current(spec, status) else {}
        self._desired = {each.text: each for each in inputs.desired}

    def candidates(self) -> list[Assignment]:
        """Return what the node has, also what only its agent lists; of equal slices the one in use first."""
        found = (*self._spec.assignments, *lost_assignments(self._spec, self._status))
        ranks = {each.id: assignment_state(each, self._spec, self._status) or SliceState.ASSIGNED for each in found}
        best: dict[tuple[str, str], str] = {}
        for each in sorted(found, key=lambda each: -ranks[each.id]):
            best.setdefault((each.network, each.slice), each.id)
        self._best = set(best.values())
        return list(found)

    def update(self, assignment: Assignment) -> Assignment | None:
        """Return an assignment as it should be; None if it is removed."""
        state = assignment_state(assignment, self._spec, self._status)
        if state is None:
            return None
        listed = assignment if assignment in self._spec.assignments else None
        if assignment.network not in self._inputs.settled or not (listed or assignment.network in self._inputs.sliced):
            return listed
        wanted = self._desired.get((assignment.network, assignment.slice))
        desired = wanted if assignment.id in self._best else None
        unwanted = desired is None or desired.return_reason
        if unwanted and state is SliceState.ASSIGNED and self._may_withdraw():
            return None
        if not self._inputs.exists:
            return listed
        if desired is None:
            disputed = assignment.id in self._inputs.blocked
            assignment = replace(assignment, return_reason=DISPUTED if disputed else UNWANTED)
        else:
            assignment = replace(assignment, range=str(desired.range), return_reason=desired.return_reason)
        return self._confirmed(assignment, desired, state)

    def may_assign(self, desired: DesiredSlice) -> bool:
        """Return whether a slice may be assigned that the node does not have."""
        if desired.network not in self._inputs.settled or desired.return_reason or desired.conflicting:
            return False
        self.needs_inventory |= not self._inputs.inventory_complete
        return self._inputs.inventory_complete and self._inputs.joined

    def _may_withdraw(self) -> bool:
        self.needs_inventory |= not self._inputs.inventory_complete
        return self._inputs.inventory_complete and self._inputs.answered

    def _confirmed(self, assignment: Assignment, desired: DesiredSlice | None, state: SliceState) -> Assignment:
        shown = self._shown.get(assignment.id)
        if shown is None or shown.acknowledgement in ("", assignment.confirmed):
            return assignment
        unused = assignment.return_reason and state is not SliceState.HELD
        if unused or assignment.id in self._inputs.blocked or (desired and desired.conflicting):
            return assignment
        self.needs_inventory |= not self._inputs.inventory_complete
        return replace(assignment, confirmed=shown.acknowledgement) if self._inputs.inventory_complete else assignment

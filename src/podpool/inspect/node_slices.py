"""The state of each slice, from the NodeSlices of its node. Pure."""

import enum
from collections.abc import Iterable, Iterator

import msgspec

from podpool.api.node_slices import Assignment, NodeSlices, SliceStatus


class NodeSliceState(enum.StrEnum):
    """States of a slice that belongs to a node."""

    ASSIGNED = "assigned"
    """The agent does not use it yet."""
    HELD = "held"
    """The agent may assign addresses of it; none is in use."""
    IN_USE = "in use"
    """Addresses of it are assigned or cooling down."""
    SUSPENDED = "suspended"
    """The agent holds it, and assigns nothing new from it until the controller confirms it again."""
    RETURNING = "returning"
    """The node must return it when nothing in it is in use."""
    LOST = "lost"
    """The agent holds it, but it is not assigned to the node: nothing new is assigned from it."""
    FORMER = "former"
    """It is of an earlier Node of this name, until node GC."""


class NodeSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a node."""

    node: str
    network: str
    range: str
    slice: str
    state: NodeSliceState = NodeSliceState.ASSIGNED
    reason: str = ""
    """Why it is to be returned."""
    acknowledged: bool = False
    """Whether the agent has asked to use it."""
    id: str = ""
    """Of the assignment; empty for a row of a NodeSlicePool."""


def slices_of_nodes(nodes: Iterable[NodeSlices]) -> list[NodeSlice]:
    """Return the slices of all nodes; those that an agent has returned are not included."""
    return [each for node in nodes for each in slices_of(node)]


def slices_of(node: NodeSlices) -> Iterator[NodeSlice]:
    """Return the slices of one node."""
    reported = {each.id: each for each in node.status.slices}
    assigned = {each.id for each in node.spec.assignments}
    for assignment in node.spec.assignments:
        status = reported.get(assignment.id)
        if not (status and status.returned):
            acknowledged = bool(status and status.acknowledgement)
            yield _of(node, assignment, _assigned_state(assignment, status), acknowledged=acknowledged)
    for former in node.spec.former:
        for assignment in former.assignments:
            assigned.add(assignment.id)
            yield _of(node, assignment, NodeSliceState.FORMER)
    for status in node.status.slices:
        if status.held and not status.returned and status.id not in assigned:
            yield NodeSlice(
                node=node.metadata.name,
                network=status.network,
                range=status.range,
                slice=status.slice,
                state=NodeSliceState.LOST,
                id=status.id,
            )


def _of(node: NodeSlices, assignment: Assignment, state: NodeSliceState, *, acknowledged: bool = False) -> NodeSlice:
    return NodeSlice(
        node=node.metadata.name,
        network=assignment.network,
        range=assignment.range,
        slice=assignment.slice,
        state=state,
        reason=assignment.return_reason,
        acknowledged=acknowledged,
        id=assignment.id,
    )


def _assigned_state(assignment: Assignment, status: SliceStatus | None) -> NodeSliceState:
    if assignment.return_reason:
        return NodeSliceState.RETURNING
    if status is None or not status.held:
        return NodeSliceState.ASSIGNED
    if status.acknowledgement != assignment.confirmed:
        return NodeSliceState.SUSPENDED
    return NodeSliceState.IN_USE if status.in_use else NodeSliceState.HELD

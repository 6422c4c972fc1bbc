"""Which node owns which slice, as NodeSlices objects show it. Pure.

Invariant: a slice belongs to a node from before it is written to spec until the status shows it as returned, or until
node GC. What the status of a Node does not show was never used, if the agent writes the present protocol.

The status belongs to the present Node unless a former one of that UID is listed: a Node that was registered again in
the same boot keeps its status, and the status of a machine that was replaced is void when its slices are released.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from podpool.api.builtin import Node
from podpool.api.node_slices import Assignment, FormerNode, NodeSlices, NodeSlicesSpec, NodeSlicesStatus, SliceStatus
from podpool.core.ranges import Prefix, find_prefix
from podpool.core.slice_table import SliceLayout
from podpool.whereabouts.slice_assignment import HeldSlice

MAX_CLAIMS = 4
"""Slices of one table that an agent may claim beyond what is assigned to it."""
MAX_GROWTH_BITS = 4
"""A claim may be so many bits shorter than a slice of the table: 16 slices."""


class SliceState(IntEnum):
    """State of an assigned slice; a higher one takes precedence over another node's.

    | from | to | by |
    |---|---|---|
    | | ASSIGNED | the controller lists it in spec |
    | ASSIGNED | ACKNOWLEDGED | the agent shows it in status; it uses no address yet |
    | ACKNOWLEDGED | CONFIRMED | the controller confirms the acknowledgement; the agent may use it |
    | CONFIRMED | HELD | the agent reports that its journal has it |
    | CONFIRMED | ACKNOWLEDGED | the agent, which does not hold it, acknowledges anew |
    | all but ASSIGNED | absent | the agent reports it as returned, or node GC removes it |
    | ASSIGNED | absent | the controller withdraws it |

    A slice of a former Node, of an agent without a protocol version, and one that only the agent lists, is HELD.
    """

    ASSIGNED = 0
    ACKNOWLEDGED = 1
    CONFIRMED = 2
    HELD = 3


class OwnedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of one Node."""

    id: str
    """The ID of the assignment; empty if only a NodeSlicePool shows the slice."""
    network: str
    range: Prefix
    """The whole range that the slice is a part of, as last known."""
    slice: Prefix
    node: str
    node_uid: str
    """Empty if it is not known; then it is of any Node of that name."""
    boot_id: str = ""
    state: SliceState = SliceState.ASSIGNED
    listed: bool = True
    """Spec lists it."""
    confirmed: bool = False
    """Spec lists the acknowledgement that the agent shows."""

    @property
    def in_use(self) -> bool:
        """Whether the node uses addresses of it, or may do so at any time."""
        return self.state >= SliceState.CONFIRMED

    @property
    def key(self) -> tuple[str, Prefix]:
        """Network and slice."""
        return self.network, self.slice

    @property
    def owner(self) -> tuple[str, str]:
        """Name and UID of its Node."""
        return self.node, self.node_uid

    def belongs_to(self, node: Node | None) -> bool:
        """Return whether it is this Node's, or of the same boot of the same machine."""
        return node is not None and node.metadata.name == self.node and is_same_node(self.node_uid, self.boot_id, node)

    def held_slice(self, node: Node | None, *, disputed: bool = False) -> HeldSlice:
        """Return it as input of the assignment, under the UID that the node has now."""
        uid = node.metadata.uid if node and self.belongs_to(node) else self.node_uid
        return HeldSlice(self.slice, self.node, uid, disputed=disputed)


def is_same_node(uid: str, boot_id: str, node: Node) -> bool:
    """Return whether a Node has this UID, or this boot ID. Without a UID it is any Node of the name."""
    return uid in ("", node.metadata.uid) or (boot_id != "" and boot_id == node.boot_id)


def status_is_current(spec: NodeSlicesSpec, status: NodeSlicesStatus) -> bool:
    """Return whether the agent of the present Node wrote the status."""
    return all(status.node_uid != each.node_uid for each in spec.former)


def current_boot(spec: NodeSlicesSpec, status: NodeSlicesStatus) -> str:
    """Return the boot in which the agent of the present Node wrote the status; empty if it did not."""
    return status.boot_id if status_is_current(spec, status) else ""


def assignment_state(assignment: Assignment, spec: NodeSlicesSpec, status: NodeSlicesStatus) -> SliceState | None:
    """Return the state of an assignment to the present Node; None if it was returned."""
    if not status_is_current(spec, status) or not status.protocol:
        return SliceState.HELD
    shown = next((each for each in status.slices if each.id == assignment.id), None)
    if shown is None:  # with a confirmation it was shown before: the agent has lost its journal
        return SliceState.HELD if assignment.confirmed else SliceState.ASSIGNED
    if shown.returned:
        return None
    if shown.held:
        return SliceState.HELD
    return SliceState.CONFIRMED if is_confirmed(assignment, shown) else SliceState.ACKNOWLEDGED


def is_confirmed(assignment: Assignment, shown: SliceStatus | None) -> bool:
    """Return whether the acknowledgement that the agent shows is confirmed."""
    return shown is not None and assignment.confirmed == shown.acknowledgement != ""


def lost_assignments(spec: NodeSlicesSpec, status: NodeSlicesStatus) -> tuple[Assignment, ...]:
    """Return what the agent of the present Node has and spec does not list, as unconfirmed assignments."""
    if not status_is_current(spec, status):
        return ()
    former = (each for node in spec.former for each in node.assignments)
    listed = {each.id for each in (*spec.assignments, *former)}
    lost = (each for each in status.slices if each.id not in listed and not each.returned and each.slice)
    return tuple(Assignment(id=each.id, network=each.network, range=each.range, slice=each.slice) for each in lost)


def without_implausible_claims(
    obj: NodeSlices, layouts: Callable[[str], Collection[SliceLayout]]
) -> tuple[NodeSlices, tuple[Assignment, ...]]:
    """Leave out of the status what the agent cannot have been assigned, and return that too.

    An agent may write anything into its status, and what it lists beyond spec counts as owned: one node must not take
    a network away from the others. So a claim must not be much larger than a slice of its network. It may be larger
    because a restored API server may show a NAD from before its slices became larger. In a network without slice
    tables nothing is assigned, so everything counts.
    """
    accepted: dict[tuple[str, Prefix], int] = {}
    ignored = []
    for each in lost_assignments(obj.spec, obj.status):
        known = layouts(each.network)
        if not known:
            continue
        layout = _layout_of(each, known)
        key = (each.network, layout.range) if layout else None
        if key is None or accepted.get(key, 0) >= MAX_CLAIMS:
            ignored.append(each)
        else:
            accepted[key] = accepted.get(key, 0) + 1
    if not ignored:
        return obj, ()
    ids = {each.id for each in ignored}
    slices = tuple(each for each in obj.status.slices if each.id not in ids)
    return replace(obj, status=replace(obj.status, slices=slices)), tuple(ignored)


def _layout_of(claim: Assignment, layouts: Iterable[SliceLayout]) -> SliceLayout | None:
    """Return the slice table that a claimed slice can be of; its range may have been larger."""
    slice_ = find_prefix(claim.slice)
    for each in layouts:
        smallest = max(each.range.length, each.length - MAX_GROWTH_BITS)
        if slice_ and slice_.length >= smallest and slice_.family is each.range.family:
            return each
    return None


def read_slices(obj: NodeSlices) -> tuple[OwnedSlice, ...]:
    """Return the slices of all Nodes of a name; invalid ones are left out."""
    spec, status, name = obj.spec, obj.status, obj.metadata.name
    shown = {each.id: each for each in status.slices}
    present = FormerNode(node_uid=spec.node_uid or status.node_uid, boot_id=current_boot(spec, status))
    listed = [
        _owned(name, present, each, state, confirmed=is_confirmed(each, shown.get(each.id)))
        for each in spec.assignments
        if (state := assignment_state(each, spec, status)) is not None
    ]
    lost = [_owned(name, present, each, listed=False) for each in lost_assignments(spec, status)]
    former = [_owned(name, of, each) for of in spec.former for each in of.assignments]
    return tuple(filter(None, (*listed, *lost, *former)))


def _owned(
    name: str,
    of: FormerNode,
    assignment: Assignment,
    state: SliceState = SliceState.HELD,
    *,
    listed: bool = True,
    confirmed: bool = False,
) -> OwnedSlice | None:
    slice_, range_ = find_prefix(assignment.slice), find_prefix(assignment.range or assignment.slice)
    if slice_ is None or range_ is None:
        return None
    return OwnedSlice(
        id=assignment.id,
        network=assignment.network,
        range=range_,
        slice=slice_,
        node=name,
        node_uid=of.node_uid,
        boot_id=of.boot_id,
        state=state,
        listed=listed,
        confirmed=confirmed,
    )


class Conflicts(msgspec.Struct, frozen=True, kw_only=True):
    """The slices of one network, without those that overlap one of higher precedence."""

    kept: tuple[OwnedSlice, ...] = ()
    blocked: frozenset[str] = frozenset()
    """IDs of slices in use that overlap one of another Node: nothing is confirmed."""

    def is_disputed(self, owned: OwnedSlice) -> bool:
        """Return whether the node must give up a slice in use, because another Node has its addresses."""
        return owned.id in self.blocked and not owned.confirmed


def resolve_conflicts(slices: Collection[OwnedSlice]) -> Conflicts:
    """Compare the slices of a network. Where two in use overlap, both stay.

    Of two slices of one Node the one in use excludes the other: that is confirmed only after the first is returned.
    """
    kept: dict[OwnedSlice, None] = {}
    blocked: set[str] = set()
    overlapping: list[OwnedSlice] = []
    for owned in sorted(slices, key=lambda each: (each.slice, -each.state, each.node, each.id)):
        overlapping = [each for each in overlapping if each.slice.range.overlaps(owned.slice.range)]
        if not owned.in_use and any(_precedes(each, owned) for each in overlapping):
            continue
        for each in [each for each in overlapping if not each.in_use and _precedes(owned, each)]:
            kept.pop(each, None)
            overlapping.remove(each)
        blocked.update(_ids_in_conflict(owned, overlapping))
        kept[owned] = None
        overlapping.append(owned)
    return Conflicts(kept=tuple(kept), blocked=frozenset(blocked))


def _ids_in_conflict(owned: OwnedSlice, overlapping: Iterable[OwnedSlice]) -> Iterator[str]:
    for each in overlapping:
        if each.in_use and owned.in_use and each.owner != owned.owner and each.node_uid and owned.node_uid:
            yield from (each.id, owned.id)


def _precedes(one: OwnedSlice, other: OwnedSlice) -> bool:
    return one.in_use if one.owner == other.owner else one.state >= other.state


def merge_slices(known: Iterable[OwnedSlice], pending: Iterable[OwnedSlice]) -> tuple[OwnedSlice, ...]:
    """Return the slices of an object and of a write to it whose outcome is not known: each in its higher state."""
    merged = {each.id: each for each in known}
    for each in pending:
        before = merged.get(each.id)
        if before is None or before.state < each.state:
            merged[each.id] = each
    return tuple(merged.values())

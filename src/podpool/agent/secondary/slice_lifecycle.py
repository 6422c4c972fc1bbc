"""What the agent does with a slice, by its journal and by the spec of NodeSlices, and which status it reports. Pure.

| state | in the journal | next |
|---|---|---|
| absent | no | acknowledged; when the controller has confirmed that acknowledgement, held |
| held | open, confirmed | suspended, when spec does not list it, the fence closes or the boot ends |
| suspended | open, not confirmed | acknowledged anew; when that is confirmed, held. Its Pods keep their addresses |
| closed | closed, in use | returned, when its last address has cooled down; acknowledged anew, if spec lists it again |
| returned | no, but its ID | absent, when spec does not list it any more |

Invariants: an acknowledgement counts only if the controller has confirmed its ID, and the fence was open ever since. A
restored API server may show an assignment or a confirmation of the past: the controller, which knows what other nodes
hold, does not confirm it again. A return is in the journal before it is reported, and no reboot, restore or entry of a
third party withdraws it: addresses of a slice that is closed and not returned may be in use again.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from podpool.agent.secondary.slices import Slice, Slices
from podpool.api.node_slices import PROTOCOL, Assignment, NodeSlices, NodeSlicesStatus, SliceStatus


class State(Enum):
    """State of a slice, by the journal."""

    ABSENT = auto()
    HELD = auto()
    SUSPENDED = auto()
    CLOSED = auto()
    RETURNED = auto()


class Listing(Enum):
    """Where the spec of NodeSlices has a slice."""

    UNLISTED = auto()
    LISTED = auto()
    RETURNING = auto()
    """It is listed, to be returned when it is unused."""
    FORMER = auto()
    """An earlier Node of this name had it."""
    REPLACED = auto()
    """It is not listed, but another slice with some of its addresses is."""


class Action(Enum):
    """The next step."""

    NOTHING = auto()
    ACKNOWLEDGE = auto()
    ACQUIRE = auto()
    ACQUIRE_SUSPENDED = auto()
    """Record it in the journal without a confirmation, to return it when it is unused."""
    RESUME = auto()
    SUSPEND = auto()
    CLOSE = auto()
    RETURN_IF_UNUSED = auto()


TRANSITIONS: Mapping[tuple[State, Listing], Action] = {
    (State.ABSENT, Listing.LISTED): Action.ACKNOWLEDGE,
    (State.ABSENT, Listing.RETURNING): Action.ACQUIRE_SUSPENDED,
    (State.HELD, Listing.UNLISTED): Action.SUSPEND,
    (State.HELD, Listing.RETURNING): Action.RETURN_IF_UNUSED,
    (State.HELD, Listing.FORMER): Action.CLOSE,
    (State.HELD, Listing.REPLACED): Action.CLOSE,
    (State.SUSPENDED, Listing.UNLISTED): Action.ACKNOWLEDGE,
    (State.SUSPENDED, Listing.LISTED): Action.ACKNOWLEDGE,
    (State.SUSPENDED, Listing.RETURNING): Action.RETURN_IF_UNUSED,
    (State.SUSPENDED, Listing.FORMER): Action.CLOSE,
    (State.SUSPENDED, Listing.REPLACED): Action.CLOSE,
    (State.CLOSED, Listing.LISTED): Action.ACKNOWLEDGE,
}
"""The action by state and listing; nothing is done in the other cases."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a slice."""

    state: State
    listing: Listing
    in_use: bool = False
    """Addresses of it are assigned or cooling down, or may be."""
    acknowledgement: str = ""
    """The agent's last valid acknowledgement."""
    confirmed: str = ""
    """The acknowledgement that spec confirms."""
    fence_open: bool = True
    overlaps: bool = False
    """Another open slice of the node has some of its addresses; of one that is absent or closed."""


def decide(facts: Facts) -> Action:
    """Return the next step of a slice."""
    action = TRANSITIONS.get((facts.state, facts.listing), Action.NOTHING)
    if facts.state is State.CLOSED and not facts.in_use:
        action = Action.RETURN_IF_UNUSED
    elif action is Action.RETURN_IF_UNUSED and facts.in_use:  # until there is another it is used on
        action = TRANSITIONS.get((facts.state, Listing.LISTED), Action.NOTHING)
    if action is Action.NOTHING and facts.state is State.HELD and not facts.confirmed:
        return Action.SUSPEND  # it was lost, and the controller lists it again
    if action is not Action.ACKNOWLEDGE:
        return action
    if not facts.fence_open or facts.overlaps:
        return Action.NOTHING
    if not facts.acknowledgement:
        return Action.ACKNOWLEDGE
    if facts.confirmed != facts.acknowledgement:
        return Action.NOTHING
    return Action.ACQUIRE if facts.state is State.ABSENT else Action.RESUME


def state_of(slice_: Slice | None, *, returned: bool) -> State:
    """Return the state of a slice: in the journal, or known to be returned, or neither."""
    if slice_ is None:
        return State.RETURNED if returned else State.ABSENT
    if slice_.closed:
        return State.CLOSED
    return State.HELD if slice_.confirmed else State.SUSPENDED


def former_ids(node_slices: NodeSlices) -> frozenset[str]:
    """Return the slices of earlier Nodes of this name."""
    return frozenset(each.id for former in node_slices.spec.former for each in former.assignments)


class StatusInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a status is made of, beside journal and NodeSlices."""

    node_uid: str
    boot_id: str
    inventory: str
    """The inventory request that is answered."""
    acknowledgements: Mapping[str, str]
    """The agent's last acknowledgements, by assignment."""
    in_use: Callable[[Slice], bool]


def build_status(slices: Slices, node_slices: NodeSlices, inputs: StatusInputs) -> NodeSlicesStatus:
    """Return the whole status. What it shows already, and the journal lacks, is kept until spec lists it."""
    entries = (*_journalled(slices, node_slices, inputs), *_not_journalled(slices, node_slices, inputs))
    return NodeSlicesStatus(
        protocol=PROTOCOL,
        node_uid=inputs.node_uid,
        boot_id=inputs.boot_id,
        inventory=inputs.inventory,
        rolled_back=slices.observed.rolled_back,
        slices=tuple(sorted(entries, key=lambda each: (each.network, each.range, each.slice, each.id))),
    )


def _journalled(slices: Slices, node_slices: NodeSlices, inputs: StatusInputs) -> Iterator[SliceStatus]:
    shown = {each.id: each.acknowledgement for each in node_slices.status.slices}
    former = former_ids(node_slices)
    for each in slices:
        id_ = each.assignment
        if id_ not in former:
            yield SliceStatus(
                id=id_,
                network=each.network,
                range=str(each.range),
                slice=str(each.prefix),
                acknowledgement=inputs.acknowledgements.get(id_) or shown.get(id_, ""),
                held=True,
                in_use=inputs.in_use(each),
            )


def _not_journalled(slices: Slices, node_slices: NodeSlices, inputs: StatusInputs) -> Iterator[SliceStatus]:
    former, before = former_ids(node_slices), {each.id: each for each in node_slices.status.slices}
    listed = {each.id: _assigned(each) for each in node_slices.spec.assignments}
    for id_, entry in (listed | before).items():
        acknowledgement = inputs.acknowledgements.get(id_, "")
        if slices.get(id_) or id_ in former or (entry.returned and id_ not in listed):
            continue
        if entry.returned or id_ in slices.returned:
            yield msgspec.structs.replace(entry, acknowledgement="", held=False, in_use=False, returned=True)
        elif acknowledgement:
            yield msgspec.structs.replace(entry, acknowledgement=acknowledgement)
        elif id_ in before:
            yield entry


def _assigned(assignment: Assignment) -> SliceStatus:
    return SliceStatus(id=assignment.id, network=assignment.network, range=assignment.range, slice=assignment.slice)


def is_urgent(before: NodeSlicesStatus, after: NodeSlicesStatus) -> bool:
    """Return whether the controller waits for a change of the status: for all but `held` and `inUse`."""

    def urgent(status: NodeSlicesStatus) -> NodeSlicesStatus:
        slices = tuple(msgspec.structs.replace(each, held=False, in_use=False) for each in status.slices)
        return msgspec.structs.replace(status, slices=slices)

    return urgent(before) != urgent(after)


def status_patch(status: NodeSlicesStatus) -> dict[str, Any]:
    """Return the merge patch that replaces the whole status."""
    cleared = {each.encode_name: None for each in msgspec.structs.fields(NodeSlicesStatus)}
    return {"status": {**cleared, "slices": [], **msgspec.to_builtins(status)}}

"""Recent activity as text: podpool Events and changes between two states of the model. Pure."""

from collections.abc import Iterable, Sequence

from podpool.api.builtin import Event
from podpool.inspect.secondary_networks import NetworkView
from podpool.inspect.view_models import InspectedPod, NodeView, SubnetView, ViewModel

CONTROLLER_PREFIX = "podpool"


class Activity(ViewModel, frozen=True, kw_only=True):
    """One thing that happened."""

    at: str
    subject: str
    """Kind and name, such as `Node one`."""
    message: str
    warning: bool = False
    count: int = 1
    key: str = ""
    """Identity of an Event; a later entry with the same key replaces the earlier one."""


def activity_of(event: Event) -> Activity | None:
    """Return the activity of a podpool Event; None for Events of other components."""
    if not event.reporting_controller.startswith(CONTROLLER_PREFIX):
        return None
    series = event.series
    at = (series.last_observed_time if series else None) or event.event_time or event.metadata.creation_timestamp or ""
    return Activity(
        at=at,
        subject=f"{event.regarding.kind} {event.regarding.name}".strip(),
        message=_without(f"{event.regarding.kind} {event.regarding.name} ", event.note),
        warning=event.type == "Warning",
        count=series.count if series else 1,
        key=event.metadata.uid or event.key,
    )


def _without(about: str, note: str) -> str:
    """Remove the subject from the beginning of an Event's note; it is shown separately."""
    return note[len(about) :] if note.lower().startswith(about.lower()) else note


def subnet_activity(before: SubnetView, after: SubnetView, *, at: str) -> Iterable[Activity]:
    """Return what changed for a subnet."""
    for warning, message in _decided(before, after):
        yield Activity(at=at, subject=f"Subnet {after.name}", message=message, warning=warning)


def _decided(before: SubnetView, after: SubnetView) -> Iterable[tuple[bool, str]]:
    share = f"{after.reserved} of {after.capacity} addresses are reserved"
    if after.exhausted and not before.exhausted:
        yield True, f"is exhausted: {share}. Nodes release idle addresses"
    if before.exhausted and not after.exhausted:
        yield False, f"is no longer exhausted: {share}"
    if after.batch < before.batch or (after.batch == before.batch and after.buffer < before.buffer):
        yield False, f"uses {_batch(after)}: idle addresses move to waiting Pods"
    elif (after.batch, after.buffer) != (before.batch, before.buffer):
        yield False, f"uses {_batch(after)}: nodes may keep more idle addresses"
    if after.frozen and not before.frozen:
        yield True, "grants nothing: the ledger is in recovery, or an address has two owners"
    if before.frozen and not after.frozen:
        yield False, "grants addresses again"
    if after.draining and not before.draining:
        yield False, "is being drained: no addresses are granted"
    if after.capacity > before.capacity:
        yield False, f"grew from {before.capacity} to {after.capacity} addresses"


def _batch(view: SubnetView) -> str:
    return f"batch {view.batch}" if view.buffer else "batch 1 without buffer"


def node_activity(before: NodeView | None, after: NodeView | None, *, at: str) -> Iterable[Activity]:
    """Return what changed for a node: joined, removed, Pods waiting, all Pods served."""
    name = after.name if after else before.name if before else ""
    if after is None:
        message, warning = "was removed, and its addresses were released", False
    elif before is None:
        message, warning = "joined", False
    elif after.gone and not before.gone:
        message, warning = f"has no Node object: its {after.held} addresses are released after the node GC delay", True
    elif after.short and after.waiting and not (before.short and before.waiting):
        message, warning = "has waiting Pods, and the subnet has no free address", True
    elif before.short and before.waiting and not after.waiting:
        message, warning = "has no waiting Pods any more", False
    else:
        return
    yield Activity(at=at, subject=f"Node {name}", message=message, warning=warning)


def pod_activity(old: InspectedPod | None, new: InspectedPod | None, *, at: str) -> Iterable[Activity]:
    """Return that a Pod was bound, got an address, or lost one."""
    had, has = old.addresses if old else (), new.addresses if new else ()
    pod = new or old
    if pod is None:
        return
    messages = []
    if gained := [each for each in has if each not in had]:
        messages.append(f"has {' and '.join(gained)} on node {pod.spec.node_name}")
    elif new and new.waiting_for_address and not (old and old.waiting_for_address):
        messages.append(f"waits for an address on node {pod.spec.node_name}")
    if lost := [each for each in had if each not in has]:
        messages.append(f"has {' and '.join(lost)} no more")
    for message in messages:
        yield Activity(at=at, subject=f"Pod {pod.key}", message=message)


def _pods(count: int) -> str:
    return "1 Pod waits" if count == 1 else f"{count} Pods wait"


def headline(subnets: Sequence[SubnetView], nodes: Sequence[NodeView], networks: Sequence[NetworkView] = ()) -> str:
    """Return one or two sentences on the state of the cluster: Pods and subnets; nodes without a slice."""
    return " ".join(filter(None, (_pods_and_subnets(subnets, nodes), _slices(networks))))


def _pods_and_subnets(subnets: Sequence[SubnetView], nodes: Sequence[NodeView]) -> str:
    waiting = sum(each.waiting for each in nodes)
    where = sum(bool(each.waiting) for each in nodes)
    exhausted = [each.name for each in subnets if each.exhausted]
    if waiting:
        place = "on 1 node" if where == 1 else f"on {where} nodes"
        return f"{_pods(waiting)} for an address {place}."
    if exhausted:
        return f"Every Pod has an address; {_listed(exhausted)} {'is' if len(exhausted) == 1 else 'are'} exhausted."
    return "Every Pod has an address."


def _slices(networks: Sequence[NetworkView]) -> str:
    waiting = {each.name: each.waiting for each in networks if each.waiting}
    if not waiting:
        return ""
    most = max(waiting.values())
    nodes = "1 node waits for a slice" if most == 1 else f"{most} nodes wait for a slice"
    if len(waiting) == 1:
        return f"{nodes} of network {next(iter(waiting))}."
    return f"In {len(waiting)} networks, up to {nodes}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} subnets"

"""What happened, in words: Events that podpool wrote, and what a looker sees change. Pure."""

from collections.abc import Iterable, Sequence

from podpool.api.builtin import Event
from podpool.inspect.view_models import NodeView, SubnetView, View

OURS = "podpool"


class News(View, frozen=True, kw_only=True):
    """Something that happened."""

    at: str
    about: str
    """A kind and a name, as `Node one`."""
    words: str
    warning: bool = False
    count: int = 1
    key: str = ""
    """An Event's identity: told again, it takes the place of what was told before."""


def news_of(event: Event) -> News | None:
    """Tell an Event of ours; those of others are nobody's concern here."""
    if not event.reporting_controller.startswith(OURS):
        return None
    series = event.series
    at = (series.last_observed_time if series else None) or event.event_time or event.metadata.creation_timestamp or ""
    return News(
        at=at,
        about=f"{event.regarding.kind} {event.regarding.name}".strip(),
        words=_without(f"{event.regarding.kind} {event.regarding.name} ", event.note),
        warning=event.type == "Warning",
        count=series.count if series else 1,
        key=event.metadata.uid or event.key,
    )


def _without(about: str, note: str) -> str:
    """Leave out what a note is about where it begins with that: it is told beside it."""
    return note[len(about) :] if note.lower().startswith(about.lower()) else note


def subnet_news(before: SubnetView, after: SubnetView, *, at: str) -> Iterable[News]:
    """Tell what was decided for a subnet."""
    for warning, words in _decided(before, after):
        yield News(at=at, about=f"Subnet {after.name}", words=words, warning=warning)


def _decided(before: SubnetView, after: SubnetView) -> Iterable[tuple[bool, str]]:
    share = f"{after.reserved} of {after.capacity} addresses are reserved"
    if after.exhausted and not before.exhausted:
        yield True, f"runs short: {share}. Nodes now give back what stands idle"
    if before.exhausted and not after.exhausted:
        yield False, f"has room again: {share}"
    if after.batch < before.batch or (after.batch == before.batch and after.buffer < before.buffer):
        yield False, f"now moves addresses {_batch(after)}: idle ones go where Pods are"
    elif (after.batch, after.buffer) != (before.batch, before.buffer):
        yield False, f"now moves addresses {_batch(after)}: nodes may keep more at hand"
    if after.frozen and not before.frozen:
        yield True, "grants nothing: the ledger recovers, or an address has two owners"
    if before.frozen and not after.frozen:
        yield False, "grants again"
    if after.draining and not before.draining:
        yield False, "is being drained: nothing is granted any more"
    if after.capacity > before.capacity:
        yield False, f"grew from {before.capacity} to {after.capacity} addresses"


def _batch(view: SubnetView) -> str:
    return f"in batches of {view.batch}" if view.buffer else "one by one, none kept idle"


def node_news(before: NodeView | None, after: NodeView | None, *, at: str) -> Iterable[News]:
    """Tell of a node what a person would want to know: that it came, went, waits, or waits no more."""
    name = after.name if after else before.name if before else ""
    if after is None:
        words, warning = "is gone, and its addresses are back in the subnet or rest", False
    elif before is None:
        words, warning = "joined", False
    elif after.gone and not before.gone:
        words, warning = f"has no Node any more: {after.held} addresses wait until it is surely gone", True
    elif after.short and after.waiting and not (before.short and before.waiting):
        words, warning = "has Pods that wait, and the subnet has no address left to give", True
    elif before.short and before.waiting and not after.waiting:
        words, warning = "has an address for every Pod again", False
    else:
        return
    yield News(at=at, about=f"Node {name}", words=words, warning=warning)


def _pods(count: int) -> str:
    return "1 Pod waits" if count == 1 else f"{count} Pods wait"


def headline(subnets: Sequence[SubnetView], nodes: Sequence[NodeView]) -> str:
    """Say in a sentence how the cluster is."""
    waiting = sum(each.waiting for each in nodes)
    where = sum(bool(each.waiting) for each in nodes)
    exhausted = [each.name for each in subnets if each.exhausted]
    if waiting:
        place = "on 1 node" if where == 1 else f"on {where} nodes"
        return f"{_pods(waiting)} for an address {place}."
    if exhausted:
        return f"Every Pod has its address, and {_listed(exhausted)} {'is' if len(exhausted) == 1 else 'are'} short."
    return "Every Pod has its address."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} subnets"

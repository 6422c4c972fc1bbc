"""Pods in a list, and what happens to their addresses. Pure."""

from collections.abc import Iterable

from podpool.api.builtin import FINISHED
from podpool.inspect.changes import News
from podpool.inspect.objects import SeenPod
from podpool.inspect.view_models import View


class PodView(View, frozen=True, kw_only=True):
    """A Pod, and how it stands with its address."""

    name: str
    """Namespace and name."""
    node: str = ""
    addresses: tuple[str, ...] = ()
    state: str
    """served, waits, unplaced, leaving (it is being deleted), host (on its node's own network) or finished."""
    since: str = ""
    """When it came to its node; else when it was made."""


def pod_view(pod: SeenPod) -> PodView:
    """Show a Pod."""
    return PodView(name=pod.key, node=pod.spec.node_name, addresses=pod.addresses, state=_state(pod), since=pod.since)


def _state(pod: SeenPod) -> str:
    if pod.status.phase in FINISHED:
        return "finished"
    if pod.spec.host_network:
        return "host"
    if pod.addresses:
        return "served"
    if pod.metadata.deletion_timestamp:
        return "leaving"
    return "waits" if pod.waits else "unplaced"


def pod_news(old: SeenPod | None, new: SeenPod | None, *, at: str) -> Iterable[News]:
    """Tell that a Pod came to a node, was given an address, or has none any more."""
    had, has = old.addresses if old else (), new.addresses if new else ()
    pod = new or old
    if pod is None:
        return
    told = []
    if gained := [each for each in has if each not in had]:
        told.append(f"has {' and '.join(gained)} on node {pod.spec.node_name}")
    elif new and new.waits and not (old and old.waits):
        told.append(f"waits for an address on node {pod.spec.node_name}")
    if lost := [each for each in had if each not in has]:
        told.append(f"has {' and '.join(lost)} no more")
    for words in told:
        yield News(at=at, about=f"Pod {pod.key}", words=words)

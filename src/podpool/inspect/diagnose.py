"""Why a Pod has no address: from what is seen, the first reason that explains it, and what to do. Pure."""

from collections.abc import Sequence

from podpool.api.builtin import FINISHED, Event
from podpool.inspect.changes import news_of
from podpool.inspect.cluster_model import Scene
from podpool.inspect.objects import SeenPod
from podpool.inspect.view_models import NodeView, SubnetView, View
from podpool.ledger.admin_messages import ReportedUse


class Reason(View, frozen=True, kw_only=True):
    """What is so, and what can be done about it."""

    pod: str
    waits: bool = False
    told: str
    todo: str = ""


def why(scene: Scene, key: str) -> Reason:
    """Explain a Pod, by its namespace and name."""
    pod = scene.mirrors.pods.get(key)
    if pod is None:
        return Reason(pod=key, told="There is no such Pod.", todo="Look at `kubectl get pods --all-namespaces`.")
    if content := _content(pod):
        return Reason(pod=key, told=content)
    if not pod.spec.node_name:
        return Reason(pod=key, waits=True, told="It is on no node yet.", todo=f"Ask the scheduler: {_describe(pod)}.")
    told, todo = _on_node(scene, pod)
    return Reason(pod=key, waits=True, told=told, todo=todo)


def gone(key: str, uses: Sequence[ReportedUse]) -> Reason:
    """Tell of a Pod that is no more what it had when it was last seen; of an earlier one of its name nothing."""
    last = [use for use in uses if use.uid == uses[0].uid]
    ends = [use.until for use in last if use.until]
    until = f"until {max(ends)}" if ends else "when it was last reported"
    where = f" on node {last[0].node}" if last[0].node else ""
    return Reason(pod=key, told=f"It is gone: {until} it had {' and '.join(use.address for use in last)}{where}.")


def _content(pod: SeenPod) -> str:
    """Say why a Pod waits for nothing; empty when it does wait."""
    if pod.addresses:
        return f"It has {' and '.join(pod.addresses)} on node {pod.spec.node_name}."
    if pod.spec.host_network:
        return "It is on its node's own network and needs no address."
    if pod.status.phase in FINISHED:
        return "It is finished: its address has been let go of."
    return "It is being deleted and needs no address any more." if pod.metadata.deletion_timestamp else ""


Words = tuple[str, str]
"""What is so, and what to do."""


def _on_node(scene: Scene, pod: SeenPod) -> Words:
    name = pod.spec.node_name
    view = scene.nodes.get(name)
    if view is None or view.gone:
        return f"Node {name} is not there.", "Delete the Pod: it will be made again elsewhere."
    if not view.subnet:
        return _unserved(scene, name)
    if view.idle:
        told = (
            f"Node {name} has {_addresses(view.idle)} at hand: the Pod's sandbox is being made, its status is on its "
            f"way, or the plugin does not reach the agent."
        )
        return told, f"If it lasts, look at {_describe(pod)} and at the agent's log on {name}."
    subnet = scene.subnets.get(view.subnet)
    if not scene.subnets or (subnet and not subnet.capacity):
        told = f"Node {name} uses all {view.assigned} of its addresses, and the ledger cannot be asked how full"
        return f"{told} subnet {view.subnet} is.", "Name the ledger, or see whether it runs: `podpool status`."
    if subnet is None:
        return f"The ledger knows no subnet {view.subnet}.", "Make it, or give the Node another."
    told, todo = _used_up(view, subnet)
    return f"Node {name} uses all {view.assigned} of its addresses{told}", todo


def _unserved(scene: Scene, name: str) -> Words:
    events = [each for each in scene.mirrors.events.values() if _about(each, name)]
    refused = [news.words for each in events if (news := news_of(each))]
    because = f" It was told: {refused[-1]}." if refused else ""
    told = f"Node {name} has been given nothing yet.{because}"
    return told, "See whether the controller runs and reaches the ledger: `podpool status`."


def _about(event: Event, node: str) -> bool:
    return (event.regarding.kind, event.regarding.name) == ("Node", node)


def _used_up(view: NodeView, subnet: SubnetView) -> Words:
    if subnet.frozen:
        told = f", and subnet {subnet.name} grants nothing: the ledger recovers."
        return told, "See `podpool ledger recovery status`."
    if subnet.draining:
        told = f", and subnet {subnet.name} is being drained."
        return told, f"Give the Node another subnet, or `podpool ledger subnet reopen {subnet.name}`."
    if view.short:
        told = (
            f", asked for {view.arriving} more, and subnet {subnet.name} is full: of {subnet.capacity} addresses "
            f"{subnet.assigned} are Pods', {subnet.idle} idle on nodes, {subnet.resting} rest, {subnet.others} are "
            f"other clusters', {subnet.capacity - subnet.reserved} free (the last {subnet.reserved_for_primaries} are for "
            f"new nodes)."
        )
        grow = f"`podpool ledger subnet grow {subnet.name} CIDR`"
        return told, f"Make it larger: {grow}; or wait: what is idle or rests comes back."
    if view.arriving:
        told = f" and asked for {view.arriving} more, which are on their way."
        return told, "If it lasts, see whether controller and ledger answer: `podpool status`."
    told = " and has not asked for more."
    return told, f"See whether its agent runs, or the node is at its maximum: `kubectl describe node {view.name}`."


def _describe(pod: SeenPod) -> str:
    return f"`kubectl -n {pod.metadata.namespace} describe pod {pod.metadata.name}`"


def _addresses(count: int) -> str:
    return "1 address" if count == 1 else f"{count} addresses"

"""Why a Pod has no address: the first reason that explains it, and what to do. Pure."""

import re
from collections.abc import Sequence
from contextlib import suppress

from podpool.api.builtin import FINISHED, Event
from podpool.api.multus import NetworkAttachmentDefinition
from podpool.api.whereabouts import NodeSlicePool, waiting_nodes
from podpool.core.errors import InvalidInput
from podpool.inspect.activity import activity_of
from podpool.inspect.cluster_model import ClusterModel
from podpool.inspect.view_models import InspectedPod, NodeView, SubnetView, ViewModel
from podpool.ledger.admin_messages import ReportedPodUsage
from podpool.whereabouts.nad import parse_nad


class Diagnosis(ViewModel, frozen=True, kw_only=True):
    """The cause, and the recommended action."""

    pod: str
    waiting_for_address: bool = False
    message: str
    action: str = ""


def diagnose(model: ClusterModel, key: str) -> Diagnosis:
    """Explain the state of a Pod, given as namespace/name."""
    pod = model.caches.pods.get(key)
    if pod is None:
        action = "List Pods with `kubectl get pods --all-namespaces`."
        return Diagnosis(pod=key, message="The Pod does not exist.", action=action)
    if content := _not_waiting(pod):
        return Diagnosis(pod=key, message=content)
    if not pod.spec.node_name:
        message, action = "It is not scheduled yet.", f"See the scheduler's Events: {_describe(pod)}."
    else:
        message, action = _on_node(model, pod)
    return Diagnosis(pod=key, waiting_for_address=True, message=message, action=action)


def diagnose_deleted(key: str, uses: Sequence[ReportedPodUsage]) -> Diagnosis:
    """Return the last known addresses of a deleted Pod."""
    last = [use for use in uses if use.uid == uses[0].uid]
    ends = [use.until for use in last if use.until]
    until = f"until {max(ends)}" if ends else "when it was last reported"
    where = f" on node {last[0].node}" if last[0].node else ""
    return Diagnosis(
        pod=key, message=f"It was deleted: {until} it had {' and '.join(use.address for use in last)}{where}."
    )


def _not_waiting(pod: InspectedPod) -> str:
    """Return why a Pod does not wait for an address; empty when it does."""
    if pod.addresses:
        return f"It has {' and '.join(pod.addresses)} on node {pod.spec.node_name}."
    if pod.spec.host_network:
        return "It uses the host network and needs no address."
    if pod.status.phase in FINISHED:
        return "It is finished, and its address was released."
    return "It is being deleted and needs no address." if pod.metadata.deletion_timestamp else ""


Explanation = tuple[str, str]
"""Cause and recommended action."""


def _on_node(model: ClusterModel, pod: InspectedPod) -> Explanation:
    name = pod.spec.node_name
    view = model.nodes.get(name)
    if view is None or view.gone:
        return f"Node {name} does not exist.", "Delete the Pod: its controller recreates it on another node."
    if missing := _missing_slices(model, name, pod.secondary_networks):
        return missing
    return _with_grants(model, pod, view) if view.subnet else _node_without_grants(model, pod)


def _with_grants(model: ClusterModel, pod: InspectedPod, view: NodeView) -> Explanation:
    name = view.name
    if view.idle:
        message = (
            f"Node {name} has {_addresses(view.idle)} free: the Pod's sandbox is being created, its status is not "
            f"written yet, or the plugin cannot reach the agent."
        )
        return message, f"If this persists, see {_describe(pod)} and the agent's log on {name}."
    subnet = model.subnets.get(view.subnet)
    if not model.subnets or (subnet and not subnet.capacity):
        message = (
            f"Node {name} uses all {view.assigned} of its addresses, and the ledger is not available for the usage of"
        )
        return f"{message} subnet {view.subnet}.", "Set --ledger, or check the ledger with `podpool status`."
    if subnet is None:
        return f"The ledger has no subnet {view.subnet}.", "Create the subnet, or change the subnet label of the Node."
    message, action = _node_exhausted(view, subnet)
    return f"Node {name} uses all {view.assigned} of its addresses{message}", action


def _missing_slices(model: ClusterModel, node: str, networks_of_pod: frozenset[str]) -> Explanation | None:
    """Return that the node has no slice of one of the Pod's networks."""
    of_pod = {_slice_pool_of(model.caches.nads.get(key), key) for key in networks_of_pod}
    pools = sorted(model.caches.node_slice_pools.values(), key=lambda each: each.metadata.name)
    waited_for = [each for each in pools if node in waiting_nodes(each)]
    names = [each.metadata.name for each in waited_for if not of_pod.isdisjoint(_network_names(each))]
    if not names:
        return None
    networks = f"network {names[0]}" if len(names) == 1 else f"networks {', '.join(names)}"
    action = "Use a larger range or a smaller node_slice_size, or remove nodes: `podpool slices` shows the usage."
    return f"Node {node} waits for a slice of {networks}: all slices are assigned.", action


def _slice_pool_of(nad: NetworkAttachmentDefinition | None, key: str) -> str:
    """Return the name of a network's NodeSlicePool: that of its configuration, else of the NAD; empty without one."""
    if nad is None:  # deleted since, or not allowed to be read
        return key.rpartition("/")[2]
    with suppress(InvalidInput):  # for example, its ranges are in a flat file on the nodes
        parsed = parse_nad(nad)
        return parsed.pool_name if parsed else ""
    return nad.metadata.name


def _network_names(pool: NodeSlicePool) -> tuple[str, ...]:
    """Return the network that a pool may be of: it has the network's name, a further one with the range appended."""
    name, range_ = pool.metadata.name, re.sub("[:/]", "-", pool.spec.range)
    return name, name.removesuffix(f"-{range_}")


def _node_without_grants(model: ClusterModel, pod: InspectedPod) -> Explanation:
    name = pod.spec.node_name
    if not model.has_ledger:
        message = f"Node {name} has no addresses of podpool: without a ledger its CNI plugin assigns those of Pods."
        return message, f"See {_describe(pod)}."
    events = [each for each in model.caches.events.values() if _about(each, name)]
    refused = [activity.message for each in events if (activity := activity_of(each))]
    because = f" Last Event: {refused[-1]}." if refused else ""
    message = f"Node {name} has no addresses yet.{because}"
    return message, "Check that the controller runs and reaches the ledger: `podpool status`."


def _about(event: Event, node: str) -> bool:
    return (event.regarding.kind, event.regarding.name) == ("Node", node)


def _node_exhausted(view: NodeView, subnet: SubnetView) -> Explanation:
    if subnet.frozen:
        message = f", and subnet {subnet.name} grants nothing: the ledger is in recovery."
        return message, "See `podpool ledger recovery status`."
    if subnet.draining:
        message = f", and subnet {subnet.name} is being drained."
        return message, f"Move the Node to another subnet, or `podpool ledger subnet reopen {subnet.name}`."
    if view.short:
        message = (
            f", requested {view.pending} more, and subnet {subnet.name} is full: of {subnet.capacity} addresses "
            f"{subnet.assigned} are assigned, {subnet.idle} idle on nodes, {subnet.cooling_down} cooling down, "
            f"{subnet.other_clusters} in other clusters, {subnet.capacity - subnet.reserved} free "
            f"({subnet.reserved_for_primaries} reserved for primaries)."
        )
        return message, f"Grow it: `podpool ledger subnet grow {subnet.name} CIDR`{_alternative(subnet)}."
    if view.pending:
        message = f" and requested {view.pending} more, which are not granted yet."
        return message, "If this persists, check controller and ledger: `podpool status`."
    message = " and has not requested more."
    return message, f"Check that its agent runs and the node is below its maximum: `kubectl describe node {view.name}`."


def _alternative(subnet: SubnetView) -> str:
    """Return what else provides addresses: waiting only if some can return without a Pod being deleted."""
    returning = {"idle": subnet.idle, "cooling": subnet.cooling_down}
    kinds = " and ".join(f"{count} {kind}" for kind, count in returning.items() if count)
    if not kinds:
        return "; or run fewer Pods on it: no address is idle or cooling down"
    return f"; or wait until {kinds} addresses return"


def _describe(pod: InspectedPod) -> str:
    return f"`kubectl -n {pod.metadata.namespace} describe pod {pod.metadata.name}`"


def _addresses(count: int) -> str:
    return "1 address" if count == 1 else f"{count} addresses"

"""Why a Pod has no address, or a node none for its Pods: the first reason that explains it, and what to do. Pure."""

from collections.abc import Sequence

from podpool.api.builtin import FINISHED
from podpool.inspect.cluster_model import ClusterModel
from podpool.inspect.node_slices import slices_of
from podpool.inspect.slice_diagnosis import Explanation, last_event, missing_slice, missing_slice_of_node
from podpool.inspect.view_models import InspectedPod, NodeView, SubnetView, ViewModel
from podpool.ledger.admin_messages import ReportedPodUsage


class Diagnosis(ViewModel, frozen=True, kw_only=True):
    """The cause, and the recommended action."""

    pod: str = ""
    node: str = ""
    waiting_for_address: bool = False
    """Whether the Pod waits, or Pods of the node wait or would."""
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


def diagnose_node(model: ClusterModel, name: str) -> Diagnosis:
    """Explain the state of a node."""
    view = model.nodes.get(name)
    if view is None or view.gone:
        return Diagnosis(node=name, message=f"Node {name} does not exist.", action="See `kubectl get nodes`.")
    found = missing_slice_of_node(model, name)
    if found is None and (view.subnet or model.has_ledger):
        found = _node_addresses(model, view)
    if found:
        return Diagnosis(node=name, waiting_for_address=True, message=found[0], action=found[1])
    return Diagnosis(node=name, message=_served(model, view))


def _served(model: ClusterModel, view: NodeView) -> str:
    grants = f"{view.assigned} of {view.held} addresses in use" if view.subnet else ""
    own = model.caches.node_slices.get(view.name)
    slices = [f"{each.slice} ({each.state})" for each in slices_of(own)] if own else []
    listed = f"the slice{'s' * (len(slices) > 1)} {', '.join(slices)}" if slices else ""
    return f"Node {view.name} has {' and '.join(filter(None, (grants, listed))) or 'nothing of podpool'}."


def _node_addresses(model: ClusterModel, view: NodeView) -> Explanation | None:
    """Return why a node of a subnet cannot serve a Pod; None if it can."""
    if not view.subnet:
        return _no_grants(model, view.name)
    if view.idle or not (view.waiting or view.short):
        return None
    return _without_idle(model, view)


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


def _on_node(model: ClusterModel, pod: InspectedPod) -> Explanation:
    name = pod.spec.node_name
    view = model.nodes.get(name)
    if view is None or view.gone:
        return f"Node {name} does not exist.", "Delete the Pod: its controller recreates it on another node."
    if missing := missing_slice(model, name, pod.secondary_networks):
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
    return _without_idle(model, view)


def _without_idle(model: ClusterModel, view: NodeView) -> Explanation:
    name = view.name
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


def _node_without_grants(model: ClusterModel, pod: InspectedPod) -> Explanation:
    name = pod.spec.node_name
    if model.has_ledger:
        return _no_grants(model, name)
    message = f"Node {name} has no addresses of podpool: without a ledger its CNI plugin assigns those of Pods."
    return message, f"See {_describe(pod)}."


def _no_grants(model: ClusterModel, name: str) -> Explanation:
    message = f"Node {name} has no addresses yet.{last_event(model, 'Node', name)}"
    return message, "Check that the controller runs and reaches the ledger: `podpool status`."


def _node_exhausted(view: NodeView, subnet: SubnetView) -> Explanation:
    if subnet.frozen:
        message = f", and subnet {subnet.name} grants nothing: the ledger is in recovery."
        return message, "See `podpool ledger recovery status`."
    if subnet.draining:
        message = f", and subnet {subnet.name} is being drained."
        return message, f"Move the Node to another subnet, or `podpool ledger subnet reopen {subnet.name}`."
    if view.limited_by:
        message = f" and requested {view.pending} more: {view.limited_by}."
        return message, "Ask the administrator of the ledger for a higher limit, or run fewer Pods in this cluster."
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

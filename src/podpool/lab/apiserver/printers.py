"""Table cells of Nodes, Pods and Events, as `kubectl get` shows them."""

from collections.abc import Callable, Sequence
from typing import Any

from podpool.lab.apiserver.registry import Object

UNKNOWN, NONE, INVALID = "<unknown>", "<none>", "<invalid>"
ROLE = "node-role.kubernetes.io/"
Age = Callable[[str | None], str]


def node_cells(node: Object, age: Age) -> Sequence[Any]:
    """Return the cells of a Node."""
    meta, status = node["metadata"], node.get("status", {})
    machine = status.get("nodeInfo", {})
    addresses = {each["type"]: each["address"] for each in reversed(status.get("addresses") or ())}
    roles = sorted(each.removeprefix(ROLE) for each in meta.get("labels") or () if each.startswith(ROLE))
    return (
        meta["name"],
        _node_state(node),
        ",".join(roles) or NONE,
        age(meta.get("creationTimestamp")),
        machine.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        machine.get("osImage") or UNKNOWN,
        _kernel(machine),
        machine.get("containerRuntimeVersion") or UNKNOWN,
    )


def _kernel(machine: Object) -> str:
    version, architecture = machine.get("kernelVersion"), machine.get("architecture")
    return f"{version} ({architecture})" if version and architecture else version or UNKNOWN


def _node_state(node: Object) -> str:
    conditions = node.get("status", {}).get("conditions") or ()
    ready = [each.get("status") for each in conditions if each.get("type") == "Ready"]
    states = [("Ready" if ready[0] == "True" else "NotReady") if ready else "Unknown"]
    return ",".join([*states, *(["SchedulingDisabled"] if node.get("spec", {}).get("unschedulable") else [])])


def pod_cells(pod: Object, age: Age) -> Sequence[Any]:
    """Return the cells of a Pod."""
    meta, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    running = status.get("containerStatuses") or ()
    addresses = [each["ip"] for each in status.get("podIPs") or () if each.get("ip")]
    gates = spec.get("readinessGates") or ()
    return (
        meta["name"],
        f"{sum(1 for each in running if each.get('ready'))}/{len(spec.get('containers') or ())}",
        _pod_state(pod),
        str(sum(each.get("restartCount", 0) for each in running)),
        age(meta.get("creationTimestamp")),
        addresses[0] if addresses else NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{_gates_open(gates, status)}/{len(gates)}" if gates else NONE,
    )


def _pod_state(pod: Object) -> str:
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"] and status.get("phase") not in {"Succeeded", "Failed"}:
        return "Terminating"
    state = str(status.get("reason") or status.get("phase", ""))
    for each in reversed(status.get("containerStatuses") or ()):
        container = each.get("state", {})
        waiting, terminated = container.get("waiting") or {}, container.get("terminated") or {}
        if terminated and not terminated.get("reason"):
            signal = terminated.get("signal")
            terminated = {"reason": f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"}
        state = waiting.get("reason") or terminated.get("reason") or state
    return state


def _gates_open(gates: Sequence[Object], status: Object) -> int:
    true = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    return sum(1 for each in gates if each["conditionType"] in true)


def event_cells(event: Object, age: Age) -> Sequence[Any]:
    """Return the cells of an Event in the core/v1 format."""
    series, source = event.get("series") or {}, event.get("source") or {}
    about = event.get("involvedObject", {})
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    component, host = source.get("component", ""), source.get("host", "")
    if not component:
        component, host = event.get("reportingComponent", ""), event.get("reportingInstance", "")
    return (
        age(last),
        event.get("type", ""),
        event.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about['name']}" if about.get("name") else about.get("kind", "").lower(),
        about.get("fieldPath", ""),
        ", ".join(each for each in (component, host) if each),
        event.get("message", "").strip(),
        age(first),
        series.get("count") or event.get("count") or 1,
        event["metadata"]["name"],
    )

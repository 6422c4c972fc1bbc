"""Two nodes with all that is theirs on a real API server, and a token of each one's agent."""

from collections.abc import Callable
from typing import Any

from parts.api import Api, ApiError
from parts.control_plane import ControlPlane
from parts.polling import until

HOME = "kube-system"
NNCS = f"/apis/acn.azure.com/v1alpha/namespaces/{HOME}/nodenetworkconfigs"
POOLS = f"/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{HOME}/ippools"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{HOME}/events"
SLICES = "/apis/podpool.io/v1alpha1/nodeslices"
NODES = "/api/v1/nodes"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
TIME = "2026-01-01T00:00:00.000000Z"


class Nodes:
    """Two nodes with all that is theirs, and a token of each one's agent."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.tokens = {
            "node-a": plane.accounts.token("podpool-agent", namespace=HOME, node="node-a", pod="agent-of-a"),
            "node-b": plane.accounts.token("podpool-agent", namespace=HOME, node="node-b"),
        }
        self.a = plane.api(self.tokens["node-a"])
        self.b = plane.api(self.tokens["node-b"])
        for node in self.tokens:
            for path, body in own_objects(node).items():
                again(plane.admin, path, body)
        until(self.held, "the policies are in force")

    def held(self) -> bool:
        """Whether the API server has learned all of the policies: each refuses what only it refuses."""
        probes: dict[str, tuple[str, object]] = {kind: (path, LABEL) for kind, path in theirs("node-b").items()}
        probes["NodeSlices"] = f"{SLICES}/node-b/status", REPORT
        return all(refused(self.a.patch, f"{path}?dryRun=All", change) for path, change in probes.values())


LABEL = {"metadata": {"labels": {"mine": "yes"}}}
REPORT = {"status": {"protocol": 1}}


def own_objects(node: str) -> dict[str, dict[str, Any]]:
    """What controller and agent make for a node, by where each goes."""
    annotations = {"podpool.io/node": node, "podpool.io/slice": "10.0.0.0/24"}
    annotated = {"name": f"{node}-10.0.0.0-24", "annotations": annotations}
    return {
        NNCS: {"metadata": {"name": node, "finalizers": ["podpool.io/ledger"]}, **of("acn.azure.com/v1alpha", NNC)},
        POOLS: {
            "metadata": annotated,
            **of("whereabouts.cni.cncf.io/v1alpha1", "IPPool"),
            "spec": {"range": "10.0.0.0/24", "allocations": {}},
        },
        LEASES: {"metadata": annotated, **of("coordination.k8s.io/v1", "Lease"), "spec": {"holderIdentity": ""}},
        SLICES: {"metadata": {"name": node}, **of("podpool.io/v1alpha1", "NodeSlices"), "spec": {"nodeUID": "u"}},
        EVENTS: event(node),
    }


NNC = "NodeNetworkConfig"


def of(version: str, kind: str) -> dict[str, str]:
    return {"apiVersion": version, "kind": kind}


def event(node: str, name: str = "") -> dict[str, Any]:
    return {
        **of("events.k8s.io/v1", "Event"),
        "metadata": {"name": name or f"{node}.1", "namespace": HOME},
        "eventTime": TIME,
        "reportingController": "podpool-agent",
        "reportingInstance": node,
        "action": "Scaling",
        "reason": "InsufficientAddresses",
        "type": "Warning",
        "regarding": {**of("acn.azure.com/v1alpha", NNC), "namespace": HOME, "name": node},
        "note": "less than asked for",
    }


def theirs(node: str) -> dict[str, str]:
    """Where a node's objects are, by kind."""
    return {
        NNC: f"{NNCS}/{node}",
        "IPPool": f"{POOLS}/{node}-10.0.0.0-24",
        "Lease": f"{LEASES}/{node}-10.0.0.0-24",
        "NodeSlices": f"{SLICES}/{node}",
        "Node": f"{NODES}/{node}",
        "Event": f"{EVENTS}/{node}.1",
    }


def wanted(obj: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What an agent may change of an object if it is its own, by subresource."""
    if obj["kind"] == "Node":
        others = [each for each in obj["spec"].get("taints", []) if each["key"] != TAINT["key"]]
        return {"": {"spec": {"taints": [*others, TAINT]}}, "/status": {"status": {"conditions": [SHORT]}}}
    return {"/status": REPORT} if obj["kind"] == "NodeSlices" else {"": WANTED[obj["kind"]]}


TAINT = {"key": "podpool.io/addresses-short", "effect": "NoSchedule"}
SHORT = {"type": "PodAddressesShort", "status": "True", "reason": "SubnetFull", "message": "no address left"}
TAKEN = {"spec": {"allocations": {"1": {"id": "c", "podref": "default/p", "ifname": "net1"}}}}
HELD = {"spec": {"holderIdentity": "default/p"}}
WANTED: dict[str, dict[str, Any]] = {
    NNC: {"spec": {"requestedIPCount": 15}},
    "IPPool": TAKEN,
    "Lease": HELD,
    "Event": {"series": {"count": 2, "lastObservedTime": TIME}},
}


def again(admin: Api, path: str, body: dict[str, Any]) -> None:
    """Create an object again."""
    remove(admin, f"{path}/{body['metadata']['name']}")
    admin.post(path, body)


def remove(admin: Api, place: str) -> None:
    """See that an object is not there."""
    try:
        admin.patch(place, {"metadata": {"finalizers": None}})
        admin.delete(place)
    except ApiError as error:
        if error.reason != "NotFound":
            raise


def refused(call: Callable[..., object], *args: object) -> bool:
    """Whether the API server says that this is forbidden."""
    try:
        call(*args)
    except ApiError as error:
        assert 403 == error.status, error
        return True
    return False

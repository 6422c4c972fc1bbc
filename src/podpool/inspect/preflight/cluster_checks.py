"""Checks of the cluster itself: version, CRDs, Nodes, clocks and other CNI plugins. Pure."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from podpool.api.admission import admission_manifests
from podpool.api.crds import crd_manifests
from podpool.core.settings import Settings
from podpool.inspect.preflight.objects import Machine
from podpool.inspect.preflight.report import PreflightFinding, Severity, finding, names, unread
from podpool.inspect.preflight.snapshot import API_SERVER, ClockReading, PreflightSnapshot
from podpool.kube.cluster_discovery import INSTALL_COMMAND

OLDEST_MINOR = 30
"""Kubernetes 1.30 is the first with ValidatingAdmissionPolicies as v1."""
_VERSION = re.compile(r"v?1\.(\d{1,4})(?:\D|$)", re.ASCII)
SKEW_NOTICED = 5.0
"""Seconds between two clocks from which times in logs and histories are misleading."""
ARCHITECTURES = frozenset({"amd64", "arm64", "arm", "ppc64le", "riscv64", "s390x"})
"""Those of the plugin in C, as kubelets name them."""
RUNTIMES = frozenset({"containerd", "cri-o"})
SYSTEMS = frozenset({"linux"})
OTHER_CNIS = {
    "whereabouts": "it assigns addresses of the same ranges: read docs/moving.md, and run `podpool adopt whereabouts`",
    "azure-cns": "it is an agent of NodeNetworkConfigs: its nodes need no agent of podpool (docs/kubernetes.md)",
}
"""Parts of a DaemonSet's name, and what follows."""
POD_NETWORKS = (
    *("calico-node", "cilium", "flannel", "weave-net", "aws-node", "kindnet", "antrea-agent", "ovnkube-node"),
    *("kube-router", "canal", "kube-ovn-cni", "azure-cni", "netd"),
)
"""Parts of the names of DaemonSets that give Pods their default network."""


def check_version(snapshot: PreflightSnapshot) -> Iterator[PreflightFinding]:
    """Check the version of Kubernetes."""
    check, what = "kubernetes-version", API_SERVER
    found = _VERSION.match(snapshot.version)
    if not found:
        yield finding(check, Severity.WARNING, what, f"its version {snapshot.version!r} is not one of Kubernetes 1.x")
    elif int(found.group(1)) < OLDEST_MINOR:
        message = f"{snapshot.version} has no ValidatingAdmissionPolicies: an agent's account may write to other nodes"
        yield finding(check, Severity.WARNING, what, message, f"upgrade to Kubernetes 1.{OLDEST_MINOR} or later")
    else:
        yield finding(check, Severity.OK, what, snapshot.version)


def check_clock(check: str, what: str, clock: ClockReading) -> PreflightFinding:
    """Compare the local clock with that of a server."""
    if clock.remote is None:
        return finding(check, Severity.INFO, what, "not checked: its answers have no Date header")
    skew, limit = clock.skew, Settings().clock_error
    if abs(skew) < SKEW_NOTICED:
        return finding(check, Severity.OK, what, f"its clock and the one here differ by less than {SKEW_NOTICED:g} s")
    severity = Severity.ERROR if abs(skew) > limit else Severity.WARNING
    message = f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the one here"
    remedy = f"synchronize the clocks of both machines; node GC relies on a difference below {limit:g} s (clock_error)"
    return finding(check, severity, what, message, remedy)


def check_crds(snapshot: PreflightSnapshot) -> Iterator[PreflightFinding]:
    """Check that each CRD is installed as this version of podpool needs it."""
    if snapshot.crds.problem:
        yield unread("crds", "customresourcedefinitions", snapshot.crds.problem)
        return
    found = {each.metadata.name: each for each in snapshot.crds.value}
    for wanted in crd_manifests():
        name = wanted["metadata"]["name"]
        crd = found.get(name)
        problem = "" if crd is None else _crd_problem(wanted["spec"], crd.spec, crd.status)
        remedy = f"run `{INSTALL_COMMAND}`"
        if crd is None:
            yield finding("crds", Severity.WARNING, f"crd/{name}", "is not installed", remedy)
        elif problem:
            yield finding("crds", Severity.WARNING, f"crd/{name}", problem, remedy)
        else:
            yield finding("crds", Severity.OK, f"crd/{name}", "is installed")


def _crd_problem(wanted: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    (version,) = wanted["versions"]
    versions = spec.get("versions")
    served = [each for each in versions if isinstance(each, dict)] if isinstance(versions, list) else []
    same = next((each for each in served if each.get("name") == version["name"] and each.get("served")), None)
    if same is None:
        return f"does not serve version {version['name']}"
    conditions = status.get("conditions") or []
    if not any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions):
        return "is not established"
    subresources = dict(version["subresources"])
    if not contains(same.get("schema"), version["schema"]) or not contains(same.get("subresources", {}), subresources):
        return "differs from the one of this version of podpool"
    return ""


def contains(found: object, wanted: object) -> bool:
    """Return whether an object has all that a manifest sets; the API server adds defaults."""
    if isinstance(wanted, Mapping):
        pairs = wanted.items()
        return isinstance(found, Mapping) and all(contains(found.get(name), each) for name, each in pairs)
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(found) == len(wanted)
        return same and all(contains(one, other) for one, other in zip(_listed(found), wanted, strict=True))
    return found == wanted


def _listed(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def check_admission(snapshot: PreflightSnapshot) -> Iterator[PreflightFinding]:
    """Check that the policies that restrict agents to their node are installed."""
    check, what = "admission-policies", "validatingadmissionpolicies"
    if snapshot.policies.problem:
        yield unread(check, what, snapshot.policies.problem)
        return
    policies = [each for each in admission_manifests() if each["kind"] == "ValidatingAdmissionPolicy"]
    found = {each.metadata.name for each in snapshot.policies.value}
    missing = [name for each in policies if (name := each["metadata"]["name"]) not in found]
    if missing:
        message = f"not installed: {names(missing)}; without them an agent may write to other nodes"
        yield finding(check, Severity.WARNING, what, message, "run `podpool rbac | kubectl apply -f -`")
    else:
        yield finding(check, Severity.OK, what, f"{len(policies)} policies are installed")


def check_nodes(snapshot: PreflightSnapshot) -> Iterator[PreflightFinding]:
    """Check what Nodes say about their machines."""
    if snapshot.nodes.problem:
        yield unread("nodes", "nodes", snapshot.nodes.problem)
        return
    nodes = snapshot.nodes.value
    if not nodes:
        yield finding("nodes", Severity.WARNING, "nodes", "the cluster has no Nodes", "add one before the agents start")
        return
    found = [*_boot_ids(nodes), *_machines(nodes), *_limits(nodes)]
    yield from found or [finding("nodes", Severity.OK, "nodes", f"{len(nodes)} Nodes with a boot ID of their own")]


def _boot_ids(nodes: Sequence[Machine]) -> Iterator[PreflightFinding]:
    by_id = defaultdict[str, list[str]](list)
    for each in nodes:
        by_id[each.status.node_info.boot_id].append(each.metadata.name)
    if absent := by_id.pop("", []):
        message = f"no boot ID reported: {names(absent)}"
        yield finding("nodes", Severity.ERROR, "nodes", message, "start a kubelet there, or delete the Nodes")
    for boot_id, shared in by_id.items():
        if len(shared) > 1:
            message = f"{names(shared)} have one boot ID, {boot_id}: they are containers of one machine"
            remedy = "set --boot-id and --state of each agent, so that none takes the state of another"
            yield finding("nodes", Severity.WARNING, "nodes", message, remedy)


def _machines(nodes: Sequence[Machine]) -> Iterator[PreflightFinding]:
    if systems := _others(nodes, "operating_system", SYSTEMS):
        remedy = "keep the agents off them with the nodeSelector kubernetes.io/os=linux"
        yield finding("nodes", Severity.WARNING, "nodes", f"not Linux, not served: {names(systems)}", remedy)
    if machines := _others(nodes, "architecture", ARCHITECTURES):
        message = f"the plugin in C is not built for: {names(machines)}"
        yield finding("nodes", Severity.INFO, "nodes", f"{message}; the one in Python is used")
    if runtimes := _others(nodes, "container_runtime_version", RUNTIMES):
        message = f"neither containerd nor CRI-O: {names(runtimes)}; lost DELs are found by Pods only"
        yield finding("nodes", Severity.INFO, "nodes", message)


def _others(nodes: Sequence[Machine], field: str, known: Collection[str]) -> list[str]:
    """Return the Nodes that report something unknown; a Node that reports nothing is not one of them."""
    reported = [(each.metadata.name, str(getattr(each.status.node_info, field))) for each in nodes]
    return [f"{name} ({text})" for name, text in reported if text and text.partition("://")[0] not in known]


def _limits(nodes: Sequence[Machine]) -> Iterator[PreflightFinding]:
    maximum = Settings().node_maximum
    above = [each.metadata.name for each in nodes if _pods(each) > maximum]
    if above:
        message = f"more Pods allowed than the {maximum} addresses of a node (node_maximum): {names(above)}"
        yield finding("nodes", Severity.WARNING, "nodes", message, "raise node_maximum, or lower maxPods")
    by_address = defaultdict[str, list[str]](list)
    for each in nodes:
        for address in each.status.addresses:
            if address.type == "InternalIP":
                by_address[address.address].append(each.metadata.name)
    for text, shared in by_address.items():
        if len(shared) > 1:
            message = f"{names(shared)} have one address, {text}"
            yield finding("nodes", Severity.WARNING, "nodes", message, "delete the Nodes that no longer exist")


def _pods(node: Machine) -> int:
    text = node.status.allocatable.get("pods", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def check_other_cnis(snapshot: PreflightSnapshot) -> Iterator[PreflightFinding]:
    """List other CNI plugins by the names of their DaemonSets."""
    check, what = "other-cnis", "daemonsets"
    if snapshot.daemon_sets.problem:
        yield unread(check, what, snapshot.daemon_sets.problem)
        return
    before = len(seen := list[PreflightFinding]())
    for each in snapshot.daemon_sets.value:
        for word, consequence in OTHER_CNIS.items():
            if word in each.metadata.name:
                seen.append(finding(check, Severity.WARNING, f"daemonset/{each.key}", f"is installed: {consequence}"))
        if any(word in each.metadata.name for word in POD_NETWORKS):
            message = "gives Pods their default network; podpool then serves secondary networks, or replaces its IPAM"
            seen.append(finding(check, Severity.INFO, f"daemonset/{each.key}", message))
    if len(seen) == before:
        seen.append(finding(check, Severity.OK, what, "no other CNI plugin is known by its DaemonSet"))
    yield from seen

"""What each component may do: its account, and the smallest roles with which it works.

RBAC knows verbs and kinds, not which node asks: what an agent may write beyond that is for `admission` to narrow down.
What it may read is what stands here. The rights for shared ranges are apart: there any node writes what all nodes use.
"""

from collections.abc import Sequence
from typing import Any

from podpool.api.azure import GROUP as ACN
from podpool.api.whereabouts import GROUP as WHEREABOUTS

Manifest = dict[str, Any]

NAMESPACE = "kube-system"
AGENT = "podpool-agent"
CONTROLLER = "podpool-controller"
DASHBOARD = "podpool-dashboard"
SHARED_RANGES = "podpool-agent-shared-ranges"
SHARE_VERB = "share"
"""A verb of our own: to write pools that belong to no node. The policies ask for it."""
SHARED_LEASE = "whereabouts"
"""The Lease that Whereabouts' plugins take before they write any pool."""

_RBAC = "rbac.authorization.k8s.io"
_LEASES = "coordination.k8s.io"
_READ = ("get", "list", "watch")


def rbac_manifests(*, pools: str = NAMESPACE) -> list[Manifest]:
    """Make the accounts of all components with their rights; `pools` is where Whereabouts' objects live."""
    return [
        *_component(CONTROLLER, pools, _controller_everywhere(), _controller_at_home(), _controller_at_pools()),
        *_component(AGENT, pools, _agent_everywhere(), _agent_at_home(), _agent_at_pools()),
        _account(DASHBOARD),
        *_granted(DASHBOARD, DASHBOARD, _dashboard_everywhere()),
    ]


def shared_range_manifests(*, pools: str = NAMESPACE) -> list[Manifest]:
    """Make what agents need beyond that where Pods of all nodes share a range, as classic Whereabouts has it."""
    rules = [
        _rule(WHEREABOUTS, "ippools", "create", SHARE_VERB),
        _rule(WHEREABOUTS, "overlappingrangeipreservations", *_READ, "create", "delete"),
        _rule(_LEASES, "leases", "create"),
        _rule(_LEASES, "leases", SHARE_VERB, names=[SHARED_LEASE]),
    ]
    return _granted(SHARED_RANGES, AGENT, rules, namespace=pools)


def _controller_everywhere() -> list[Manifest]:
    return [
        _rule("", "nodes", *_READ, "patch"),  # to ask their agents after the API server was restored
        _rule("", "nodes/finalizers", "update"),  # to own what keeps a Node's deletion waiting, where that is checked
        _rule("", "pods", *_READ),
        _rule("", "namespaces", "get", names=[NAMESPACE]),  # its UID is the cluster's
        _rule("k8s.cni.cncf.io", "network-attachment-definitions", *_READ),
        _rule("events.k8s.io", "events", "create", "patch"),
    ]


def _controller_at_home() -> list[Manifest]:
    return [
        _rule(ACN, "nodenetworkconfigs", *_READ, "create", "patch", "delete"),
        _rule(ACN, "nodenetworkconfigs/status", "patch"),
        _rule(ACN, ["clustersubnets", "clustersubnetstates"], *_READ, "create"),
        _rule(ACN, ["clustersubnets/status", "clustersubnetstates/status"], "patch"),
        _rule(_LEASES, "leases", "create"),
        _rule(_LEASES, "leases", "get", "patch", names=[CONTROLLER]),
    ]


def _controller_at_pools() -> list[Manifest]:
    return [
        _rule(WHEREABOUTS, ["ippools", "nodeslicepools"], *_READ, "create", "patch", "delete"),
        _rule(WHEREABOUTS, "overlappingrangeipreservations", *_READ, "delete"),
        _rule(
            _LEASES, "leases", *_READ, "create", "patch", "delete"
        ),  # to label one for a Node that is registered anew
    ]


def _agent_everywhere() -> list[Manifest]:
    return [
        _rule("", "nodes", *_READ, "patch"),  # the taint, and what became of slices
        _rule("", "nodes/status", "patch"),  # the condition
        _rule("", "pods", *_READ),
        _rule("events.k8s.io", "events", "create", "patch"),
    ]


def _agent_at_home() -> list[Manifest]:
    return [
        _rule(ACN, "nodenetworkconfigs", *_READ, "patch"),
        _rule(ACN, ["clustersubnets", "clustersubnetstates"], *_READ),
    ]


def _agent_at_pools() -> list[Manifest]:
    return [_rule(WHEREABOUTS, "ippools", *_READ, "patch"), _rule(_LEASES, "leases", *_READ, "patch")]


def _dashboard_everywhere() -> list[Manifest]:
    return [
        _rule("", ["nodes", "pods"], *_READ),
        _rule("", "namespaces", "get", names=[NAMESPACE]),
        _rule("events.k8s.io", "events", *_READ),
        _rule(ACN, ["nodenetworkconfigs", "clustersubnets"], *_READ),
        _rule(WHEREABOUTS, ["ippools", "nodeslicepools"], *_READ),
    ]


def _component(
    name: str, pools: str, everywhere: Sequence[Manifest], at_home: Sequence[Manifest], at_pools: Sequence[Manifest]
) -> list[Manifest]:
    return [
        _account(name),
        *_granted(name, name, everywhere),
        *_granted(name, name, at_home, namespace=NAMESPACE),
        *_granted(f"{name}-pools", name, at_pools, namespace=pools),
    ]


def _account(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}


def _granted(role: str, account: str, rules: Sequence[Manifest], *, namespace: str | None = None) -> list[Manifest]:
    """Make a role and bind it to an account, in a namespace or, without one, everywhere."""
    kind = "Role" if namespace else "ClusterRole"
    meta = {"name": role} | ({"namespace": namespace} if namespace else {})
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, "rules": list(rules)},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        },
    ]


def _rule(group: str, resources: str | Sequence[str], *verbs: str, names: Sequence[str] = ()) -> Manifest:
    listed = [resources] if isinstance(resources, str) else list(resources)
    rule: Manifest = {"apiGroups": [group], "resources": listed, "verbs": list(verbs)}
    return rule | ({"resourceNames": list(names)} if names else {})

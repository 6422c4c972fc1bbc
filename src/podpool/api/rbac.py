"""RBAC manifests: the ServiceAccount and least-privilege roles of each component.

RBAC does not distinguish nodes: `admission` restricts the writes of an agent to its own node; reads are restricted only
here. The permissions for shared ranges are separate, because there every node writes the same objects.
"""

from collections.abc import Sequence
from typing import Any

from podpool.api.azure import GROUP as ACN
from podpool.api.node_slices import INVENTORY_CONFIG_MAP, NODE_SLICES
from podpool.api.whereabouts import GROUP as WHEREABOUTS

Manifest = dict[str, Any]

NAMESPACE = "kube-system"
AGENT = "podpool-agent"
CONTROLLER = "podpool-controller"
DASHBOARD = "podpool-dashboard"
UNINSTALL = "podpool-uninstall"
SHARED_RANGES = "podpool-agent-shared-ranges"
SHARE_VERB = "share"
"""Custom verb, checked by the admission policies: write IPPools that belong to no node."""
SHARED_LEASE = "whereabouts"
"""The Lease that Whereabouts' plugins acquire before they write an IPPool."""

_RBAC = "rbac.authorization.k8s.io"
_LEASES = "coordination.k8s.io"
_READ = ("get", "list", "watch")


def rbac_manifests(*, pools: str = NAMESPACE) -> list[Manifest]:
    """Return accounts and roles of all components; `pools` is the namespace of Whereabouts' objects."""
    return [
        *_component(
            CONTROLLER, pools, _controller_cluster_rules(), _controller_namespace_rules(), _controller_pool_rules()
        ),
        *_component(AGENT, pools, _agent_cluster_rules(), _agent_namespace_rules(), _agent_pool_rules()),
        _account(DASHBOARD),
        *_role(DASHBOARD, DASHBOARD, _dashboard_cluster_rules()),
    ]


def shared_range_manifests(*, pools: str = NAMESPACE) -> list[Manifest]:
    """Return the additional role of agents for shared ranges."""
    rules = [
        _rule(WHEREABOUTS, "ippools", SHARE_VERB),
        _rule(WHEREABOUTS, "overlappingrangeipreservations", *_READ, "create", "delete"),
        _rule(_LEASES, "leases", SHARE_VERB, names=[SHARED_LEASE]),
    ]
    return _role(SHARED_RANGES, AGENT, rules, namespace=pools)


def uninstall_manifests(*, pools: str = NAMESPACE) -> list[Manifest]:
    """Return account and roles of `podpool controller uninstall`, which are needed only while it runs."""
    crds = [f"{plural}.{ACN}" for plural in ("nodenetworkconfigs", "clustersubnets", "clustersubnetstates")]
    crds += [f"{each}.{WHEREABOUTS}" for each in ("ippools", "overlappingrangeipreservations", "nodeslicepools")]
    crds += [f"{NODE_SLICES.plural}.{NODE_SLICES.group}"]
    cluster = [
        _rule("apiextensions.k8s.io", "customresourcedefinitions", "get", "delete", names=crds),
        _rule(NODE_SLICES.group, NODE_SLICES.plural, "get", "list", "patch", "delete"),
        _rule(WHEREABOUTS, ["ippools", "overlappingrangeipreservations"], "list"),
        _rule("", "nodes", "get", "list", "patch"),
        _rule("", "nodes/status", "patch"),
    ]
    inside = [
        _rule("apps", "daemonsets", "get", names=[UNINSTALL]),
        _rule(ACN, "nodenetworkconfigs", "get", "list", "patch", "delete"),
        _rule(_LEASES, "leases", "delete", names=[CONTROLLER]),
    ]
    pool = [
        _rule(WHEREABOUTS, ["ippools", "nodeslicepools"], "list", "delete"),
        _rule(_LEASES, "leases", "list", "delete"),
        _rule("", "configmaps", "delete", names=[INVENTORY_CONFIG_MAP]),
    ]
    return _component(UNINSTALL, pools, cluster, inside, pool)


def _controller_cluster_rules() -> list[Manifest]:
    return [
        _rule("", "nodes", *_READ),
        _rule("", "nodes/finalizers", "update"),  # to set blockOwnerDeletion, where that is checked
        _rule("", "pods", *_READ),
        _rule("", "namespaces", "get", names=[NAMESPACE]),  # its UID is the cluster ID
        _rule("k8s.cni.cncf.io", "network-attachment-definitions", *_READ),
        _rule(NODE_SLICES.group, NODE_SLICES.plural, *_READ, "create", "patch", "delete"),
        _rule("events.k8s.io", "events", "create", "patch"),
    ]


def _controller_namespace_rules() -> list[Manifest]:
    return [
        _rule(ACN, "nodenetworkconfigs", *_READ, "create", "patch", "delete"),
        _rule(ACN, "nodenetworkconfigs/status", "patch"),
        _rule(ACN, ["clustersubnets", "clustersubnetstates"], *_READ, "create"),
        _rule(ACN, ["clustersubnets/status", "clustersubnetstates/status"], "patch"),
        _rule(_LEASES, "leases", "create"),
        _rule(_LEASES, "leases", "get", "patch", names=[CONTROLLER]),
    ]


def _controller_pool_rules() -> list[Manifest]:
    return [
        _rule(WHEREABOUTS, ["ippools", "nodeslicepools"], *_READ, "create", "patch", "delete"),
        _rule(WHEREABOUTS, "overlappingrangeipreservations", *_READ, "delete"),
        _rule(_LEASES, "leases", "get", "delete"),  # of slices whose node is gone
        _rule("", "configmaps", "create"),
        _rule("", "configmaps", *_READ, "patch", names=[INVENTORY_CONFIG_MAP]),
    ]


def _agent_cluster_rules() -> list[Manifest]:
    return [
        _rule("", "nodes", *_READ, "patch"),  # the taint
        _rule("", "nodes/status", "patch"),  # the condition
        _rule("", "pods", *_READ),
        _rule(NODE_SLICES.group, NODE_SLICES.plural, *_READ),
        _rule(NODE_SLICES.group, f"{NODE_SLICES.plural}/status", "patch"),
        _rule("events.k8s.io", "events", "create", "patch"),
    ]


def _agent_namespace_rules() -> list[Manifest]:
    return [
        _rule(ACN, "nodenetworkconfigs", *_READ, "patch"),
        _rule(ACN, ["clustersubnets", "clustersubnetstates"], *_READ),
    ]


def _agent_pool_rules() -> list[Manifest]:
    return [
        _rule(WHEREABOUTS, "ippools", *_READ, "create", "patch", "delete"),
        _rule(_LEASES, "leases", "get", "create", "patch", "delete"),
        _rule("", "configmaps", *_READ, names=[INVENTORY_CONFIG_MAP]),
    ]


def _dashboard_cluster_rules() -> list[Manifest]:
    return [
        _rule("", ["nodes", "pods"], *_READ),
        _rule("", "namespaces", "get", names=[NAMESPACE]),
        _rule("events.k8s.io", "events", *_READ),
        _rule(ACN, ["nodenetworkconfigs", "clustersubnets"], *_READ),
        _rule(WHEREABOUTS, ["ippools", "nodeslicepools"], *_READ),
        _rule(NODE_SLICES.group, NODE_SLICES.plural, *_READ),
        _rule("k8s.cni.cncf.io", "network-attachment-definitions", *_READ),
    ]


def _component(
    name: str, pools: str, cluster: Sequence[Manifest], namespace: Sequence[Manifest], pool: Sequence[Manifest]
) -> list[Manifest]:
    return [
        _account(name),
        *_role(name, name, cluster),
        *_role(name, name, namespace, namespace=NAMESPACE),
        *_role(f"{name}-pools", name, pool, namespace=pools),
    ]


def _account(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}


def _role(role: str, account: str, rules: Sequence[Manifest], *, namespace: str | None = None) -> list[Manifest]:
    """Return a role and its binding, in a namespace or cluster-wide."""
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

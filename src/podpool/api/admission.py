"""ValidatingAdmissionPolicies that restrict an agent to its own node, whatever its roles allow.

Invariant: a node's token writes only that node's objects, and of those only the fields that an agent owns. The node is
the one in the token's claims, bound to a Pod or a Node; a token without one writes nothing. One more policy restricts
what the controller writes on a Node.

The owner of an IPPool or slice Lease is in an annotation that only the controller writes. Without it the object is
shared, and writing it needs a permission of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from podpool.api.azure import AGENT_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, LEASES, NODES, SHORT_CONDITION, SHORT_TAINT
from podpool.api.meta import Kind
from podpool.api.rbac import AGENT, CONTROLLER, NAMESPACE, SHARE_VERB
from podpool.api.whereabouts import (
    ACKNOWLEDGED_ANNOTATION,
    BOOT_ANNOTATION,
    IP_POOLS,
    NODE_ANNOTATION,
    SLICE_INVENTORY_ANNOTATION,
    SLICE_REPORT_ANNOTATION,
)

Manifest = dict[str, Any]
Rules = Mapping[str, str]
"""Messages by CEL expression; a message follows 'the agent of node N'."""

_GROUP = "admissionregistration.k8s.io"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_SET_BY_SERVER = ("resourceVersion", "generation", "managedFields")


def admission_manifests() -> list[Manifest]:
    """Return the policies and their bindings."""
    pools = [
        _pool_policy(IP_POOLS, unchanged=["range"], annotations=[BOOT_ANNOTATION]),
        _pool_policy(LEASES, annotations=[BOOT_ANNOTATION, ACKNOWLEDGED_ANNOTATION]),
    ]
    made = [_nnc_policy(), *pools, _node_policy(), _event_policy(), _controller_node_policy()]
    return [*made, *(_binding(each["metadata"]["name"]) for each in made)]


def _nnc_policy() -> Manifest:
    annotations = _unchanged("metadata.annotations", but=[AGENT_ANNOTATION])
    return _policy(
        NODE_NETWORK_CONFIGS,
        {
            "request.operation == 'UPDATE'": "may neither create nor delete a NodeNetworkConfig",
            "variables.before.metadata.name == variables.node": "may only write its own NodeNetworkConfig",
            "!has(request.subResource) || request.subResource == ''": "may not write a NodeNetworkConfig's status",
            _on_update(_unchanged("metadata", but=[*_SET_BY_SERVER, "annotations"]), annotations): (
                f"may only write a NodeNetworkConfig's spec and its annotation {AGENT_ANNOTATION}"
            ),
        },
        status=True,
    )


def _pool_policy(kind: Kind[Any], *, unchanged: Sequence[str] = (), annotations: Sequence[str] = ()) -> Manifest:
    owner = f"variables.before.metadata.?annotations[?'{NODE_ANNOTATION}'].orValue('')"
    shared = (
        f"authorizer.group('{kind.group}').resource('{kind.plural}').namespace(request.namespace)"
        f".name(variables.before.metadata.name).check('{SHARE_VERB}').allowed()"
    )
    kept = [f"object.spec.{each} == oldObject.spec.{each}" for each in unchanged]
    meta = [
        _unchanged("metadata", but=[*_SET_BY_SERVER, "annotations"]),
        _unchanged("metadata.annotations", but=annotations),
    ]
    exceptions = f" except {', '.join(annotations)}" if annotations else ""
    return _policy(
        kind,
        {
            "request.operation != 'DELETE'": f"may not delete any {kind.kind}",
            f"variables.owner == '' ? {shared} : variables.owner == variables.node && request.operation == 'UPDATE'": (
                f"may only write its own {kind.kind}s: the annotation {NODE_ANNOTATION} does not name its node"
            ),
            _on_update(*meta, *kept): (
                f"may not change the metadata{' or range' if unchanged else ''} of this {kind.kind}{exceptions}"
            ),
        },
        variables={"owner": owner},
    )


def _node_policy() -> Manifest:
    conditions = _unchanged_list("status.conditions", f"each.type != '{SHORT_CONDITION}'")
    taints = _unchanged_list("spec.taints", f"each.key != '{SHORT_TAINT}'")
    no_schedule = (
        f"object.spec.?taints.orValue([]).all(each, each.key != '{SHORT_TAINT}' || each.effect == 'NoSchedule')"
    )
    parts = [
        _unchanged("metadata", but=[*_SET_BY_SERVER, "annotations"]),
        _unchanged("metadata.annotations", but=[SLICE_REPORT_ANNOTATION]),
        _unchanged("spec", but=["taints"]),
        _unchanged("status", but=["conditions"]),
    ]
    return _policy(
        NODES,
        {
            "request.operation == 'UPDATE'": "may neither create nor delete a Node",
            "variables.before.metadata.name == variables.node": "may only write its own Node",
            _on_update(*parts, conditions, taints, no_schedule): (
                f"may only write its Node's condition {SHORT_CONDITION}, its NoSchedule taint {SHORT_TAINT}"
                f" and its annotation {SLICE_REPORT_ANNOTATION}"
            ),
        },
        status=True,
    )


def _controller_node_policy() -> Manifest:
    """Restrict the controller to the slice inventory annotation of Nodes."""
    parts = [
        _unchanged("metadata", but=[*_SET_BY_SERVER, "annotations"]),
        _unchanged("metadata.annotations", but=[SLICE_INVENTORY_ANNOTATION]),
        _unchanged("spec", but=[]),
    ]
    rules = {_on_update(*parts): f"may only write a Node's annotation {SLICE_INVENTORY_ANNOTATION}"}
    return _policy(NODES, rules, account=CONTROLLER)


def _event_policy() -> Manifest:
    own = f"each.reportingController == '{AGENT}' && each.reportingInstance == variables.node"
    return _policy(
        EVENTS,
        {
            "request.operation != 'DELETE'": "may not delete any Event",
            f"[variables.before, object == null ? variables.before : object].all(each, {own})": (
                "may only write Events with itself as reportingInstance"
            ),
        },
    )


def _unchanged(path: str, *, but: Sequence[str]) -> str:
    """Return CEL: a part of the object is unchanged, except for some of its fields."""
    names = ", ".join(f"'{each}'" for each in but)
    new, old = (f"dyn({root}.?{path.replace('.', '.?')}.orValue({{}}))" for root in ("object", "oldObject"))
    return (
        f"{new}.all(key, key in [{names}] || (key in {old} && {new}[key] == {old}[key]))"
        f" && {old}.all(key, key in [{names}] || key in {new})"
    )


def _unchanged_list(path: str, kept: str) -> str:
    """Return CEL: the entries of a list that match `kept` are unchanged."""
    new, old = (f"{root}.?{path.replace('.', '.?')}.orValue([])" for root in ("object", "oldObject"))
    return f"{new}.filter(each, {kept}) == {old}.filter(each, {kept})"


def _on_update(*rules: str) -> str:
    return "request.operation != 'UPDATE' || (" + " && ".join(rules) + ")"


def _policy(
    kind: Kind[Any],
    rules: Rules,
    *,
    status: bool = False,
    variables: Mapping[str, str] | None = None,
    account: str = AGENT,
) -> Manifest:
    cel_variables = {
        "node": f"request.userInfo.?extra[?'{_NODE_NAME}'][?0].orValue('')",
        "before": "oldObject == null ? object : oldObject",
        **(variables or {}),
    }
    resources = [kind.plural, f"{kind.plural}/status"] if status else [kind.plural]
    who = "'the agent of node ' + variables.node + '" if account == AGENT else "'the controller"
    without_node = {
        "expression": "variables.node != ''",
        "message": "the agent's token names no node: bind it to a Pod or to a Node",
        "reason": "Forbidden",
    }
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{account}-{kind.plural}"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": [kind.version],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                        "resources": resources,
                    }
                ]
            },
            "matchConditions": [
                {
                    "name": "account",
                    "expression": f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{account}'",
                }
            ],
            "variables": [{"name": name, "expression": expression} for name, expression in cel_variables.items()],
            "validations": [
                *([without_node] if account == AGENT else []),
                *(
                    {
                        "expression": rule,
                        "messageExpression": f"{who} {_quoted(message)}'",
                        "message": f"{account} {message}",
                        "reason": "Forbidden",
                    }
                    for rule, message in rules.items()
                ),
            ],
        },
    }


def _quoted(message: str) -> str:
    return message.replace("'", "\\'")


def _binding(name: str) -> Manifest:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }

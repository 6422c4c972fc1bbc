"""ValidatingAdmissionPolicies that restrict an agent to its own node, whatever its roles allow.

Invariant: a node's token writes only that node's objects, and of those only the fields that an agent owns. The node is
the one in the token's claims, bound to a Pod or a Node; a token without one writes nothing.

The owner of an IPPool or slice Lease is in an annotation; its name is that of a slice of this node. Without the
annotation the object is shared, and writing it needs a permission of its own, unless its name is that of a slice of the
node: then it is of a Whereabouts plugin, and the agent takes it over.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from podpool.api.azure import AGENT_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, LEASES, NODES, SHORT_CONDITION, SHORT_TAINT
from podpool.api.meta import Kind
from podpool.api.node_slices import NODE_SLICES
from podpool.api.rbac import AGENT, NAMESPACE, SHARE_VERB
from podpool.api.whereabouts import (
    IP_POOLS,
    NETWORK_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RANGE_ANNOTATION,
    SEALED_ANNOTATION,
    SLICE_ANNOTATION,
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
        _pool_policy(IP_POOLS, slice_="variables.after.spec.range", unchanged=["range"]),
        _pool_policy(LEASES, slice_=_annotation("variables.after", SLICE_ANNOTATION)),
    ]
    made = [_nnc_policy(), _slices_policy(), *pools, _node_policy(), _event_policy()]
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


def _slices_policy() -> Manifest:
    return _policy(
        NODE_SLICES,
        {
            "request.operation == 'UPDATE'": "may neither create nor delete NodeSlices",
            "variables.before.metadata.name == variables.node": "may only write its own NodeSlices",
            "has(request.subResource) && request.subResource == 'status'": "may only write the status of NodeSlices",
        },
        status=True,
    )


def _pool_policy(kind: Kind[Any], *, slice_: str, unchanged: Sequence[str] = ()) -> Manifest:
    """Return the policy of objects that are of a slice or shared. `slice_` is CEL: the slice that an object shows."""
    network = _annotation("variables.after", NETWORK_ANNOTATION)
    own_name = (
        f"({network} == '' ? '' : {network} + '-') + variables.node + '-' +"
        f" {slice_}.replace('/', '-').replace(':', '-') == variables.after.metadata.name"
    )
    own = (
        "variables.owner in ['', variables.node] && variables.new_owner == variables.node"
        f" && {_annotation('variables.before', SEALED_ANNOTATION)} == '' && ({own_name})"
    )
    shared = (
        f"request.operation != 'DELETE' && authorizer.group('{kind.group}').resource('{kind.plural}')"
        f".namespace(request.namespace).name(variables.before.metadata.name).check('{SHARE_VERB}').allowed()"
    )
    kept = [f"object.spec.{each} == oldObject.spec.{each}" for each in unchanged]
    written = [NODE_ANNOTATION, NETWORK_ANNOTATION, RANGE_ANNOTATION, SLICE_ANNOTATION]
    shared_meta = _unchanged("metadata", but=_SET_BY_SERVER)
    own_meta = [
        _unchanged("metadata", but=[*_SET_BY_SERVER, "annotations", "labels"]),
        _unchanged("metadata.labels", but=[NODE_UID_LABEL]),
        _unchanged("metadata.annotations", but=written),
    ]
    meta = f"(variables.new_owner == '' ? {shared_meta} : {' && '.join(own_meta)})"
    return _policy(
        kind,
        {
            f"variables.owner == '' && variables.new_owner == '' ? {shared} : {own}": (
                f"may only write its own {kind.kind}s: the name or the annotation {NODE_ANNOTATION} is not its node's"
            ),
            _on_update(meta, *kept): (
                f"may not change the metadata{' or range' if unchanged else ''} of this {kind.kind}"
                f" except {', '.join([NODE_UID_LABEL, *written])}"
            ),
        },
        variables={
            "after": "object == null ? oldObject : object",
            "owner": _annotation("variables.before", NODE_ANNOTATION),
            "new_owner": _annotation("variables.after", NODE_ANNOTATION),
        },
    )


def _node_policy() -> Manifest:
    conditions = _unchanged_list("status.conditions", f"each.type != '{SHORT_CONDITION}'")
    taints = _unchanged_list("spec.taints", f"each.key != '{SHORT_TAINT}'")
    no_schedule = (
        f"object.spec.?taints.orValue([]).all(each, each.key != '{SHORT_TAINT}' || each.effect == 'NoSchedule')"
    )
    parts = [
        _unchanged("metadata", but=_SET_BY_SERVER),
        _unchanged("spec", but=["taints"]),
        _unchanged("status", but=["conditions"]),
    ]
    return _policy(
        NODES,
        {
            "request.operation == 'UPDATE'": "may neither create nor delete a Node",
            "variables.before.metadata.name == variables.node": "may only write its own Node",
            _on_update(*parts, conditions, taints, no_schedule): (
                f"may only write its Node's condition {SHORT_CONDITION} and its NoSchedule taint {SHORT_TAINT}"
            ),
        },
        status=True,
    )


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


def _annotation(root: str, name: str) -> str:
    """Return CEL: an annotation of an object, or an empty string."""
    return f"{root}.metadata.?annotations[?'{name}'].orValue('')"


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
) -> Manifest:
    cel_variables = {
        "node": f"request.userInfo.?extra[?'{_NODE_NAME}'][?0].orValue('')",
        "before": "oldObject == null ? object : oldObject",
        **(variables or {}),
    }
    resources = [kind.plural, f"{kind.plural}/status"] if status else [kind.plural]
    who = "'the agent of node ' + variables.node + '"
    without_node = {
        "expression": "variables.node != ''",
        "message": "the agent's token names no node: bind it to a Pod or to a Node",
        "reason": "Forbidden",
    }
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{AGENT}-{kind.plural}"},
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
                    "expression": f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{AGENT}'",
                }
            ],
            "variables": [{"name": name, "expression": expression} for name, expression in cel_variables.items()],
            "validations": [
                without_node,
                *(
                    {
                        "expression": rule,
                        "messageExpression": f"{who} {_quoted(message)}'",
                        "message": f"{AGENT} {message}",
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

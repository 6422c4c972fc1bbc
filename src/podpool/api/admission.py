"""Policies of the API server that hold an agent to its own node, whatever its roles say.

What must hold: with a node's token only that node's objects are written, and of those only what an agent has to write.
The node is the one that the API server put into the token when it bound it to a Pod or a Node; a token that names none
writes nothing. One more holds the controller to what it may write on a Node.

Whose an IPPool or a Lease is tells an annotation, which only the controller can write. One without it belongs to all:
to write it takes a right of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from podpool.api.azure import AGENT_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, LEASES, NODES, SHORT_CONDITION, SHORT_TAINT
from podpool.api.meta import Kind
from podpool.api.rbac import AGENT, CONTROLLER, NAMESPACE, SHARE_VERB
from podpool.api.whereabouts import (
    BOOT_ANNOTATION,
    IP_POOLS,
    NODE_ANNOTATION,
    SIGNATURE_ANNOTATION,
    SLICE_INVENTORY_ANNOTATION,
    SLICE_REPORT_ANNOTATION,
)

Manifest = dict[str, Any]
Rules = Mapping[str, str]
"""Sentences by what must hold; a sentence goes on after 'the agent of node N'."""

_GROUP = "admissionregistration.k8s.io"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_SET_BY_SERVER = ("resourceVersion", "generation", "managedFields")


def admission_manifests() -> list[Manifest]:
    """Make the policies, each with the binding that puts it in force."""
    pools = [
        _pools(IP_POOLS, unchanged=["range"], notes=[BOOT_ANNOTATION]),
        _pools(LEASES, notes=[BOOT_ANNOTATION, SIGNATURE_ANNOTATION]),
    ]
    made = [_configs(), *pools, _nodes(), _events(), _questions()]
    return [*made, *(_binding(each["metadata"]["name"]) for each in made)]


def _configs() -> Manifest:
    annotations = _same("metadata.annotations", but=[AGENT_ANNOTATION])
    return _policy(
        NODE_NETWORK_CONFIGS,
        {
            "request.operation == 'UPDATE'": "may neither make nor delete a NodeNetworkConfig",
            "variables.before.metadata.name == variables.node": "may only write its own NodeNetworkConfig",
            "!has(request.subResource) || request.subResource == ''": "may not write a NodeNetworkConfig's status",
            _on_update(_same("metadata", but=[*_SET_BY_SERVER, "annotations"]), annotations): (
                f"may only write a NodeNetworkConfig's spec and its annotation {AGENT_ANNOTATION}"
            ),
        },
        status=True,
    )


def _pools(kind: Kind[Any], *, unchanged: Sequence[str] = (), notes: Sequence[str] = ()) -> Manifest:
    owner = f"variables.before.metadata.?annotations[?'{NODE_ANNOTATION}'].orValue('')"
    shared = (
        f"authorizer.group('{kind.group}').resource('{kind.plural}').namespace(request.namespace)"
        f".name(variables.before.metadata.name).check('{SHARE_VERB}').allowed()"
    )
    kept = [f"object.spec.{each} == oldObject.spec.{each}" for each in unchanged]
    meta = [_same("metadata", but=[*_SET_BY_SERVER, "annotations"]), _same("metadata.annotations", but=notes)]
    besides = f", but for {', '.join(notes)}" if notes else ""
    return _policy(
        kind,
        {
            "request.operation != 'DELETE'": f"may not delete any {kind.kind}",
            f"variables.owner == '' ? {shared} : variables.owner == variables.node && request.operation == 'UPDATE'": (
                f"may only write what is its own: the annotation {NODE_ANNOTATION} of this {kind.kind} does not name it"
            ),
            _on_update(*meta, *kept): (
                f"may not change the metadata{' or range' if unchanged else ''} of this {kind.kind}{besides}"
            ),
        },
        variables={"owner": owner},
    )


def _nodes() -> Manifest:
    conditions = _same_list("status.conditions", f"each.type != '{SHORT_CONDITION}'")
    taints = _same_list("spec.taints", f"each.key != '{SHORT_TAINT}'")
    mild = f"object.spec.?taints.orValue([]).all(each, each.key != '{SHORT_TAINT}' || each.effect == 'NoSchedule')"
    parts = [
        _same("metadata", but=[*_SET_BY_SERVER, "annotations"]),
        _same("metadata.annotations", but=[SLICE_REPORT_ANNOTATION]),
        _same("spec", but=["taints"]),
        _same("status", but=["conditions"]),
    ]
    return _policy(
        NODES,
        {
            "request.operation == 'UPDATE'": "may neither make nor delete a Node",
            "variables.before.metadata.name == variables.node": "may only write its own Node",
            _on_update(*parts, conditions, taints, mild): (
                f"may only write its Node's condition {SHORT_CONDITION}, its NoSchedule taint {SHORT_TAINT}"
                f" and its annotation {SLICE_REPORT_ANNOTATION}"
            ),
        },
        status=True,
    )


def _questions() -> Manifest:
    """Hold the controller to its questions, which are all that it has to write on a Node."""
    parts = [
        _same("metadata", but=[*_SET_BY_SERVER, "annotations"]),
        _same("metadata.annotations", but=[SLICE_INVENTORY_ANNOTATION]),
        _same("spec", but=[]),
    ]
    rules = {_on_update(*parts): f"may only write a Node's annotation {SLICE_INVENTORY_ANNOTATION}"}
    return _policy(NODES, rules, account=CONTROLLER)


def _events() -> Manifest:
    own = f"each.reportingController == '{AGENT}' && each.reportingInstance == variables.node"
    return _policy(
        EVENTS,
        {
            "request.operation != 'DELETE'": "may not delete any Event",
            f"[variables.before, object == null ? variables.before : object].all(each, {own})": (
                "may only write Events that say they are from it"
            ),
        },
    )


def _same(path: str, *, but: Sequence[str]) -> str:
    """Say that a part of the object is as it was, except for some of its fields."""
    names = ", ".join(f"'{each}'" for each in but)
    new, old = (f"dyn({root}.?{path.replace('.', '.?')}.orValue({{}}))" for root in ("object", "oldObject"))
    return (
        f"{new}.all(key, key in [{names}] || (key in {old} && {new}[key] == {old}[key]))"
        f" && {old}.all(key, key in [{names}] || key in {new})"
    )


def _same_list(path: str, kept: str) -> str:
    """Say that a list is as it was, as far as its entries are others' business."""
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
    named = {
        "node": f"request.userInfo.?extra[?'{_NODE_NAME}'][?0].orValue('')",
        "before": "oldObject == null ? object : oldObject",
        **(variables or {}),
    }
    resources = [kind.plural, f"{kind.plural}/status"] if status else [kind.plural]
    who = "'the agent of node ' + variables.node + '" if account == AGENT else "'the controller"
    nameless = {
        "expression": "variables.node != ''",
        "message": "the agent's token names no node: it must be bound to a Pod on one, or to a Node",
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
            "variables": [{"name": name, "expression": expression} for name, expression in named.items()],
            "validations": [
                *([nameless] if account == AGENT else []),
                *(
                    {
                        "expression": rule,
                        "messageExpression": f"{who} {_quoted(sentence)}'",
                        "message": f"{account} {sentence}",
                        "reason": "Forbidden",
                    }
                    for rule, sentence in rules.items()
                ),
            ],
        },
    }


def _quoted(sentence: str) -> str:
    return sentence.replace("'", "\\'")


def _binding(name: str) -> Manifest:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }

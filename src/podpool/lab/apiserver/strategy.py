"""Create and update strategy: pure functions from the old and the wanted object to the stored one.

Objects are plain dicts and never changed in place, so unknown fields survive and a copy of the store is cheap.
"""

import re
from typing import Any

import msgspec

from podpool.api.meta import OwnerReference
from podpool.lab.apiserver.crd_validation import crd_errors
from podpool.lab.apiserver.registry import CRDS, NAMESPACES, PODS, ApiResource, Object
from podpool.lab.apiserver.schema_validation import HEAD, prune_and_default, schema_errors
from podpool.lab.apiserver.status_errors import StatusError, bad_request, conflict, invalid

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
DEFAULT_GRACE = 30
"""Seconds that a bound Pod has to terminate, unless it or the request gives another period."""
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
FINISHED = ("Succeeded", "Failed")

_IMMUTABLE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_SET_BY_SERVER = (*_IMMUTABLE, "creationTimestamp", "generation")


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata fields whose types are checked."""

    name: str = ""
    generate_name: str = ""
    namespace: str | None = ""
    uid: str | None = ""
    resource_version: str | None = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class _CustomObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of every object; a schema checks the other fields of a custom one."""

    kind: str = ""
    api_version: str = ""
    metadata: _Metadata = _Metadata()


class _BuiltinObject(_CustomObject, frozen=True, kw_only=True, rename="camel"):
    """An object of a built-in kind."""

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


def name_of(obj: Object) -> str:
    """Return the name of an object."""
    return str(obj["metadata"].get("name", ""))


def with_meta(obj: Object, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    """Return an object with changed metadata; None removes a field."""
    meta = {each: value for each, value in {**obj["metadata"], **changes}.items() if value is not None}
    return {**obj, "metadata": meta}


def prepare_create(resource: ApiResource, wanted: Object, *, namespace: str, uid: str, now: str) -> dict[str, Any]:
    """Return the object that a create request stores."""
    obj = _with_head(resource, wanted, namespace)
    meta = obj["metadata"]
    if meta.get("resourceVersion"):
        # 500, as in kube-apiserver
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    if meta.get("generateName") and not meta.get("name"):
        meta = {**meta, "name": meta["generateName"] + uid[:5]}
    if not NAME.fullmatch(meta.get("name", "")):
        reason = f"metadata.name: Invalid value: {meta.get('name', '')!r}: must be a lowercase RFC 1123 subdomain"
        raise invalid(resource.qualified_kind, meta.get("name", ""), reason)
    obj["metadata"] = {each: value for each, value in meta.items() if each not in _SET_BY_SERVER}
    if resource.status and not resource.status_on_create:
        obj.pop("status", None)
    obj = _validate(resource, obj)
    obj |= _initial_fields(resource, obj)
    if resource.id == NAMESPACES.id:  # a label by which selectors find a namespace
        obj = with_meta(obj, labels={**(obj["metadata"].get("labels") or {}), NAMESPACE_LABEL: name_of(obj)})
    obj = with_meta(obj, namespace=namespace or None, uid=uid, creationTimestamp=now)
    return with_meta(obj, generation=1 if resource.custom else None)


def prepare_update(resource: ApiResource, old: Object, wanted: Object, *, subresource: str | None) -> dict[str, Any]:
    """Return the object that an update of the object or of its status stores."""
    new = _with_head(resource, wanted, old["metadata"].get("namespace", ""))
    meta, name = new["metadata"], name_of(old)
    if meta.get("name") != name:
        raise bad_request(f"the name of the object ({meta.get('name')}) does not match the name on the URL ({name})")
    _check_version(resource, old, meta.get("resourceVersion", ""))
    for each in _IMMUTABLE:
        if meta.get(each) not in {None, old["metadata"].get(each)}:
            reason = f"metadata.{each}: Invalid value: {meta[each]!r}: field is immutable"
            raise invalid(resource.qualified_kind, name, reason)
    new = with_meta(new, **{each: old["metadata"].get(each) for each in (*_SET_BY_SERVER, "resourceVersion")})
    new = _status_only(resource, old, new) if subresource == "status" else _all_but_status(resource, old, new)
    _check_finalizers(resource, old, new)
    return _validate(resource, new, old)


def mark_terminating(old: Object, *, now: str, grace: int) -> dict[str, Any]:
    """Return a deleted object that must wait for its finalizers or its kubelet."""
    if "deletionTimestamp" in old["metadata"]:
        return with_meta(old, deletionGracePeriodSeconds=min(grace, old["metadata"]["deletionGracePeriodSeconds"]))
    generation = old["metadata"].get("generation")
    return with_meta(
        old, deletionTimestamp=now, deletionGracePeriodSeconds=grace, generation=generation + 1 if generation else None
    )


def grace_seconds(resource: ApiResource, obj: Object, requested: int | None) -> int:
    """Return the grace period of a deleted object: only a Pod that runs on a node has one."""
    bound = resource.id == PODS.id and obj.get("spec", {}).get("nodeName")
    if not bound or obj.get("status", {}).get("phase") in FINISHED:
        return 0
    period = obj["spec"].get("terminationGracePeriodSeconds") if requested is None else requested
    return period if isinstance(period, int) else DEFAULT_GRACE


def is_deletable(obj: Object) -> bool:
    """Return whether a terminating object has nothing left to wait for."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")


def _with_head(resource: ApiResource, wanted: Object, namespace: str) -> dict[str, Any]:
    """Check that an object fits the request's path, and fill in apiVersion, kind and namespace."""
    wanted = _check_types(resource, wanted)
    kind, version = wanted.get("kind", ""), wanted.get("apiVersion", "")
    if resource.custom and not (kind and version):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    if version not in {"", resource.api_version}:
        raise bad_request(f"the API version in the data ({version}) does not match the expected {resource.api_version}")
    if kind not in {"", resource.kind}:
        raise invalid(resource.qualified_kind, "", f"kind: Invalid value: {kind!r}: must be {resource.kind}")
    meta = {each: value for each, value in wanted.get("metadata", {}).items() if value is not None}
    if meta.get("namespace") not in {None, "", namespace}:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    meta = {**meta, "namespace": namespace} if namespace else meta
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    return {**head, **{each: value for each, value in wanted.items() if each not in head}}


def _check_types(resource: ApiResource, wanted: Object) -> Object:
    """Check the types of an object's fields; a null field of a built-in kind is dropped."""
    parts = {
        each: value for each, value in wanted.items() if value is not None or (resource.custom and each not in HEAD)
    }
    try:
        msgspec.convert(parts, _CustomObject if resource.custom else _BuiltinObject)
    except msgspec.ValidationError as error:
        raise bad_request(f"{resource.kind} cannot be handled: {error}") from None
    return parts


def _check_version(resource: ApiResource, old: Object, requested: str) -> None:
    if requested in {"", "0"}:
        if resource.custom:
            reason = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise invalid(resource.group_resource, name_of(old), reason)
    elif requested != old["metadata"]["resourceVersion"]:
        reason = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(resource.group_resource, name_of(old), reason)


def _initial_fields(resource: ApiResource, obj: Object) -> dict[str, Any]:
    """Return the fields that the server sets on create."""
    if resource.id == PODS.id:
        return {"status": {"phase": "Pending"}}
    if resource.id == NAMESPACES.id:
        return {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    if resource.id == CRDS.id:
        conditions = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]
        return {"status": {"conditions": conditions, "acceptedNames": obj["spec"]["names"]}}
    return {}


def _status_only(resource: ApiResource, old: Object, new: Object) -> dict[str, Any]:
    # a status update changes metadata of built-in kinds, but not of custom ones
    stored = {**old} if resource.custom else {**old, "metadata": new["metadata"]}
    stored.pop("status", None)
    return stored | ({"status": new["status"]} if "status" in new else {})


def _all_but_status(resource: ApiResource, old: Object, new: dict[str, Any]) -> dict[str, Any]:
    if resource.status:
        new.pop("status", None)
        new |= {"status": old["status"]} if "status" in old else {}
    generation = old["metadata"].get("generation")
    if generation and _content(resource, old) != _content(resource, new):
        return with_meta(new, generation=generation + 1)
    return new


def _content(resource: ApiResource, obj: Object) -> dict[str, Any]:
    outside = {"metadata", "status"} if resource.status else {"metadata"}
    return {each: value for each, value in obj.items() if each not in outside}


def _check_finalizers(resource: ApiResource, old: Object, new: Object) -> None:
    before = old["metadata"].get("finalizers") or ()
    added = [each for each in new["metadata"].get("finalizers") or () if each not in before]
    if added and "deletionTimestamp" in old["metadata"]:
        reason = "no new finalizers can be added if the object is being deleted"
        raise invalid(resource.qualified_kind, name_of(old), f"metadata.finalizers: Forbidden: {reason}, found {added}")


def _validate(resource: ApiResource, obj: dict[str, Any], old: Object | None = None) -> dict[str, Any]:
    if resource.id == CRDS.id and (errors := list(crd_errors(obj, old))):
        raise invalid(resource.qualified_kind, name_of(obj), *errors)
    if resource.schema is None:
        return obj
    body = {each: value for each, value in obj.items() if each not in HEAD}
    pruned = prune_and_default(resource.schema, body)
    errors = list(schema_errors(resource.schema, {"apiVersion": "", "kind": "", "metadata": {}, **pruned}))
    if errors:
        raise invalid(resource.qualified_kind, name_of(obj), *errors)
    return {**{each: obj[each] for each in HEAD}, **pruned}

"""What becomes of an object when it is written: pure, from the old object and the wanted one to the one that is kept.

Objects are plain dicts and never changed in place, so that unknown fields survive and a copy of the store is cheap.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from podpool.api.meta import OwnerReference
from podpool.lab.apiserver.crd_validation import definition_faults
from podpool.lab.apiserver.registry import DEFINITIONS, NAMESPACES, PODS, Served
from podpool.lab.apiserver.schema_validation import HEAD, faults, shaped
from podpool.lab.apiserver.status_errors import Refused, bad_request, conflict, invalid

Object = Mapping[str, Any]

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
GRACE = 30
"""Seconds that a bound Pod is given to end, unless told."""
NAMED = "kubernetes.io/metadata.name"
FINISHED = ("Succeeded", "Failed")

_IMMUTABLE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_SET_BY_SERVER = (*_IMMUTABLE, "creationTimestamp", "generation")


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata whose types matter here, and nothing more of it."""

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


class _Custom(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What every object is; the rest of a custom one is its schema's business."""

    kind: str = ""
    api_version: str = ""
    metadata: _Metadata = _Metadata()


class _Own(_Custom, frozen=True, kw_only=True, rename="camel"):
    """An object of one of Kubernetes' own kinds."""

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


def name_of(obj: Object) -> str:
    """The name of an object."""
    return str(obj["metadata"].get("name", ""))


def with_meta(obj: Object, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    """Change metadata; None removes."""
    meta = {each: value for each, value in {**obj["metadata"], **changes}.items() if value is not None}
    return {**obj, "metadata": meta}


def created(served: Served, wanted: Object, *, namespace: str, uid: str, now: str) -> dict[str, Any]:
    """Make the object that a create keeps."""
    obj = _headed(served, wanted, namespace)
    meta = obj["metadata"]
    if meta.get("resourceVersion"):
        raise Refused(
            500, "", "resourceVersion should not be set on objects to be created"
        )  # 500, as the real one says
    if meta.get("generateName") and not meta.get("name"):
        meta = {**meta, "name": meta["generateName"] + uid[:5]}
    if not NAME.fullmatch(meta.get("name", "")):
        why = f"metadata.name: Invalid value: {meta.get('name', '')!r}: must be a lowercase RFC 1123 subdomain"
        raise invalid(served.qualified, meta.get("name", ""), why)
    obj["metadata"] = {each: value for each, value in meta.items() if each not in _SET_BY_SERVER}
    if served.status and not served.born_with_status:
        obj.pop("status", None)
    obj = _checked(served, obj)
    obj |= _born(served, obj)
    if served.id == NAMESPACES.id:  # so that a selector can name a namespace
        obj = with_meta(obj, labels={**(obj["metadata"].get("labels") or {}), NAMED: name_of(obj)})
    obj = with_meta(obj, namespace=namespace or None, uid=uid, creationTimestamp=now)
    return with_meta(obj, generation=1 if served.custom else None)


def updated(served: Served, old: Object, wanted: Object, *, sub: str | None) -> dict[str, Any]:
    """Make the object that an update keeps, of the whole object or of its status."""
    new = _headed(served, wanted, old["metadata"].get("namespace", ""))
    meta, name = new["metadata"], name_of(old)
    if meta.get("name") != name:
        raise bad_request(f"the name of the object ({meta.get('name')}) does not match the name on the URL ({name})")
    _refuse_other_version(served, old, meta.get("resourceVersion", ""))
    for each in _IMMUTABLE:
        if meta.get(each) not in {None, old["metadata"].get(each)}:
            why = f"metadata.{each}: Invalid value: {meta[each]!r}: field is immutable"
            raise invalid(served.qualified, name, why)
    new = with_meta(new, **{each: old["metadata"].get(each) for each in (*_SET_BY_SERVER, "resourceVersion")})
    new = _status_only(served, old, new) if sub == "status" else _all_but_status(served, old, new)
    _refuse_new_finalizers(served, old, new)
    return _checked(served, new, old)


def deleting(old: Object, *, now: str, grace: int) -> dict[str, Any]:
    """Mark an object that must wait for its finalizers, or for its kubelet."""
    if "deletionTimestamp" in old["metadata"]:
        return with_meta(old, deletionGracePeriodSeconds=min(grace, old["metadata"]["deletionGracePeriodSeconds"]))
    generation = old["metadata"].get("generation")
    return with_meta(
        old,
        deletionTimestamp=now,
        deletionGracePeriodSeconds=grace,
        generation=generation + 1 if generation else None,
    )


def grace_of(served: Served, obj: Object, asked: int | None) -> int:
    """Tell for how long a deleted object stays: only a Pod that runs somewhere does."""
    bound = served.id == PODS.id and obj.get("spec", {}).get("nodeName")
    if not bound or obj.get("status", {}).get("phase") in FINISHED:
        return 0
    own = obj["spec"].get("terminationGracePeriodSeconds") if asked is None else asked
    return own if isinstance(own, int) else GRACE


def ends(obj: Object) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")


def _headed(served: Served, wanted: Object, namespace: str) -> dict[str, Any]:
    """See that an object is what its place in the path says, and fill in what the path says better."""
    wanted = _typed(served, wanted)
    kind, version = wanted.get("kind", ""), wanted.get("apiVersion", "")
    if served.custom and not (kind and version):
        raise bad_request(f"the object provided is unrecognized (must be of type {served.kind})")
    if version not in {"", served.api_version}:
        raise bad_request(f"the API version in the data ({version}) does not match the expected {served.api_version}")
    if kind not in {"", served.kind}:
        raise invalid(served.qualified, "", f"kind: Invalid value: {kind!r}: must be {served.kind}")
    meta = {each: value for each, value in wanted.get("metadata", {}).items() if value is not None}
    if meta.get("namespace") not in {None, "", namespace}:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    meta = {**meta, "namespace": namespace} if namespace else meta
    head = {"apiVersion": served.api_version, "kind": served.kind, "metadata": meta}
    return {**head, **{each: value for each, value in wanted.items() if each not in head}}


def _typed(served: Served, wanted: Object) -> Object:
    """See that an object's parts are of their types; of Kubernetes' own kinds a part that is null is none."""
    parts = {each: value for each, value in wanted.items() if value is not None or (served.custom and each not in HEAD)}
    try:
        msgspec.convert(parts, _Custom if served.custom else _Own)
    except msgspec.ValidationError as error:
        raise bad_request(f"{served.kind} cannot be handled: {error}") from None
    return parts


def _refuse_other_version(served: Served, old: Object, asked: str) -> None:
    if asked in {"", "0"}:
        if served.custom:
            why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise invalid(served.resource, name_of(old), why)
    elif asked != old["metadata"]["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(served.resource, name_of(old), why)


def _born(served: Served, obj: Object) -> dict[str, Any]:
    """Give an object the status that it has from the start."""
    if served.id == PODS.id:
        return {"status": {"phase": "Pending"}}
    if served.id == NAMESPACES.id:
        return {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    if served.id == DEFINITIONS.id:
        conditions = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]
        return {"status": {"conditions": conditions, "acceptedNames": obj["spec"]["names"]}}
    return {}


def _status_only(served: Served, old: Object, new: Object) -> dict[str, Any]:
    # of Kubernetes' own kinds the status takes metadata along, of custom ones it does not
    kept = {**old} if served.custom else {**old, "metadata": new["metadata"]}
    kept.pop("status", None)
    return kept | ({"status": new["status"]} if "status" in new else {})


def _all_but_status(served: Served, old: Object, new: dict[str, Any]) -> dict[str, Any]:
    if served.status:
        new.pop("status", None)
        new |= {"status": old["status"]} if "status" in old else {}
    generation = old["metadata"].get("generation")
    if generation and _content(served, old) != _content(served, new):
        return with_meta(new, generation=generation + 1)
    return new


def _content(served: Served, obj: Object) -> dict[str, Any]:
    outside = {"metadata", "status"} if served.status else {"metadata"}
    return {each: value for each, value in obj.items() if each not in outside}


def _refuse_new_finalizers(served: Served, old: Object, new: Object) -> None:
    before = old["metadata"].get("finalizers") or ()
    added = [each for each in new["metadata"].get("finalizers") or () if each not in before]
    if added and "deletionTimestamp" in old["metadata"]:
        why = "no new finalizers can be added if the object is being deleted"
        raise invalid(served.qualified, name_of(old), f"metadata.finalizers: Forbidden: {why}, found {added}")


def _checked(served: Served, obj: dict[str, Any], old: Object | None = None) -> dict[str, Any]:
    if served.id == DEFINITIONS.id and (wrong := list(definition_faults(obj, old))):
        raise invalid(served.qualified, name_of(obj), *wrong)
    if served.schema is None:
        return obj
    body = {each: value for each, value in obj.items() if each not in HEAD}
    shape = shaped(served.schema, body)
    found = list(faults(served.schema, {"apiVersion": "", "kind": "", "metadata": {}, **shape}))
    if found:
        raise invalid(served.qualified, name_of(obj), *found)
    return {**{each: obj[each] for each in HEAD}, **shape}

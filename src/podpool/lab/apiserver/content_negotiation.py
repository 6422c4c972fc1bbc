"""How objects are sent: in the requested version, in full, as a table, or only their metadata.

Events are stored once and served in two formats, core/v1 and events.k8s.io. A resource with several versions is stored
as it was last written and served in the requested version; its fields are the same in all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from podpool.lab.apiserver.registry import CORE_EVENTS, EVENTS, ApiResource, Object
from podpool.lab.apiserver.status_errors import not_acceptable
from podpool.lab.apiserver.tables import PrinterTable

META = "meta.k8s.io"
PARTIAL = "PartialObjectMetadata"
_CORE_TO_EVENTS_V1 = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_EVENTS_V1_TO_CORE = {new: old for old, new in _CORE_TO_EVENTS_V1.items()}


def stored_resource(resource: ApiResource) -> ApiResource:
    """Return the resource under which the objects of another are stored."""
    return EVENTS if resource.id == EVENTS.id else resource


def to_version(resource: ApiResource, obj: Object) -> Object:
    """Convert a stored object to the requested version."""
    if resource.id == EVENTS.id:
        return _rename_fields(obj, _EVENTS_V1_TO_CORE, resource) if resource is CORE_EVENTS else obj
    return obj if obj.get("apiVersion") == resource.api_version else {**obj, "apiVersion": resource.api_version}


def to_stored(resource: ApiResource, obj: Object) -> Object:
    """Convert an object of a request to the stored version."""
    if resource is not CORE_EVENTS or obj.get("apiVersion", "v1") != "v1":
        return obj
    return _rename_fields(obj, _CORE_TO_EVENTS_V1, EVENTS)


def _rename_fields(obj: Object, names: Mapping[str, str], resource: ApiResource) -> Object:
    return {**{names.get(each, each): value for each, value in obj.items()}, "apiVersion": resource.api_version}


class Representation(msgspec.Struct, frozen=True, kw_only=True):
    """How objects of a resource are encoded for one client."""

    name: str
    """Representations of one name encode an object identically; one without a name is not cached."""
    one: Callable[[Object], Object]
    many: Callable[[Sequence[Object], Mapping[str, Any]], Object]


def full(resource: ApiResource) -> Representation:
    """Send whole objects."""

    def many(objects: Sequence[Object], meta: Mapping[str, Any]) -> Object:
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
        return {**head, "items": [to_version(resource, each) for each in objects]}

    return Representation(name=resource.api_version, one=lambda obj: to_version(resource, obj), many=many)


def metadata_only(resource: ApiResource) -> Representation:
    """Send only the metadata of objects."""

    def one(obj: Object) -> Object:
        return {"kind": PARTIAL, "apiVersion": f"{META}/v1", "metadata": obj["metadata"]}

    def many(objects: Sequence[Object], meta: Mapping[str, Any]) -> Object:
        items = [one(each) for each in objects]
        return {"kind": f"{PARTIAL}List", "apiVersion": f"{META}/v1", "metadata": meta, "items": items}

    return Representation(name=f"{resource.api_version} metadata", one=one, many=many)


def table(resource: ApiResource, *, now: Callable[[], float], include: str) -> Representation:
    """Send objects as table rows; ages are those of the moment in which a row is encoded."""
    printer = PrinterTable(resource, now=now)
    # event rows are printed from the core/v1 fields, whichever format is requested
    source = CORE_EVENTS if resource.id == EVENTS.id else resource

    def row_object(obj: Object) -> Object | None:
        if include == "None":
            return None
        return to_version(resource, obj) if include == "Object" else metadata_only(resource).one(obj)

    def many(objects: Sequence[Object], meta: Mapping[str, Any]) -> Object:
        rows = [{"cells": printer.cells(to_version(source, each)), "object": row_object(each)} for each in objects]
        head = {"kind": "Table", "apiVersion": f"{META}/v1", "metadata": meta}
        return {**head, "columnDefinitions": printer.columns, "rows": rows}

    def one(obj: Object) -> Object:
        return many([obj], {"resourceVersion": obj["metadata"]["resourceVersion"]})

    return Representation(name="", one=one, many=many)


def negotiate(resource: ApiResource, accept: str, *, now: Callable[[], float], include: str) -> Representation:
    """Return the first supported representation of an Accept header."""
    if not accept:
        return full(resource)
    for choice in accept.split(","):
        media, *parameters = (each.strip() for each in choice.split(";"))
        if media not in {"application/json", "application/*", "*/*"}:
            continue
        options = dict(each.partition("=")[::2] for each in parameters)
        kind = options.get("as", "")
        if not kind:
            return full(resource)
        if (options.get("g"), options.get("v")) == (META, "v1") and kind == "Table":
            return table(resource, now=now, include=include)
        if (options.get("g"), options.get("v")) == (META, "v1") and kind in {PARTIAL, f"{PARTIAL}List"}:
            return metadata_only(resource)
    raise not_acceptable(accept)

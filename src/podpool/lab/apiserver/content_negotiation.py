"""In which form an object is told: in the version and the words that were asked for, whole, as a table, or its head.

Events are kept once and told in two forms, those of core/v1 and of events.k8s.io. A kind with several versions is kept
as it was written last and told in the version that is asked for; its fields are the same in all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from podpool.lab.apiserver.registry import CORE_EVENTS, EVENTS, Served
from podpool.lab.apiserver.status_errors import not_acceptable
from podpool.lab.apiserver.tables import Table
from podpool.lab.apiserver.watch_cache import Object

META = "meta.k8s.io"
HEAD = "PartialObjectMetadata"
_WORDS = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OLDER_WORDS = {new: old for old, new in _WORDS.items()}


def kept_as(served: Served) -> Served:
    """Tell under which kind the objects of another are kept."""
    return EVENTS if served.id == EVENTS.id else served


def shown(served: Served, obj: Object) -> Object:
    """Put an object that is kept into the version that was asked for."""
    if served.id == EVENTS.id:
        return _renamed(obj, _OLDER_WORDS, served) if served is CORE_EVENTS else obj
    return obj if obj.get("apiVersion") == served.api_version else {**obj, "apiVersion": served.api_version}


def kept(served: Served, obj: Object) -> Object:
    """Put an object that was sent into the form that is kept."""
    if served is not CORE_EVENTS or obj.get("apiVersion", "v1") != "v1":
        return obj
    return _renamed(obj, _WORDS, EVENTS)


def _renamed(obj: Object, words: Mapping[str, str], served: Served) -> Object:
    return {**{words.get(each, each): value for each, value in obj.items()}, "apiVersion": served.api_version}


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How objects of a kind are written down for one client."""

    name: str
    """Two forms of one name write the same; one without a name never writes twice the same."""
    one: Callable[[Object], Object]
    many: Callable[[Sequence[Object], Mapping[str, Any]], Object]


def whole(served: Served) -> Form:
    """Tell all of an object."""

    def many(objects: Sequence[Object], meta: Mapping[str, Any]) -> Object:
        head = {"kind": f"{served.kind}List", "apiVersion": served.api_version, "metadata": meta}
        return {**head, "items": [shown(served, each) for each in objects]}

    return Form(name=served.api_version, one=lambda obj: shown(served, obj), many=many)


def head(served: Served) -> Form:
    """Tell only whose object it is."""

    def one(obj: Object) -> Object:
        return {"kind": HEAD, "apiVersion": f"{META}/v1", "metadata": obj["metadata"]}

    def many(objects: Sequence[Object], meta: Mapping[str, Any]) -> Object:
        items = [one(each) for each in objects]
        return {"kind": f"{HEAD}List", "apiVersion": f"{META}/v1", "metadata": meta, "items": items}

    return Form(name=f"{served.api_version} head", one=one, many=many)


def table(served: Served, *, now: Callable[[], float], include: str) -> Form:
    """Tell it as rows for a person; ages are those of the moment in which a row is written."""
    drawn = Table(served, now=now)
    # the row of an Event is written from its older words, whichever were asked for
    source = CORE_EVENTS if served.id == EVENTS.id else served

    def of_row(obj: Object) -> Object | None:
        if include == "None":
            return None
        return shown(served, obj) if include == "Object" else head(served).one(obj)

    def many(objects: Sequence[Object], meta: Mapping[str, Any]) -> Object:
        rows = [{"cells": drawn.cells(shown(source, each)), "object": of_row(each)} for each in objects]
        frame = {"kind": "Table", "apiVersion": f"{META}/v1", "metadata": meta}
        return {**frame, "columnDefinitions": drawn.columns, "rows": rows}

    def one(obj: Object) -> Object:
        return many([obj], {"resourceVersion": obj["metadata"]["resourceVersion"]})

    return Form(name="", one=one, many=many)


def form(served: Served, accept: str, *, now: Callable[[], float], include: str) -> Form:
    """Choose the first form of those that a client accepts, in its order."""
    for choice in accept.split(",") if accept else ("*/*",):
        media, *words = (each.strip() for each in choice.split(";"))
        if media not in {"application/json", "application/*", "*/*"}:
            continue
        terms = dict(each.partition("=")[::2] for each in words)
        wanted = terms.get("as", "")
        if not wanted:
            return whole(served)
        if (terms.get("g"), terms.get("v")) == (META, "v1") and wanted == "Table":
            return table(served, now=now, include=include)
        if (terms.get("g"), terms.get("v")) == (META, "v1") and wanted in {HEAD, f"{HEAD}List"}:
            return head(served)
    raise not_acceptable(accept)

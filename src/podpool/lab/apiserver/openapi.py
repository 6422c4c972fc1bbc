"""OpenAPI v3 as far as kubectl asks for it: which parameters a write takes, and what `kubectl explain` shows.

Definitions are described by their own schemas. Kubernetes' own kinds are described in a sentence: what their fields
mean is not known here, and they are kept as they come.
"""

import hashlib
from typing import Any

import msgspec

from podpool import __version__
from podpool.lab.apiserver.registry import Kinds, Served

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PATCHES = ("application/json-patch+json", "application/merge-patch+json")
_WRITES = ("fieldManager", "fieldValidation")

Document = dict[str, Any]


def roots(kinds: Kinds) -> Document:
    """List the documents, each with a mark that changes with it."""
    places = dict.fromkeys(_root(each) for each in kinds)
    marked = {each: {"serverRelativeURL": f"/openapi/v3/{each}?hash={_mark(kinds, each)}"} for each in places}
    return {"paths": marked}


def described(kinds: Kinds, root: str) -> Document | None:
    """Describe one group in one version; None where there is no such."""
    members = [each for each in kinds if _root(each) == root]
    if not members:
        return None
    paths: Document = {}
    for each in members:
        inside = f"/{root}/namespaces/{{namespace}}/{each.plural}" if each.namespaced else f"/{root}/{each.plural}"
        paths[inside] = {"get": _operation(each, "list"), "post": _operation(each, "post", *_WRITES)}
        paths[f"{inside}/{{name}}"] = {
            "get": _operation(each, "get"),
            "put": _operation(each, "put", *_WRITES),
            "patch": {**_operation(each, "patch", *_WRITES), "requestBody": _patch_body(each)},
            "delete": _operation(each, "delete"),
        }
    schemas = {_name(each): _schema(each) for each in members}
    return {
        "openapi": "3.0.0",
        "info": {"title": "podpool pocket", "version": __version__},
        "paths": paths,
        "components": {"schemas": {META: {**_ANY, "description": "What every object has."}, **schemas}},
    }


def _root(served: Served) -> str:
    return f"apis/{served.group}/{served.version}" if served.group else f"api/{served.version}"


def _mark(kinds: Kinds, root: str) -> str:
    return hashlib.sha256(msgspec.json.encode(described(kinds, root))).hexdigest()[:32].upper()


def _operation(served: Served, action: str, *parameters: str) -> Document:
    return {
        "operationId": f"{action}{served.kind}",
        "parameters": [{"name": each, "in": "query", "schema": {"type": "string"}} for each in parameters],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": _reference(served)}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _kind(served),
    }


def _patch_body(served: Served) -> Document:
    # strategic merge patches are taken but not told of: kubectl makes better ones from what it knows of the kinds
    return {"content": {media: {"schema": _reference(served)} for media in _PATCHES}}


def _schema(served: Served) -> Document:
    known: Document = dict(served.schema or {"type": "object", "description": f"A {served.kind} of Kubernetes."})
    properties: Document = dict(known.get("properties") or {})
    if not served.schema:
        properties |= {"spec": {**_ANY, "description": "What is wanted."}}
        properties |= {"status": {**_ANY, "description": "What is so."}} if served.status else {}
    properties |= {
        "apiVersion": {"type": "string", "description": "The group and version of the object."},
        "kind": {"type": "string", "description": "What the object is."},
        "metadata": {"allOf": [{"$ref": f"#/components/schemas/{META}"}], "description": "Whose object it is."},
    }
    return {**known, "properties": properties, "x-kubernetes-group-version-kind": [_kind(served)]}


def _reference(served: Served) -> Document:
    return {"$ref": f"#/components/schemas/{_name(served)}"}


def _name(served: Served) -> str:
    return ".".join([*reversed((served.group or "core").split(".")), served.version, served.kind])


def _kind(served: Served) -> Document:
    return {"group": served.group, "version": served.version, "kind": served.kind}

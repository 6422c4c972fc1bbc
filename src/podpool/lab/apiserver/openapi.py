"""OpenAPI v3 as far as kubectl uses it: the parameters of writes, and what `kubectl explain` shows.

Custom resources are described by their schemas. Built-in kinds have no schema here; their fields are stored as sent.
"""

import hashlib
from typing import Any

import msgspec

from podpool import __version__
from podpool.lab.apiserver.registry import ApiResource, ResourceRegistry

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PATCHES = ("application/json-patch+json", "application/merge-patch+json")
_WRITES = ("fieldManager", "fieldValidation")

Document = dict[str, Any]


def index(registry: ResourceRegistry) -> Document:
    """Return the list of documents, each with a hash of its content."""
    roots = dict.fromkeys(_root(each) for each in registry)
    urls = {each: f"/openapi/v3/{each}?hash={_hash(registry, each)}" for each in roots}
    return {"paths": {each: {"serverRelativeURL": url} for each, url in urls.items()}}


def document(registry: ResourceRegistry, root: str) -> Document | None:
    """Return the document of one group and version; None if it is not served."""
    members = [each for each in registry if _root(each) == root]
    if not members:
        return None
    paths: Document = {}
    for each in members:
        path = f"/{root}/namespaces/{{namespace}}/{each.plural}" if each.namespaced else f"/{root}/{each.plural}"
        paths[path] = {"get": _operation(each, "list"), "post": _operation(each, "post", *_WRITES)}
        paths[f"{path}/{{name}}"] = {
            "get": _operation(each, "get"),
            "put": _operation(each, "put", *_WRITES),
            "patch": {**_operation(each, "patch", *_WRITES), "requestBody": _patch_body(each)},
            "delete": _operation(each, "delete"),
        }
    schemas = {_name(each): _schema(each) for each in members}
    return {
        "openapi": "3.0.0",
        "info": {"title": "podpool apiserver", "version": __version__},
        "paths": paths,
        "components": {"schemas": {META: {**_ANY, "description": "Standard object metadata."}, **schemas}},
    }


def _root(resource: ApiResource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _hash(registry: ResourceRegistry, root: str) -> str:
    return hashlib.sha256(msgspec.json.encode(document(registry, root))).hexdigest()[:32].upper()


def _operation(resource: ApiResource, action: str, *parameters: str) -> Document:
    return {
        "operationId": f"{action}{resource.kind}",
        "parameters": [{"name": each, "in": "query", "schema": {"type": "string"}} for each in parameters],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": _reference(resource)}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _kind(resource),
    }


def _patch_body(resource: ApiResource) -> Document:
    # strategic merge patches are accepted but not listed: kubectl then computes them from its own types
    return {"content": {media: {"schema": _reference(resource)} for media in _PATCHES}}


def _schema(resource: ApiResource) -> Document:
    known: Document = dict(resource.schema or {"type": "object", "description": f"A {resource.kind} of Kubernetes."})
    properties: Document = dict(known.get("properties") or {})
    if not resource.schema:
        properties |= {"spec": {**_ANY, "description": "The desired state."}}
        properties |= {"status": {**_ANY, "description": "The observed state."}} if resource.status else {}
    properties |= {
        "apiVersion": {"type": "string", "description": "The group and version of the object."},
        "kind": {"type": "string", "description": "The kind of the object."},
        "metadata": {"allOf": [{"$ref": f"#/components/schemas/{META}"}], "description": "Standard object metadata."},
    }
    return {**known, "properties": properties, "x-kubernetes-group-version-kind": [_kind(resource)]}


def _reference(resource: ApiResource) -> Document:
    return {"$ref": f"#/components/schemas/{_name(resource)}"}


def _name(resource: ApiResource) -> str:
    return ".".join([*reversed((resource.group or "core").split(".")), resource.version, resource.kind])


def _kind(resource: ApiResource) -> Document:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}

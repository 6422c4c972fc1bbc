"""API discovery: aggregated, and in the older format group by group."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from podpool.lab.apiserver.registry import PODS, ApiResource, ResourceRegistry

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")

Document = dict[str, Any]


def accepts_aggregated(accept: str) -> bool:
    """Return whether a client accepts the aggregated format."""
    wanted = {"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"}
    return any(wanted <= set(choice.strip().split(";")) for choice in accept.split(","))


def aggregated(registry: ResourceRegistry, *, core: bool) -> Document:
    """Return the aggregated discovery of the named groups, or of the core group."""
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None},
            "versions": [
                {"version": version, "resources": [_resource(each) for each in members], "freshness": "Current"}
                for version, members in versions.items()
            ],
        }
        for group, versions in _groups(registry).items()
        if (group == "") is core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def legacy(registry: ResourceRegistry, path: str) -> Document | None:
    """Return the document of a path in the older format; None for other paths."""
    groups = _groups(registry)
    match path.strip("/").split("/"):
        case ["api"]:
            return {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            named = [_group(name, list(versions)) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
        case ["api", version] if version in groups[""]:
            return _list(version, groups[""][version])
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, list(groups[group]))}
        case ["apis", group, version] if version in groups.get(group, ()):
            return _list(f"{group}/{version}", groups[group][version])
    return None


def _groups(registry: ResourceRegistry) -> Mapping[str, Mapping[str, list[ApiResource]]]:
    return {
        group: {version: list(members) for version, members in groupby(of_group, lambda each: each.version)}
        for group, of_group in groupby(registry, lambda each: each.group)
    }


def _resource(resource: ApiResource) -> Document:
    found = ((sub, _kind(resource, kind), list(verbs)) for sub, kind, verbs in _subresources(resource))
    subs = [{"subresource": sub, "responseKind": kind, "verbs": verbs} for sub, kind, verbs in found]
    return {
        "resource": resource.plural,
        "responseKind": _kind(resource, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular or resource.kind.lower(),
        "verbs": _verbs(resource),
        **_names(resource),
        **({"subresources": subs} if subs else {}),
    }


def _list(version: str, members: Iterable[ApiResource]) -> Document:
    resources: list[Document] = []
    for each in members:
        names = {"name": each.plural, "singularName": each.singular or each.kind.lower(), "verbs": _verbs(each)}
        scope = {"namespaced": each.namespaced, "kind": each.kind}
        resources.append({**names, **scope, **_names(each)})
        resources += [
            {"name": f"{each.plural}/{sub}", "singularName": "", **scope, "kind": kind, "verbs": list(verbs)}
            for sub, kind, verbs in _subresources(each)
        ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _verbs(resource: ApiResource) -> list[str]:
    return ["create"] if resource.unsupported else list(VERBS)


def _subresources(resource: ApiResource) -> list[tuple[str, str, tuple[str, ...]]]:
    bound = [("binding", "Binding", ("create",))] if resource.id == PODS.id else []
    return [*bound, *([("status", resource.kind, STATUS_VERBS)] if resource.status else [])]


def _names(resource: ApiResource) -> Document:
    named = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {each: names for each, names in named.items() if names}


def _kind(resource: ApiResource, kind: str) -> Document:
    return {"group": resource.group, "version": resource.version, "kind": kind}


def _group(name: str, versions: list[str]) -> Document:
    listed = [{"groupVersion": f"{name}/{each}", "version": each} for each in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}

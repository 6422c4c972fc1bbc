"""What is served here, as clients ask for it: all at once (aggregated), and group by group as it was before that."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from podpool.lab.apiserver.registry import PODS, Kinds, Served

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")

Document = dict[str, Any]


def wants_all(accept: str) -> bool:
    """Whether a client reads the aggregated form."""
    return any(
        {"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} <= set(choice.strip().split(";"))
        for choice in accept.split(",")
    )


def aggregated(kinds: Kinds, *, core: bool) -> Document:
    """Tell everything of the groups, or of the one that has no name."""
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None},
            "versions": [
                {"version": version, "resources": [_resource(each) for each in members], "freshness": "Current"}
                for version, members in versions.items()
            ],
        }
        for group, versions in _groups(kinds).items()
        if (group == "") is core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def legacy(kinds: Kinds, path: str) -> Document | None:
    """Answer a path of the older form; None where it is none of them."""
    groups = _groups(kinds)
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


def _groups(kinds: Kinds) -> Mapping[str, Mapping[str, list[Served]]]:
    return {
        group: {version: list(members) for version, members in groupby(of_group, lambda each: each.version)}
        for group, of_group in groupby(kinds, lambda each: each.group)
    }


def _resource(served: Served) -> Document:
    subs = [
        {"subresource": sub, "responseKind": _kind(served, kind), "verbs": list(verbs)}
        for sub, kind, verbs in _subresources(served)
    ]
    return {
        "resource": served.plural,
        "responseKind": _kind(served, served.kind),
        "scope": "Namespaced" if served.namespaced else "Cluster",
        "singularResource": served.singular or served.kind.lower(),
        "verbs": _verbs(served),
        **_names(served),
        **({"subresources": subs} if subs else {}),
    }


def _list(version: str, members: Iterable[Served]) -> Document:
    resources: list[Document] = []
    for each in members:
        whole = {"name": each.plural, "singularName": each.singular or each.kind.lower(), "verbs": _verbs(each)}
        placed = {"namespaced": each.namespaced, "kind": each.kind}
        resources.append({**whole, **placed, **_names(each)})
        resources += [
            {"name": f"{each.plural}/{sub}", "singularName": "", **placed, "kind": kind, "verbs": list(verbs)}
            for sub, kind, verbs in _subresources(each)
        ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _verbs(served: Served) -> list[str]:
    return ["create"] if served.left_out else list(VERBS)


def _subresources(served: Served) -> list[tuple[str, str, tuple[str, ...]]]:
    bound = [("binding", "Binding", ("create",))] if served.id == PODS.id else []
    return [*bound, *([("status", served.kind, STATUS_VERBS)] if served.status else [])]


def _names(served: Served) -> Document:
    named = {"shortNames": list(served.short), "categories": list(served.categories)}
    return {each: names for each, names in named.items() if names}


def _kind(served: Served, kind: str) -> Document:
    return {"group": served.group, "version": served.version, "kind": kind}


def _group(name: str, versions: list[str]) -> Document:
    told = [{"groupVersion": f"{name}/{each}", "version": each} for each in versions]
    return {"name": name, "versions": told, "preferredVersion": told[0]}

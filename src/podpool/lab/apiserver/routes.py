"""Request paths: which resource, namespace, object and subresource a path names."""

import msgspec

from podpool.lab.apiserver.registry import NAMESPACES, PODS, ApiResource, ResourceRegistry
from podpool.lab.apiserver.status_errors import path_not_found


class RequestTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a path names."""

    resource: ApiResource
    namespace: str = ""
    name: str = ""
    subresource: str | None = None

    @property
    def key(self) -> str:
        """The object's key in the store."""
        return self.resource.key(self.namespace, self.name)


def route(registry: ResourceRegistry, path: str) -> RequestTarget:
    """Parse a path; raises a 404 for what is not served."""
    match path.strip("/").split("/"):
        case ["api", version, *parts]:
            return _parse(registry, "", version, parts)
        case ["apis", group, version, *parts]:
            return _parse(registry, group, version, parts)
    raise path_not_found()


def _parse(registry: ResourceRegistry, group: str, version: str, parts: list[str]) -> RequestTarget:
    namespace = ""
    # `namespaces/NAME/...` is the prefix of namespaced resources, except `namespaces/NAME/status`
    if len(parts) > 2 and parts[0] == NAMESPACES.plural and parts[2] != "status":
        namespace, parts = parts[1], parts[2:]
    match parts:
        case [plural]:
            return _target(registry.find(group, version, plural), namespace, "", None)
        case [plural, name]:
            return _target(registry.find(group, version, plural), namespace, name, None)
        case [plural, name, subresource]:
            return _target(registry.find(group, version, plural), namespace, name, subresource)
    raise path_not_found()


def _target(resource: ApiResource, namespace: str, name: str, subresource: str | None) -> RequestTarget:
    has_subresource = (
        subresource is None
        or (subresource == "status" and resource.status)
        or (subresource == "binding" and resource.id == PODS.id)
    )
    scope_fits = resource.namespaced or not namespace
    has_namespace = bool(namespace) or not resource.namespaced or not name
    if not (has_subresource and scope_fits and has_namespace):
        raise path_not_found()
    return RequestTarget(resource=resource, namespace=namespace, name=name, subresource=subresource)

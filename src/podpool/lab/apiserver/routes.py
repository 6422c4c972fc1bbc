"""Paths of the Kubernetes API: which kind, which object, which part of it."""

import msgspec

from podpool.lab.apiserver.registry import NAMESPACES, PODS, Kinds, Served
from podpool.lab.apiserver.status_errors import no_such_path


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a path names."""

    served: Served
    namespace: str = ""
    name: str = ""
    sub: str | None = None

    @property
    def key(self) -> str:
        """The object's name among its kind."""
        return self.served.key(self.namespace, self.name)


def route(kinds: Kinds, path: str) -> Target:
    """Read a path; refuses what is not served."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            return _inside(kinds, "", version, rest)
        case ["apis", group, version, *rest]:
            return _inside(kinds, group, version, rest)
    raise no_such_path()


def _inside(kinds: Kinds, group: str, version: str, rest: list[str]) -> Target:
    namespace = ""
    # a namespace is a place for other kinds, and an object with a status of its own
    if len(rest) > 2 and rest[0] == NAMESPACES.plural and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    match rest:
        case [plural]:
            return _target(kinds.find(group, version, plural), namespace, "", None)
        case [plural, name]:
            return _target(kinds.find(group, version, plural), namespace, name, None)
        case [plural, name, sub]:
            return _target(kinds.find(group, version, plural), namespace, name, sub)
    raise no_such_path()


def _target(served: Served, namespace: str, name: str, sub: str | None) -> Target:
    known = sub is None or (sub == "status" and served.status) or (sub == "binding" and served.id == PODS.id)
    placed = served.namespaced or not namespace
    somewhere = bool(namespace) or not served.namespaced or not name
    if not (known and placed and somewhere):
        raise no_such_path()
    return Target(served=served, namespace=namespace, name=name, sub=sub)

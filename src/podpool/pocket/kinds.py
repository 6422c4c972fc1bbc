"""Which kinds are served: a few of Kubernetes' own, and whatever a CustomResourceDefinition adds."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from podpool.pocket.refusals import no_such_path
from podpool.pocket.schema import Schema

Id = tuple[str, str]
"""Group and plural: where a kind's objects are kept, whatever version they are asked for in."""

ANY_FIELDS = ("metadata.name", "metadata.namespace")


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A kind in one version, and what is special about it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    custom: bool = False
    status: bool = False
    """Has a status of its own: writes to the object leave it, writes to the status leave the rest."""
    born_with_status: bool = False
    """A status in the creating request counts: a kubelet registers its Node so."""
    fields: tuple[str, ...] = ANY_FIELDS
    schema: Schema | None = None

    @property
    def id(self) -> Id:
        """Where its objects are kept."""
        return (self.group, self.plural)

    @property
    def api_version(self) -> str:
        """The group and version as objects carry them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The kind's place, in sentences."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """The kind's name, in sentences."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def key(self, namespace: str, name: str) -> str:
        """Name an object among its kind."""
        return f"{namespace}/{name}" if self.namespaced else name


DEFINITIONS = Served(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    status=True,
)
NAMESPACES = Served(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, status=True)
PODS = Served(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    status=True,
    fields=(*ANY_FIELDS, "spec.nodeName", "status.phase"),
)
BUILTIN = (
    DEFINITIONS,
    NAMESPACES,
    PODS,
    Served(group="", version="v1", plural="nodes", kind="Node", namespaced=False, status=True, born_with_status=True),
    Served(group="", version="v1", plural="configmaps", kind="ConfigMap"),
    Served(group="events.k8s.io", version="v1", plural="events", kind="Event"),
    Served(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease"),
)


class Kinds:
    """The kinds that a server knows at this moment."""

    def __init__(self, definitions: Iterable[Mapping[str, Any]] = ()) -> None:
        self._served = {(each.group, each.version, each.plural): each for each in BUILTIN}
        for definition in definitions:
            self._served |= {(each.group, each.version, each.plural): each for each in defined(definition)}

    def find(self, group: str, version: str, plural: str) -> Served:
        """Find a kind by its place in a path."""
        try:
            return self._served[group, version, plural]
        except KeyError:
            raise no_such_path() from None

    def unversioned(self) -> list[Served]:
        """Tell each kind once, whatever its versions."""
        return list({each.id: each for each in self._served.values()}.values())


def defined(definition: Mapping[str, Any]) -> list[Served]:
    """Read the kinds that a CustomResourceDefinition adds, one for each version that it serves."""
    spec = definition["spec"]
    return [
        Served(
            group=spec["group"],
            version=version["name"],
            plural=spec["names"]["plural"],
            kind=spec["names"]["kind"],
            namespaced=spec["scope"] == "Namespaced",
            custom=True,
            status="status" in version.get("subresources", {}),
            schema=version.get("schema", {}).get("openAPIV3Schema"),
        )
        for version in spec["versions"]
        if version.get("served")
    ]

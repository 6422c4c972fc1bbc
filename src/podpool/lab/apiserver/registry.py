"""Which kinds are served: a few of Kubernetes' own, and whatever a CustomResourceDefinition adds."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from podpool.lab.apiserver.schema_validation import Schema
from podpool.lab.apiserver.status_errors import no_such_path

Id = tuple[str, str]
"""Group and plural: where a kind's objects are kept, whatever version they are asked for in."""

ANY_FIELDS = ("metadata.name", "metadata.namespace")
_OF_AN_OBJECT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+)?)?")


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
    stored: Id | None = None
    """Where its objects are kept, when that is with another kind."""
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()
    """What a definition wants to be shown in tables."""
    left_out: bool = False
    """Told of and not served: kubectl asks for it then, and can be refused with a sentence."""

    @property
    def id(self) -> Id:
        """Where its objects are kept."""
        return self.stored or (self.group, self.plural)

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
    short=("crd", "crds"),
    categories=("api-extensions",),
)
NAMESPACES = Served(
    group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, status=True, short=("ns",)
)
PODS = Served(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    status=True,
    fields=(*ANY_FIELDS, "spec.nodeName", "status.phase", "status.podIP"),
    short=("po",),
    categories=("all",),
)
EVENTS = Served(
    group="events.k8s.io",
    version="v1",
    plural="events",
    kind="Event",
    fields=(*ANY_FIELDS, *(f"regarding.{each}" for each in _OF_AN_OBJECT), "reason", "reportingController", "type"),
    short=("ev",),
)
CORE_EVENTS = Served(
    group="",
    version="v1",
    plural="events",
    kind="Event",
    fields=(*ANY_FIELDS, *(f"involvedObject.{each}" for each in _OF_AN_OBJECT), "reason", "reportingComponent", "type"),
    short=("ev",),
    stored=EVENTS.id,
)
"""Events in their older words; the objects are the same."""
BUILTIN = (
    DEFINITIONS,
    NAMESPACES,
    PODS,
    Served(
        group="",
        version="v1",
        plural="nodes",
        kind="Node",
        namespaced=False,
        status=True,
        born_with_status=True,
        short=("no",),
    ),
    Served(group="", version="v1", plural="configmaps", kind="ConfigMap", short=("cm",)),
    CORE_EVENTS,
    EVENTS,
    Served(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease"),
)


def _left_out(group: str, kind: str, plural: str, *, namespaced: bool = False) -> Served:
    return Served(group=group, version="v1", plural=plural, kind=kind, namespaced=namespaced, left_out=True)


ADMISSION, RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
LEFT_OUT = (
    _left_out(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    _left_out(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    _left_out(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    _left_out(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    _left_out(RBAC, "ClusterRole", "clusterroles"),
    _left_out(RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    _left_out(RBAC, "Role", "roles", namespaced=True),
    _left_out(RBAC, "RoleBinding", "rolebindings", namespaced=True),
)


class Kinds:
    """The kinds that a server knows at this moment."""

    def __init__(self, definitions: Iterable[Mapping[str, Any]] = ()) -> None:
        self._served = {(each.group, each.version, each.plural): each for each in BUILTIN}
        own = {each.group for each in BUILTIN}
        for each in (kind for definition in definitions for kind in defined(definition)):
            if each.group not in own:  # a real server, too, looks for nothing else in its own groups
                self._served[each.group, each.version, each.plural] = each

    def find(self, group: str, version: str, plural: str) -> Served:
        """Find a kind by its place in a path."""
        try:
            return self._served[group, version, plural]
        except KeyError:
            raise no_such_path() from None

    def __iter__(self) -> Iterator[Served]:
        """Go through all that is told of, group by group, of each group its best version first."""
        told = (*self._served.values(), *LEFT_OUT)
        return iter(sorted(told, key=lambda each: (each.group, _rank(each.version), each.plural)))

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
            status="status" in (version.get("subresources") or {}),
            schema=(version.get("schema") or {}).get("openAPIV3Schema"),
            singular=spec["names"].get("singular", ""),
            short=tuple(spec["names"].get("shortNames") or ()),
            categories=tuple(spec["names"].get("categories") or ()),
            columns=tuple(version.get("additionalPrinterColumns") or ()),
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def _rank(version: str) -> tuple[int, int, int, str]:
    """Order versions as Kubernetes does: v2, v1, v1beta2, v1beta1, v1alpha1, and then any other word."""
    found = _VERSION.fullmatch(version)
    if not found:
        return (3, 0, 0, version)
    major, stage, minor = found.groups()
    return ((None, "beta", "alpha").index(stage), -int(major), -int(minor or 0), version)

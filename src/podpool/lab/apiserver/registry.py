"""The served resources: a few built-in kinds, and those that CustomResourceDefinitions add."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from podpool.api.meta import Kind
from podpool.lab.apiserver.schema_validation import Schema
from podpool.lab.apiserver.status_errors import path_not_found

Object = Mapping[str, Any]
GroupResource = tuple[str, str]
"""Group and plural: the key under which objects are stored, the same for all versions."""

COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+)?)?")


class ApiResource(msgspec.Struct, frozen=True, dict=True):
    """A kind in one version, and how it is served."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    custom: bool = False
    status: bool = False
    """Has a status subresource: writes to the object keep the status, writes to the status keep all else."""
    status_on_create: bool = False
    """Keeps the status of a create request: a kubelet registers its Node with one."""
    selectable_fields: tuple[str, ...] = COMMON_FIELDS
    schema: Schema | None = None
    stored_as: GroupResource | None = None
    """Where the objects are stored, if under another resource."""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    printer_columns: tuple[Mapping[str, Any], ...] = ()
    """The additionalPrinterColumns of a CRD."""
    unsupported: bool = False
    """Listed in discovery but not served: kubectl then sends the request and shows the server's error."""

    @cached_property
    def id(self) -> GroupResource:
        """The key under which the objects are stored."""
        return self.stored_as or (self.group, self.plural)

    @cached_property
    def api_version(self) -> str:
        """The group and version as in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """The resource's name in error messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind's name in error messages."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def key(self, namespace: str, name: str) -> str:
        """Return the key of an object."""
        return f"{namespace}/{name}" if self.namespaced else name


_EVENT_FIELDS = (*COMMON_FIELDS, "reason", "type")

CRDS = ApiResource(
    *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    namespaced=False,
    status=True,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
)
NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", namespaced=False, status=True, short_names=("ns",))
PODS = ApiResource(
    *("", "v1", "pods", "Pod"),
    status=True,
    selectable_fields=(*COMMON_FIELDS, "spec.nodeName", "status.phase", "status.podIP"),
    short_names=("po",),
    categories=("all",),
)
EVENTS = ApiResource(
    *("events.k8s.io", "v1", "events", "Event"),
    selectable_fields=(*_EVENT_FIELDS, *(f"regarding.{each}" for each in _REFERENCE_FIELDS), "reportingController"),
    short_names=("ev",),
)
CORE_EVENTS = ApiResource(
    *("", "v1", "events", "Event"),
    selectable_fields=(*_EVENT_FIELDS, *(f"involvedObject.{each}" for each in _REFERENCE_FIELDS), "reportingComponent"),
    short_names=("ev",),
    stored_as=EVENTS.id,
)
"""Events in the core/v1 format; the same objects as EVENTS."""
NODES = ApiResource(
    "", "v1", "nodes", "Node", namespaced=False, status=True, status_on_create=True, short_names=("no",)
)
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
LEASES = ApiResource("coordination.k8s.io", "v1", "leases", "Lease")
BUILTIN = (CRDS, NAMESPACES, PODS, NODES, CONFIG_MAPS, CORE_EVENTS, EVENTS, LEASES)


def _unsupported(group: str, kind: str, plural: str, *, namespaced: bool = False) -> ApiResource:
    return ApiResource(group=group, version="v1", plural=plural, kind=kind, namespaced=namespaced, unsupported=True)


ADMISSION, RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
UNSUPPORTED = (
    _unsupported(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    _unsupported(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    _unsupported(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    _unsupported(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    _unsupported(RBAC, "ClusterRole", "clusterroles"),
    _unsupported(RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    _unsupported(RBAC, "Role", "roles", namespaced=True),
    _unsupported(RBAC, "RoleBinding", "rolebindings", namespaced=True),
)


class ResourceRegistry:
    """The resources that are served at present."""

    def __init__(self, crds: Iterable[Mapping[str, Any]] = ()) -> None:
        self._resources = {(each.group, each.version, each.plural): each for each in BUILTIN}
        builtin_groups = {each.group for each in BUILTIN}
        for each in (resource for crd in crds for resource in resources_of(crd)):
            if each.group not in builtin_groups:  # like kube-apiserver: a CRD adds nothing to a built-in group
                self._resources[each.group, each.version, each.plural] = each

    def find(self, group: str, version: str, plural: str) -> ApiResource:
        """Return a resource; raises a 404 if it is not served."""
        try:
            return self._resources[group, version, plural]
        except KeyError:
            raise path_not_found() from None

    def of(self, kind: Kind[Any]) -> ApiResource:
        """Return the resource of a kind of the client side."""
        return self.find(kind.group, kind.version, kind.plural)

    def __iter__(self) -> Iterator[ApiResource]:
        """Iterate over all resources by group, each group's preferred version first."""
        found = (*self._resources.values(), *UNSUPPORTED)
        return iter(sorted(found, key=lambda each: (each.group, _rank(each.version), each.plural)))

    def unversioned(self) -> list[ApiResource]:
        """Return each resource once, whatever its versions."""
        return list({each.id: each for each in self._resources.values()}.values())


def resources_of(crd: Mapping[str, Any]) -> list[ApiResource]:
    """Return the resources that a CustomResourceDefinition adds, one per served version."""
    spec = crd["spec"]
    return [
        ApiResource(
            group=spec["group"],
            version=version["name"],
            plural=spec["names"]["plural"],
            kind=spec["names"]["kind"],
            namespaced=spec["scope"] == "Namespaced",
            custom=True,
            status="status" in (version.get("subresources") or {}),
            schema=(version.get("schema") or {}).get("openAPIV3Schema"),
            singular=spec["names"].get("singular", ""),
            short_names=tuple(spec["names"].get("shortNames") or ()),
            categories=tuple(spec["names"].get("categories") or ()),
            printer_columns=tuple(version.get("additionalPrinterColumns") or ()),
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def _rank(version: str) -> tuple[int, int, int, str]:
    """Order versions as Kubernetes does: v2, v1, v1beta2, v1beta1, v1alpha1, then any other name."""
    found = _VERSION.fullmatch(version)
    if not found:
        return (3, 0, 0, version)
    major, stability, minor = found.groups()
    return ((None, "beta", "alpha").index(stability), -int(major), -int(minor or 0), version)

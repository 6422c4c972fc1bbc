"""Object metadata, conditions, and the address of a kind in the API."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Generic, TypeVar

import msgspec

from podpool.api.annotation_decoder import parse_number


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of all structs: camel case on the wire, unset fields omitted."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """Owner of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectIdentity(ApiStruct, frozen=True, kw_only=True):
    """Metadata that identifies an object and its version."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class ObjectMeta(ObjectIdentity, frozen=True, kw_only=True):
    """The used metadata."""

    generation: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number, 0 if it is none: every API server so far uses numbers, none promises it."""
    return parse_number(resource_version) or 0


def is_older(resource_version: str, than: str) -> bool:
    """Compare two resourceVersions; False unless both are numbers."""
    one, other = parse_number(resource_version), parse_number(than)
    return one is not None and other is not None and one < other


def rfc3339(wall: float) -> str:
    """Return a wall-clock time as Kubernetes writes it."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(wall: float) -> str:
    """Return a wall-clock time as Kubernetes writes a MicroTime; such texts sort by time."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Condition(ApiStruct, frozen=True, kw_only=True):
    """A status condition."""

    type: str = ""
    """Name of the condition."""
    status: str = ""
    """True, False or Unknown."""
    reason: str = ""
    """CamelCase reason."""
    message: str = ""
    """Explanation for people."""
    last_transition_time: str | None = None
    """When `status` last changed."""


class KeyedObject(ApiStruct, frozen=True, kw_only=True):
    """An object with identity only: what a cache needs."""

    metadata: ObjectIdentity = ObjectIdentity()

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for cluster-scoped objects."""
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.metadata.namespace else self.metadata.name


class KubeObject(KeyedObject, frozen=True, kw_only=True):
    """An object with metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


T = TypeVar("T", bound=KeyedObject)


class Kind(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A kind: its API group, version and plural, and the struct it is decoded into."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of an object, its subresource, or of all objects in one namespace or in all."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return (
            f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "") + (f"/{subresource}" if subresource else "")
        )

"""What all Kubernetes objects have in common, and where each kind is found."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Generic, TypeVar

import msgspec


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A part of an object: camel case on the wire, and nothing written that is not set."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """Who an object belongs to."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectIdentity(ApiStruct, frozen=True, kw_only=True):
    """The metadata that tells which object it is, and in which state."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class ObjectMeta(ObjectIdentity, frozen=True, kw_only=True):
    """The metadata that we use."""

    generation: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number, 0 if it is none: every API server so far uses numbers, none promises it."""
    return int(resource_version) if resource_version.isdecimal() else 0


def is_older(resource_version: str, than: str) -> bool:
    """Compare two resourceVersions; False unless both are numbers."""
    return than.isdecimal() and resource_version.isdecimal() and int(resource_version) < int(than)


def rfc3339(wall: float) -> str:
    """Write seconds of the epoch as objects tell the time."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Condition(ApiStruct, frozen=True, kw_only=True):
    """One thing that is so, or is not: `status` is True, False or Unknown."""

    type: str = ""
    """What it is about."""
    status: str = ""
    """True, False or Unknown."""
    reason: str = ""
    """Why, in a word."""
    message: str = ""
    """Why, in a sentence."""
    last_transition_time: str | None = None
    """Since when."""


class KeyedObject(ApiStruct, frozen=True, kw_only=True):
    """Any object, as far as it can be told from others: all that a cache needs to know."""

    metadata: ObjectIdentity = ObjectIdentity()

    @property
    def key(self) -> str:
        """Its name among its kind: `namespace/name`, or the name alone."""
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.metadata.namespace else self.metadata.name


class KubeObject(KeyedObject, frozen=True, kw_only=True):
    """Any object, as far as its metadata goes."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


T = TypeVar("T", bound=KeyedObject)


class Kind(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Where a kind is found, and what it is read into."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The group and version as objects carry them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Find an object, its subresource, or all of the kind; without a namespace those of every namespace."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return (
            f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "") + (f"/{subresource}" if subresource else "")
        )

"""JSON of the API server: lists, watch events and manifests. Decoders are made once per kind.

A watch line is decoded in two steps, its type first, because the object of an ERROR event is of another kind.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, Generic, Literal, TypeVar

import msgspec

from podpool.api.meta import KeyedObject, Kind, T

ENCODER = msgspec.json.Encoder(decimal_format="number")

Item = TypeVar("Item")


class ObjectList(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """All requested objects at one resourceVersion."""

    items: Sequence[Item]
    resource_version: str


class WatchEvent(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """One event of a watch. The object of a bookmark has only a resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Item


class ListMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The version of a list, and the token of its next page."""

    resource_version: str = ""
    next: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """One page of a list; the items of an empty one may be null."""

    metadata: ListMeta = ListMeta()
    items: list[Item] | None = None


class WatchLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch, its object not decoded."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class KindDecoders(Generic[Item]):
    """The decoders of one kind: of an object and of a list page."""

    def __init__(self, item: type[Item]) -> None:
        page: Any = ListPage  # a generic struct takes its argument at run time
        self.one: msgspec.json.Decoder[Item] = msgspec.json.Decoder(item)
        self.page: msgspec.json.Decoder[ListPage[Item]] = msgspec.json.Decoder(page[item])


_decoders = cache(KindDecoders)


def decoders_of(kind: Kind[T]) -> KindDecoders[T]:
    """Return the decoders of a kind."""
    return _decoders(kind.type)


def manifest_of(kind: Kind[Any], obj: KeyedObject | Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as a manifest, with apiVersion and kind."""
    # decimals are kept: the encoder writes them exactly
    plain = obj if isinstance(obj, Mapping) else msgspec.to_builtins(obj, builtin_types=(Decimal,))
    return {**plain, "apiVersion": kind.api_version, "kind": kind.kind}


class LineSplitter:
    """Splits a stream of chunks into lines."""

    def __init__(self) -> None:
        self._incomplete = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk and return the lines that are now complete."""
        *lines, self._incomplete = (self._incomplete + chunk).split(b"\n")
        return [line for line in lines if line]

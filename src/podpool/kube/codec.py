"""What goes over the wire, and into what it is read. Decoders are made once for each kind.

A watch line is read in two steps: its type first, because the object of an error is of another kind.
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
    """All objects that were asked for, as they were at one version."""

    items: Sequence[Item]
    resource_version: str


class WatchEvent(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """What a watch tells. Of a bookmark's object only the version counts."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Item


class ListMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a page ends, and the version of the whole list."""

    resource_version: str = ""
    next: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """A part of a list; an empty one may say null."""

    metadata: ListMeta = ListMeta()
    items: list[Item] | None = None


class WatchLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class KindDecoders(Generic[Item]):
    """The decoders of one kind."""

    def __init__(self, item: type[Item]) -> None:
        page: Any = ListPage  # a generic struct takes its argument at run time
        self.one: msgspec.json.Decoder[Item] = msgspec.json.Decoder(item)
        self.page: msgspec.json.Decoder[ListPage[Item]] = msgspec.json.Decoder(page[item])


_reader = cache(KindDecoders)


def decoders_of(kind: Kind[T]) -> KindDecoders[T]:
    """Find the decoders of a kind."""
    return _reader(kind.type)


def manifest_of(kind: Kind[Any], obj: KeyedObject | Mapping[str, Any]) -> dict[str, Any]:
    """Write an object out in full, its kind included."""
    # a decimal stays one: the encoder writes it digit by digit
    plain = obj if isinstance(obj, Mapping) else msgspec.to_builtins(obj, builtin_types=(Decimal,))
    return {**plain, "apiVersion": kind.api_version, "kind": kind.kind}


class LineSplitter:
    """The lines of a stream that comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, piece: bytes) -> list[bytes]:
        """Take a piece, and give the lines that are now whole."""
        *ended, self._rest = (self._rest + piece).split(b"\n")
        return [line for line in ended if line]

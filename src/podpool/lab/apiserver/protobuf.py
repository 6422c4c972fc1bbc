"""The few bodies that kubectl sends in protobuf, whatever a server says it reads: read into what JSON would have been.

Kubernetes puts a mark and an envelope around them. Only fields that kubectl sets are known; others are passed over.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from podpool.core.errors import PodpoolError

MEDIA = "application/vnd.kubernetes.protobuf"
MARK = b"k8s\x00"


class Unreadable(PodpoolError):
    """A body that is none of the few."""


class Field(msgspec.Struct, frozen=True):
    """One field of a message: text, a number, a message of its own, or a map of texts."""

    name: str
    message: Mapping[int, "Field"] | None = None
    mapped: bool = False


_TYPE = {1: Field("apiVersion"), 2: Field("kind")}
_PAIR = {1: Field("key"), 2: Field("value")}
_META = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    11: Field("labels", _PAIR, mapped=True),
    12: Field("annotations", _PAIR, mapped=True),
}
_PRECONDITIONS = {1: Field("uid"), 2: Field("resourceVersion")}
_MESSAGES: Mapping[str, Mapping[int, Field]] = {
    "Namespace": {1: Field("metadata", _META)},
    "ConfigMap": {1: Field("metadata", _META), 2: Field("data", _PAIR, mapped=True)},
    "DeleteOptions": {1: Field("gracePeriodSeconds"), 2: Field("preconditions", _PRECONDITIONS)},
}


def read(body: bytes) -> dict[str, Any]:
    """Read a body."""
    try:
        if not body.startswith(MARK):
            raise Unreadable("no mark")
        envelope = {number: value for number, value in _fields(body[len(MARK) :]) if isinstance(value, bytes)}
        head = _read(envelope[1], _TYPE)
        return {**head, **_read(envelope.get(2, b""), _MESSAGES[head["kind"]])}
    except (KeyError, IndexError, UnicodeDecodeError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None


def _read(body: bytes, fields: Mapping[int, Field]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(body):
        field = fields.get(number)
        if field is None:
            continue
        if isinstance(value, int) or not field.message:
            plain = value if isinstance(value, int) else value.decode()
            if plain != "":  # which is how protobuf writes that there is none
                found[field.name] = plain
        elif field.mapped:
            pair = _read(value, field.message)
            found.setdefault(field.name, {})[pair.get("key", "")] = pair.get("value", "")
        else:
            found[field.name] = _read(value, field.message)
    return found


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Go through a message: the number of each field, and what it holds."""
    place = 0
    while place < len(body):
        tag, place = _varint(body, place)
        match tag & 7:
            case 0:
                value, place = _varint(body, place)
                yield tag >> 3, value
            case 2:
                size, place = _varint(body, place)
                if place + size > len(body):
                    raise Unreadable("it ends early")
                yield tag >> 3, body[place : place + size]
                place += size
            case other:
                raise Unreadable(f"wire type {other}")


def _varint(body: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = body[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise Unreadable("a number without an end")

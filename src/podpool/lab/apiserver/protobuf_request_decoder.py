"""Decoder for the few bodies that kubectl sends in protobuf, whatever the server supports, into their JSON form.

A body has a magic prefix and an envelope. Only fields that kubectl sets are decoded; others are skipped.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from podpool.core.errors import PodpoolError

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"


class ProtobufError(PodpoolError):
    """A body that cannot be decoded."""


class ProtobufField(msgspec.Struct, frozen=True):
    """One field of a message: a string, a number, a nested message, or a map of strings."""

    name: str
    message: Mapping[int, "ProtobufField"] | None = None
    mapped: bool = False


_TYPE = {1: ProtobufField("apiVersion"), 2: ProtobufField("kind")}
_PAIR = {1: ProtobufField("key"), 2: ProtobufField("value")}
_META = {
    1: ProtobufField("name"),
    2: ProtobufField("generateName"),
    3: ProtobufField("namespace"),
    11: ProtobufField("labels", _PAIR, mapped=True),
    12: ProtobufField("annotations", _PAIR, mapped=True),
}
_PRECONDITIONS = {1: ProtobufField("uid"), 2: ProtobufField("resourceVersion")}
_MESSAGES: Mapping[str, Mapping[int, ProtobufField]] = {
    "Namespace": {1: ProtobufField("metadata", _META)},
    "ConfigMap": {1: ProtobufField("metadata", _META), 2: ProtobufField("data", _PAIR, mapped=True)},
    "DeleteOptions": {1: ProtobufField("gracePeriodSeconds"), 2: ProtobufField("preconditions", _PRECONDITIONS)},
}


def decode(body: bytes) -> dict[str, Any]:
    """Return the object in a body."""
    try:
        if not body.startswith(MAGIC):
            raise ProtobufError("no magic prefix")
        envelope = {number: value for number, value in _fields(body[len(MAGIC) :]) if isinstance(value, bytes)}
        head = _decode(envelope[1], _TYPE)
        return {**head, **_decode(envelope.get(2, b""), _MESSAGES[head["kind"]])}
    except (KeyError, IndexError, UnicodeDecodeError) as error:
        raise ProtobufError(f"{type(error).__name__}: {error}") from None


def _decode(body: bytes, fields: Mapping[int, ProtobufField]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(body):
        field = fields.get(number)
        if field is None:
            continue
        if isinstance(value, int) or not field.message:
            plain = value if isinstance(value, int) else value.decode()
            if plain != "":  # protobuf's encoding of an absent string
                found[field.name] = plain
        elif field.mapped:
            pair = _decode(value, field.message)
            found.setdefault(field.name, {})[pair.get("key", "")] = pair.get("value", "")
        else:
            found[field.name] = _decode(value, field.message)
    return found


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Iterate over the fields of a message: number and value."""
    offset = 0
    while offset < len(body):
        tag, offset = _varint(body, offset)
        match tag & 7:
            case 0:
                value, offset = _varint(body, offset)
                yield tag >> 3, value
            case 2:
                size, offset = _varint(body, offset)
                if offset + size > len(body):
                    raise ProtobufError("the body is truncated")
                yield tag >> 3, body[offset : offset + size]
                offset += size
            case other:
                raise ProtobufError(f"unsupported wire type {other}")


def _varint(body: bytes, offset: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = body[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value, offset
        if shift > 63:
            raise ProtobufError("a varint is too long")

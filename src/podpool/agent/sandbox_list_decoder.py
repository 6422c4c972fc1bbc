"""Decodes the response to `ListPodSandbox` while it arrives: of each sandbox its ID and Pod UID, and nothing else.

The authors of Pods choose labels and annotations, up to 256 KiB for each Pod, which the response repeats. So they are
skipped, and count against no bound: runtimes write the fields of a sandbox in the order of their numbers, ID and
metadata are the first two, and what follows them is not looked at. Memory is bounded by the number of sandboxes, not by
the response.
"""

import struct
from collections.abc import Generator

from podpool.core.errors import PodpoolError

MAX_SANDBOXES = 20_000
"""Sandboxes of a response; a kubelet runs 110 Pods by default, and keeps few sandboxes of former ones."""
MAX_FIELDS = 50_000
"""Protobuf fields that are looked at: five for each sandbox. The decoder takes some 5 us for each."""
MAX_ID = 255
"""Bytes of the ID of a sandbox, and of a Pod UID."""

_ID = 1
_METADATA, _UID = 2, 2
"""Fields of a sandbox, and of its metadata."""

_PREFIX = struct.Struct("!BI")  # of a gRPC message: compressed or not, length
_MAX_VARINT = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protobuf

_Steps = Generator[int, bytes, None]
"""Asks for so many bytes, or to skip so many if negative, and gets them."""


class BadResponse(PodpoolError):
    """What was received is not the response to the call."""


class SandboxListDecoder:
    """Takes the body of a gRPC response in pieces; raises `BadResponse` once it is not a list of sandboxes."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, str] = {}
        self._left = 0
        """Bytes of the message that were not asked for yet."""
        self._fields = 0
        self._partial = b""
        self._complete = False
        self._steps = self._decode()
        self._needed = next(self._steps)

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        at = 0
        while at < len(data):
            if self._complete:
                raise BadResponse("the response is not one message")
            if self._needed < 0:
                skipped = min(-self._needed, len(data) - at)
                self._needed += skipped
                at += skipped
            else:
                piece = data[at : at + self._needed - len(self._partial)]
                self._partial += piece
                at += len(piece)
            self._advance()

    def sandboxes(self) -> dict[str, str]:
        """Return the Pod UIDs by sandbox ID, after the last piece; a UID is empty if there is none."""
        if not self._complete:
            raise BadResponse("the response is not a complete message")
        return self._sandboxes

    def _advance(self) -> None:
        """Continue while all that is needed has arrived."""
        while not self._complete and (self._needed == 0 or len(self._partial) == self._needed):
            piece, self._partial = self._partial, b""
            try:
                self._needed = self._steps.send(piece)
            except StopIteration:
                self._complete = True

    def _decode(self) -> _Steps:
        compressed, self._left = _PREFIX.unpack((yield _PREFIX.size))
        if compressed:
            raise BadResponse("the message is compressed")
        while self._left:
            number, size = yield from self._field(self._left)
            if number == 1:
                yield from self._sandbox(size)
            else:
                yield from self._skip(size)

    def _sandbox(self, size: int) -> _Steps:
        end, container_id, uid = self._left - size, "", None
        while self._left > end and not (container_id and uid is not None):
            number, length = yield from self._field(self._left - end)
            if number == _ID and container_id:
                raise BadResponse("a sandbox has two IDs")
            if number == _ID:
                container_id = yield from self._identifier(length)
            elif number == _METADATA:
                uid = yield from self._metadata(length)
            else:
                yield from self._skip(length)
                uid = "" if number > _METADATA and container_id else uid
        if not container_id:
            raise BadResponse("a sandbox has no valid ID")
        self._sandboxes[container_id] = uid or ""
        if len(self._sandboxes) > MAX_SANDBOXES:
            raise BadResponse(f"it has more than {MAX_SANDBOXES} sandboxes")
        yield from self._skip(self._left - end)

    def _metadata(self, size: int) -> Generator[int, bytes, str]:
        """Return the Pod UID; empty without one."""
        end, uid = self._left - size, ""
        while self._left > end:
            number, length = yield from self._field(self._left - end)
            if number == _UID and length:
                uid = yield from self._identifier(length)
            else:
                yield from self._skip(length)
        return uid

    def _identifier(self, size: int) -> Generator[int, bytes, str]:
        if not 0 < size <= MAX_ID:
            raise BadResponse(f"a sandbox has an ID or Pod UID of {size} bytes: must be from 1 to {MAX_ID}")
        try:
            return (yield from self._read(size)).decode()
        except UnicodeDecodeError:
            raise BadResponse("a sandbox has an ID or Pod UID that is not UTF-8") from None

    def _field(self, within: int) -> Generator[int, bytes, tuple[int, int]]:
        """Return the number and size of the next field; the number is 0 unless it is a string, bytes or a message."""
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise BadResponse(f"it has more than {MAX_FIELDS} fields")
        end = self._left - within
        tag = yield from self._varint(end)
        wire_type, size = tag & 7, 0
        if wire_type == _VARINT:
            yield from self._varint(end)
        elif wire_type == _BYTES:
            size = yield from self._varint(end)
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            raise BadResponse(f"invalid protobuf: wire type {wire_type}")
        if size > self._left - end:
            raise BadResponse("invalid protobuf: truncated field")
        return (tag >> 3 if wire_type == _BYTES else 0), size

    def _varint(self, end: int) -> Generator[int, bytes, int]:
        value = 0
        for index in range(_MAX_VARINT):
            if self._left <= end:
                break
            (byte,) = yield from self._read(1)
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise BadResponse("invalid protobuf: truncated number")

    def _read(self, size: int) -> Generator[int, bytes, bytes]:
        self._left -= size
        return (yield size)

    def _skip(self, size: int) -> _Steps:
        self._left -= size
        if size:
            yield -size


def decode_sandboxes(message: bytes) -> dict[str, str]:
    """Decode a whole ListPodSandboxResponse (field 1: sandboxes) to Pod UIDs by sandbox ID; raises `BadResponse`."""
    decoder = SandboxListDecoder()
    decoder.feed(_PREFIX.pack(0, len(message)) + message)
    return decoder.sandboxes()

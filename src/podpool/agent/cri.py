"""The Pod sandboxes of the container runtime, by one CRI call: `runtime.v1.RuntimeService/ListPodSandbox`.

Each call has its own connection, so there is no state that a restart of the runtime could make stale. Of gRPC only a
unary call without compression is needed: HTTP/2 is the library h2, and the one field of the response is decoded here.
Nothing that listens on the socket is trusted: bytes, fields and time of a response are bounded, and whatever is not a
complete list is `Unreachable`, never a shorter list.

`runtime.v1` is spoken by containerd from 1.6 and CRI-O from 1.20 on, and is the only version that a kubelet from 1.26
on uses. An older runtime answers with gRPC status 12 (unimplemented).
"""

import asyncio
import struct
from collections.abc import Iterator

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error

from podpool.core.errors import PodpoolError
from podpool.runtime.transport import Unreachable

LIST_POD_SANDBOX = "/runtime.v1.RuntimeService/ListPodSandbox"
TIMEOUT = 5.0
"""Seconds for a call; containerd lists 250 sandboxes in milliseconds."""
MAX_RESPONSE = 8 * 1024 * 1024
"""Bytes of a response with its framing: 1,000 sandboxes of 8 KB; one takes 1 to 2 KB, more with large annotations."""
MAX_FIELDS = 50_000
"""Protobuf fields of a response: 1,000 sandboxes with 40 labels and annotations. The decoder takes 3 us for each."""
MAX_ID = 255

_READ_BYTES = 64 * 1024
_PREFIX = struct.Struct("!BI")  # of a gRPC message: compressed or not, length
_MAX_VARINT = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protobuf


class BadResponse(PodpoolError):
    """What was received is not the response to the call."""


class CRIClient:
    """A container runtime behind its CRI socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    async def list_sandboxes(self) -> frozenset[str]:
        """Return the IDs of all Pod sandboxes, whatever their state; raises `Unreachable`."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return decode_sandbox_ids(await self._call(LIST_POD_SANDBOX))
        except TimeoutError:
            reason = f"no complete response within {TIMEOUT:g} s"
        except OSError as error:
            reason = error.strerror or str(error)
        except H2Error as error:
            reason = f"not an HTTP/2 server: {str(error) or type(error).__name__}"
        except BadResponse as error:
            reason = str(error)
        raise Unreachable(f"the container runtime at {self._socket}", reason)

    async def _call(self, method: str) -> bytes:
        """Return the message of the response."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            call, received = UnaryCall(method), 0
            while not call.ended:
                writer.write(call.bytes_to_send())
                await writer.drain()
                data = await reader.read(_READ_BYTES)
                received += len(data)
                if not data:
                    raise BadResponse("it closed the connection before the response was complete")
                if received > MAX_RESPONSE:
                    raise BadResponse(f"its response is longer than {MAX_RESPONSE} bytes")
                call.receive(data)
            return call.message()
        finally:
            writer.transport.abort()


class UnaryCall:
    """The client side of one gRPC call with an empty request, without I/O."""

    def __init__(self, method: str) -> None:
        self.ended = False
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()
        self._connection = connection = H2Connection(H2Configuration(client_side=True))
        connection.initiate_connection()
        self._stream = connection.get_next_available_stream_id()
        connection.send_headers(
            self._stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", "localhost"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "podpool"),
            ],
        )
        connection.send_data(self._stream, _PREFIX.pack(0, 0), end_stream=True)

    def bytes_to_send(self) -> bytes:
        """Return what the server must receive next; possibly nothing."""
        return self._connection.data_to_send()

    def receive(self, data: bytes) -> None:
        """Process what the server sent; raises `H2Error` or `BadResponse`."""
        for event in self._connection.receive_data(data):
            match event:
                case ResponseReceived(stream_id=self._stream) | TrailersReceived(stream_id=self._stream):
                    self._headers.update(event.headers)
                case DataReceived(stream_id=self._stream):
                    self._body += event.data
                    self._connection.acknowledge_received_data(event.flow_controlled_length, self._stream)
                case StreamEnded(stream_id=self._stream):
                    self.ended = True
                case StreamReset(stream_id=self._stream) | ConnectionTerminated():
                    raise BadResponse(f"it ended the call with HTTP/2 error {event.error_code}")
                case _:
                    pass

    def message(self) -> bytes:
        """Return the message of the complete response; raises `BadResponse`."""
        status, grpc_status = (self._headers.get(each, b"none") for each in (b":status", b"grpc-status"))
        if status != b"200":
            raise BadResponse(f"HTTP status {_text(status)}")
        if grpc_status != b"0":
            reason = _text(self._headers.get(b"grpc-message", b""))
            raise BadResponse(f"gRPC status {_text(grpc_status)}: {reason}")
        if len(self._body) < _PREFIX.size:
            raise BadResponse("the response has no message")
        compressed, size = _PREFIX.unpack_from(self._body)
        if compressed or len(self._body) != _PREFIX.size + size:
            raise BadResponse("the response is compressed, or not one message")
        return bytes(self._body[_PREFIX.size :])


def decode_sandbox_ids(message: bytes) -> frozenset[str]:
    """Decode a ListPodSandboxResponse (field 1: sandboxes, whose field 1 is the ID); raises `BadResponse`."""
    quota = iter(range(MAX_FIELDS))
    return frozenset(_sandbox_id(item, quota) for number, item in _fields(message, quota) if number == 1)


def _sandbox_id(item: bytes, quota: Iterator[int]) -> str:
    ids = [value for number, value in _fields(item, quota) if number == 1]
    if len(ids) != 1 or not 0 < len(ids[0]) <= MAX_ID:
        raise BadResponse("a sandbox has no valid ID")
    try:
        return ids[0].decode()
    except UnicodeDecodeError:
        raise BadResponse("a sandbox has an ID that is not UTF-8") from None


def _fields(message: bytes, quota: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """Iterate over the fields of a protobuf message that are strings, bytes or messages; others are skipped.

    Each field takes one of the quota, which the whole response shares.
    """
    at = 0
    while at < len(message):
        if next(quota, None) is None:
            raise BadResponse(f"it has more than {MAX_FIELDS} fields")
        tag, at = _varint(message, at)
        size, wire_type = 0, tag & 7
        if wire_type == _VARINT:
            _, at = _varint(message, at)
        elif wire_type == _BYTES:
            size, at = _varint(message, at)
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            raise BadResponse(f"invalid protobuf: wire type {wire_type}")
        if size > len(message) - at:
            raise BadResponse("invalid protobuf: truncated field")
        if wire_type == _BYTES:
            yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = 0
    for index, byte in enumerate(message[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise BadResponse("invalid protobuf: truncated number")


def _text(value: bytes) -> str:
    """Return a header as it appears in an error."""
    return value[:200].decode("ascii", "backslashreplace")

"""The Pod sandboxes of the container runtime, by one CRI call: `runtime.v1.RuntimeService/ListPodSandbox`.

Each call has its own connection, so there is no state that a restart of the runtime could make stale. Of gRPC only a
unary call without compression is needed: HTTP/2 is the library h2, and the one field of the response that is needed is
decoded while it arrives (`sandbox_list_decoder`).
Nothing that listens on the socket is trusted: bytes, fields and time of a response are bounded, and whatever is not a
complete list is `Unreachable`, never a shorter list.

`runtime.v1` is spoken by containerd from 1.6 and CRI-O from 1.20 on, and is the only version that a kubelet from 1.26
on uses. An older runtime answers with gRPC status 12 (unimplemented).
"""

import asyncio
import struct
from collections.abc import Mapping
from typing import Protocol

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
from h2.settings import SettingCodes

from podpool.agent.sandbox_list_decoder import BadResponse, SandboxListDecoder
from podpool.runtime.transport import Unreachable

LIST_POD_SANDBOX = "/runtime.v1.RuntimeService/ListPodSandbox"
TIMEOUT = 5.0
"""Seconds for a call. containerd lists 250 sandboxes in milliseconds; 125 MiB take half a second of CPU."""
MAX_RESPONSE = 160 << 20
"""Bytes of a response with its framing: 500 Pods with 256 KiB of annotations, the API server's limit, are 125 MiB.

It is decoded while it arrives, and not kept. containerd sends 16 MiB by default, and CRI-O 80 MiB: beyond that they
answer with an error, also to the kubelet.
"""

_READ_BYTES = 256 << 10
_WINDOW = 4 << 20  # of flow control: the runtime need not wait for each acknowledgement
_PREFIX = struct.Struct("!BI")  # of a gRPC message: compressed or not, length


class BodyDecoder(Protocol):
    """Takes the body of a gRPC response: the message after its prefix."""

    def feed(self, data: bytes) -> None:
        """Take the next piece; raises `BadResponse`."""


class CRIClient:
    """A container runtime behind its CRI socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    async def list_sandboxes(self) -> Mapping[str, str]:
        """Return the Pod UID of each Pod sandbox by its ID, whatever its state; raises `Unreachable`."""
        try:
            async with asyncio.timeout(TIMEOUT):
                decoder = SandboxListDecoder()
                await self._call(LIST_POD_SANDBOX, decoder)
                return decoder.sandboxes()
        except TimeoutError:
            reason = f"no complete response within {TIMEOUT:g} s"
        except OSError as error:
            reason = error.strerror or str(error)
        except H2Error as error:
            reason = f"not an HTTP/2 server: {str(error) or type(error).__name__}"
        except BadResponse as error:
            reason = str(error)
        raise Unreachable(f"the container runtime at {self._socket}", reason)

    async def _call(self, method: str, body: BodyDecoder) -> None:
        """Call a method, and decode its response while it arrives."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            call, received = UnaryCall(method, body), 0
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
            call.require_success()
        finally:
            writer.transport.abort()


class UnaryCall:
    """The client side of one gRPC call with an empty request, without I/O."""

    def __init__(self, method: str, body: BodyDecoder) -> None:
        self.ended = False
        self._headers: dict[bytes, bytes] = {}
        self._body = body
        self._connection = connection = H2Connection(H2Configuration(client_side=True))
        connection.initiate_connection()
        connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW})
        connection.increment_flow_control_window(_WINDOW)
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
                    self._receive_body(event.data)
                    self._connection.acknowledge_received_data(event.flow_controlled_length, self._stream)
                case StreamEnded(stream_id=self._stream):
                    self.ended = True
                case StreamReset(stream_id=self._stream) | ConnectionTerminated():
                    raise BadResponse(f"it ended the call with HTTP/2 error {event.error_code}")
                case _:
                    pass

    def _receive_body(self, data: bytes) -> None:
        if self._headers.get(b":status") == b"200":  # the body of an error is its explanation
            self._body.feed(data)

    def require_success(self) -> None:
        """Raise `BadResponse` if the complete response is an error."""
        status, grpc_status = (self._headers.get(each, b"none") for each in (b":status", b"grpc-status"))
        if status != b"200":
            raise BadResponse(f"HTTP status {_text(status)}")
        if grpc_status != b"0":
            reason = _text(self._headers.get(b"grpc-message", b""))
            raise BadResponse(f"gRPC status {_text(grpc_status)}: {reason}")


def _text(value: bytes) -> str:
    """Return a header as it appears in an error."""
    return value[:200].decode("ascii", "backslashreplace")

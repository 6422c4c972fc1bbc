"""A container runtime's CRI socket in the test: HTTP/2 and gRPC as a real one, with any response."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

Headers = list[tuple[str, str]]
OK: Headers = [(":status", "200"), ("content-type", "application/grpc")]


def field(number: int, value: bytes | int) -> bytes:
    """Encode a protobuf field: bytes, or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Encode a number."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def sandbox(container_id: str, *, uid: str = "uid", annotation: bytes = b"") -> bytes:
    """Encode a sandbox with its ID, metadata, state and creation time."""
    metadata = field(1, b"web-0") + field(2, uid.encode()) + field(3, b"default") + field(4, 1)
    return field(1, container_id.encode()) + field(2, metadata) + field(3, 1) + field(4, 2**62) + field(6, annotation)


def sandbox_list(ids: Iterable[str], *, annotation: bytes = b"") -> bytes:
    """Encode a ListPodSandboxResponse."""
    return b"".join(field(1, sandbox(each, annotation=annotation)) for each in ids)


def framed(message: bytes, *, compressed: bool = False) -> bytes:
    """Return a gRPC message with its prefix."""
    return struct.pack("!BI", compressed, len(message)) + message


class CRIServer:
    """Answers each call with these headers, body and trailers."""

    def __init__(self, *, headers: Headers = OK, body: bytes = framed(b""), grpc_status: str = "0") -> None:
        self.headers = headers
        self.body = body
        self.trailers: Headers = [("grpc-status", grpc_status), ("grpc-message", "as the test wants")]
        self.requests: list[dict[str, str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        pending: dict[int, memoryview] = {}
        while True:
            writer.write(connection.data_to_send())
            await writer.drain()
            data = await reader.read(65536)
            if not data:
                return
            for event in connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.requests.append({name.decode(): value.decode() for name, value in event.headers})
                elif isinstance(event, StreamEnded):
                    connection.send_headers(event.stream_id, self.headers)
                    pending[event.stream_id] = memoryview(self.body)
            for stream in [*pending]:
                if not self._send(connection, stream, pending):
                    connection.send_headers(stream, self.trailers, end_stream=True)

    def _send(self, connection: H2Connection, stream: int, pending: dict[int, memoryview]) -> bool:
        """Send what the client's window admits; return whether more is left."""
        while pending[stream] and (window := connection.local_flow_control_window(stream)):
            size = min(window, connection.max_outbound_frame_size, len(pending[stream]))
            connection.send_data(stream, bytes(pending[stream][:size]))
            pending[stream] = pending[stream][size:]
        if pending[stream]:
            return True
        del pending[stream]
        return False


@asynccontextmanager
async def listening(path: Path, serve: Serve) -> AsyncIterator[str]:
    """Serve connections on a unix socket; yields its path."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):  # the client has seen enough
            await serve(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_unix_server(connected, path)
    try:
        yield str(path)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)

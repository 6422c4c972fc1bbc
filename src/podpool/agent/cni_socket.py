"""The agent's unix socket: for root and the agent's own user, one request per connection.

The socket is renamed into place when it listens with its permissions set. The size of a frame is bounded, and a
connection that has not sent its request and read the response in time is closed. A plugin that disconnects cancels its
request, except a DEL, which is completed. An ADD whose plugin has disconnected is not started.
"""

import asyncio
import os
import select
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from podpool.cni.protocol import HEADER_SIZE, BadFrame, decode_length, encode_frame
from podpool.core.errors import PodpoolError
from podpool.runtime.logging import get_logger
from podpool.runtime.supervision import report_defect

TIMEOUT = 30.0
"""Seconds for which a plugin waits for its response."""
BACKLOG = 512
"""Plugins that may connect at one moment."""

Handle = Callable[[bytes], Awaitable[bytes]]

_UCRED = struct.Struct("iII")  # struct ucred: process, user, group

log = get_logger(__name__)


class PluginConnection(asyncio.Protocol):
    """The connection of one plugin process."""

    def __init__(self, handle: Handle, *, timeout: float, tasks: set[asyncio.Task[None]]) -> None:
        self._handle = handle
        self._timeout = timeout
        self._tasks = tasks
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._command = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept only root and the agent's own user."""
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        user = _peer_user(transport)
        if user not in (0, os.geteuid()):
            log.warning("connection rejected, only root and the agent's own user may connect", uid=user)
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(self._timeout, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Collect the frame; anything after it is ignored."""
        if self._task or not self._transport:
            return
        self._received += data
        try:
            length = decode_length(bytes(self._received[:HEADER_SIZE]))
        except BadFrame as error:
            log.warning("invalid request on the CNI socket, connection closed", error=error)
            self._transport.abort()
            return
        if length is not None and len(self._received) >= HEADER_SIZE + length:
            body = bytes(self._received[HEADER_SIZE : HEADER_SIZE + length])
            self._command = b"".join(body.split(b"\0", 2)[1:2])
            self._task = asyncio.get_running_loop().create_task(self._respond(body))
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's name
        """Cancel the request: its response is not read. A DEL is completed."""
        if self._timer:
            self._timer.cancel()
        if self._task and self._command != b"DEL":
            self._task.cancel()

    async def _respond(self, body: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        try:
            if self._command != b"ADD" or not _has_hung_up(transport):
                transport.write(encode_frame(await self._handle(body)))
        except PodpoolError as error:  # without a response the plugin retries, or defers a DEL
            log.warning("request not answered, the plugin retries an ADD and defers a DEL", error=error)
        except Exception as error:  # noqa: BLE001  the failure of one request must not be lost, nor stop others
            report_defect(log, "request failed unexpectedly, not answered", error)
        finally:
            transport.close()


@asynccontextmanager
async def serve_cni(path: Path, handle: Handle, *, timeout: float = TIMEOUT) -> AsyncIterator[None]:  # noqa: ASYNC109  of each connection
    """Serve plugins on a unix socket."""
    tasks: set[asyncio.Task[None]] = set()
    bound, remove = _bind(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(
        lambda: PluginConnection(handle, timeout=timeout, tasks=tasks), sock=bound, backlog=BACKLOG
    )
    try:
        yield
    finally:
        server.close()
        remove()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _bind(path: Path) -> tuple[socket.socket, Callable[[], None]]:
    """Create the socket; return a function that removes it, unless a successor has replaced it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(temporary))
        temporary.chmod(0o600)
        bound.listen(BACKLOG)
        bound.settimeout(0.0)
        inode = temporary.stat().st_ino
        temporary.rename(path)
    except OSError:
        bound.close()
        raise

    def remove() -> None:
        if path.exists() and path.stat().st_ino == inode:
            path.unlink()

    return bound, remove


def _peer_user(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    _, user, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(user)


def _has_hung_up(transport: asyncio.Transport) -> bool:
    """Return whether the peer has disconnected, also if the event loop has not noticed yet."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)  # without events, only a hang-up or error is reported
    return bool(poll.poll(0))

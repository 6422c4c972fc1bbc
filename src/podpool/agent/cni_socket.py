"""The agent's door: a unix socket, for root and the agent's own account, one request per connection.

The socket appears under its name when it is ready, with its rights, in one step. A frame is bounded, and a connection
that has not sent one or taken its answer in time is cut. A plugin that hangs up ends what was done for it.
"""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from podpool.agent.notices import Tell
from podpool.cni.protocol import HEADER, BadFrame, body_length, framed
from podpool.core.errors import PodpoolError

DEADLINE = 30.0
"""Seconds for which a plugin waits for its answer."""
BACKLOG = 512
"""Sandboxes that may knock at one moment."""

Handle = Callable[[bytes], Awaitable[bytes]]

_PEER = struct.Struct("iII")  # struct ucred: process, user, group


class Connection(asyncio.Protocol):
    """One plugin process."""

    def __init__(self, handle: Handle, *, deadline: float, tell: Tell, tasks: set[asyncio.Task[None]]) -> None:
        self._handle = handle
        self._deadline = deadline
        self._tell = tell
        self._tasks = tasks
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look who it is."""
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        peer = _peer(transport)
        if peer not in (0, os.geteuid()):
            self._tell(f"user {peer} must not talk to this agent: only root and the agent's own account may")
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(self._deadline, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Collect the frame; what comes after it is not looked at."""
        if self._task or not self._transport:
            return
        self._received += data
        try:
            length = body_length(bytes(self._received[:HEADER]))
        except BadFrame as error:
            self._tell(str(error))
            self._transport.abort()
            return
        if length is not None and len(self._received) >= HEADER + length:
            body = bytes(self._received[HEADER : HEADER + length])
            self._task = asyncio.get_running_loop().create_task(self._answer(body))
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's name
        """End what was done for the peer."""
        if self._timer:
            self._timer.cancel()
        if self._task:
            self._task.cancel()

    async def _answer(self, body: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        try:
            transport.write(framed(await self._handle(body)))
        except PodpoolError as error:  # without an answer the plugin asks again, or a DEL is left for later
            self._tell(f"a request stays without an answer: {error}")
        finally:
            transport.close()


@asynccontextmanager
async def listening(path: Path, handle: Handle, *, tell: Tell, deadline: float = DEADLINE) -> AsyncIterator[None]:
    """Answer on a unix socket."""
    tasks: set[asyncio.Task[None]] = set()
    bound, remove = _bind(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(
        lambda: Connection(handle, deadline=deadline, tell=tell, tasks=tasks), sock=bound, backlog=BACKLOG
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
    """Make the socket; gives what removes it again, unless a successor has put its own in its place."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(beside))
        beside.chmod(0o600)
        bound.listen(BACKLOG)
        bound.settimeout(0.0)
        inode = beside.stat().st_ino
        beside.rename(path)
    except OSError:
        bound.close()
        raise

    def remove() -> None:
        if path.exists() and path.stat().st_ino == inode:
            path.unlink()

    return bound, remove


def _peer(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(user)

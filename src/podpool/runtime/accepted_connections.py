"""Accepted HTTP connections, and the limits on what a client may leave unfinished.

A client that stops in the middle costs a connection for a limited time only: while it sends a request head or a body,
between two requests, and while it does not read a response. When the limit of connections is reached, the one that has
waited longest for a request is closed: first one that has never sent a request, so that idle connections of strangers
keep no caller out.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import msgspec
from aiohttp import HttpVersion11, web

from podpool.runtime.transport import BodyTimeout, BodyTooLarge

if TYPE_CHECKING:
    import logging

_TCP_USER_TIMEOUT_MS = 30_000
"""Milliseconds for which sent data may stay unacknowledged: two heartbeats of a stream."""
_LINGERING_TIME = 1.0
"""Seconds in which the rest of a rejected body is read and discarded, so that the client sees the response."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may use of a server. Times in seconds."""

    connections: int = 10_000
    head_timeout: float = 10.0
    """Until the head of a request is complete, from the connection or the first byte."""
    idle_timeout: float = 75.0
    """Between two requests; longer than clients and proxies keep an idle connection."""
    body_timeout: float = 10.0
    """Until a body is complete, in addition to its size divided by `min_rate`."""
    write_timeout: float = 30.0
    """Until a piece of a response is accepted, in addition to its size divided by `min_rate`."""
    min_rate: float = 64 * 1024.0
    """Bytes per second."""


class Connections:
    """The connections of one server."""

    def __init__(self, server: web.Server, limits: ServerLimits) -> None:
        self.limits = limits
        self._server = server
        self._new: dict[HttpConnection, None] = {}
        self._idle: dict[HttpConnection, None] = {}
        """Those that wait for a request, the longest waiting first; new ones have sent none yet."""

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        if len(self._server.connections) >= self.limits.connections and not self._close_waiting():
            return _RejectedConnection()
        return HttpConnection(self._server, self)

    def wait(self, connection: "HttpConnection", *, new: bool) -> None:
        """Add a connection that waits for a request."""
        (self._new if new else self._idle)[connection] = None

    def remove(self, connection: "HttpConnection") -> None:
        """Remove a connection that waits no more."""
        self._new.pop(connection, None)
        self._idle.pop(connection, None)

    def _close_waiting(self) -> bool:
        """Close the connection that has waited longest; returns False if there is none."""
        for waiting in (self._new, self._idle):
            for connection in waiting:
                connection.abort()
                return True
        return False


class HttpConnection(web.RequestHandler):
    """One connection, with a timer while it waits for the head of a request."""

    def __init__(self, server: web.Server, connections: Connections) -> None:
        loop = asyncio.get_running_loop()
        no_log = cast("logging.Logger", None)  # as `AppRunner` passes it
        super().__init__(server, loop=loop, access_log=no_log, lingering_time=_LINGERING_TIME)
        self._connections = connections
        self._limits = connections.limits
        self._timer: asyncio.TimerHandle | None = None
        self._between_requests = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        _limit_unacknowledged(transport)
        self._start_timer(self._limits.head_timeout)
        self._connections.wait(self, new=True)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Expect the rest of a head soon after its beginning."""
        if self._between_requests:
            self._between_requests = False
            self._start_timer(self._limits.head_timeout)
        super().data_received(data)

    def begin_request(self) -> None:
        """Stop waiting: the head of a request is complete."""
        self._between_requests = False
        self._stop_timer()

    def end_request(self) -> None:
        """Wait for the next request."""
        if self.transport is not None:
            self._between_requests = True
            self._start_timer(self._limits.idle_timeout)
            self._connections.wait(self, new=False)

    def abort(self) -> None:
        """Close the connection without sending what is buffered."""
        self._stop_timer()
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def _start_timer(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _stop_timer(self) -> None:
        self._connections.remove(self)
        if self._timer:
            self._timer.cancel()
            self._timer = None


class _RejectedConnection(asyncio.Protocol):
    """Aborts a connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


async def continue_later(_: web.Request) -> None:
    """Answer no `Expect: 100-continue` yet: `read_body` does, once the body is read."""


async def read_body(incoming: web.Request, limits: ServerLimits, max_bytes: int) -> bytes:
    """Read a body; raises `BodyTooLarge`, before reading if the head announces it, and `BodyTimeout`."""
    if (incoming.content_length or 0) > max_bytes:
        raise BodyTooLarge(max_bytes)
    if incoming.headers.get("expect", "").lower() == "100-continue" and incoming.version == HttpVersion11:
        await incoming.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        incoming.writer.output_size = 0
    chunks, size = [], 0
    begun = asyncio.get_running_loop().time() + limits.body_timeout
    try:
        async with asyncio.timeout_at(begun) as timeout:
            async for chunk in incoming.content.iter_any():
                chunks.append(chunk)
                size += len(chunk)
                if size > max_bytes:
                    raise BodyTooLarge(max_bytes)
                timeout.reschedule(begun + size / limits.min_rate)
    except TimeoutError:
        raise BodyTimeout(size) from None
    return b"".join(chunks)


async def write_within(
    write: Callable[[bytes], Awaitable[None]], data: bytes, incoming: web.Request, limits: ServerLimits
) -> None:
    """Write a piece of a response; a client that does not read it loses its connection."""
    try:
        async with asyncio.timeout(limits.write_timeout + len(data) / limits.min_rate):
            await write(data)
    except TimeoutError:
        cast("HttpConnection", incoming.protocol).abort()
        raise ConnectionResetError("the client does not read the response") from None


def _limit_unacknowledged(transport: asyncio.BaseTransport) -> None:
    """End a connection whose other end has disappeared."""
    accepted = transport.get_extra_info("socket")
    if accepted is not None and accepted.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # not supported here: the kernel's own limit applies
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)

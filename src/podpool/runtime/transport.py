"""Transport between two processes: a request, and a response with a streamed body.

A client uses a `Transport`, a service is a `Handler`. On a node HTTP connects them, in the simulator a network that
delays, drops, repeats and cuts messages.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from podpool.core.errors import PodpoolError


class Unreachable(PodpoolError):
    """The server did not answer, or the response broke off: it is unknown whether the request took effect."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer} cannot be reached: {reason}")
        self.peer = peer
        self.reason = reason


class BodyTooLarge(PodpoolError):
    """The body of a request exceeds the limit of its receiver."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the body of the request has more than {max_bytes} bytes")
        self.max_bytes = max_bytes


class BodyTimeout(PodpoolError):
    """The body of a request was not sent in time."""

    def __init__(self, received: int) -> None:
        super().__init__(f"the body of the request is too slow: {received} bytes were received")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    receive: Callable[[int], Awaitable[bytes]] | None = None
    """Reads the body, at most so many bytes, if it has not been read yet; see `with_body`."""


async def with_body(request: Request, *, max_bytes: int) -> Request:
    """Return a request with its body; raises `BodyTooLarge` and `BodyTimeout`.

    A server may call its handler with the head alone, so that it decides first who may send a body, and how large.
    """
    if request.receive is not None:
        return msgspec.structs.replace(request, body=await request.receive(max_bytes), receive=None)
    if len(request.body) > max_bytes:
        raise BodyTooLarge(max_bytes)
    return request


class Response:
    """A response. Its body is a stream of chunks, possibly long; the receiver closes it."""

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        stream: AsyncIterator[bytes] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers or {}
        self.stream = stream if stream is not None else _once(body)
        self._close = close

    async def read(self) -> bytes:
        """Return the whole body, and close."""
        try:
            return b"".join([chunk async for chunk in self.stream])
        finally:
            await self.close()

    async def close(self) -> None:
        """Release the connection; further calls have no effect."""
        close, self._close = self._close, None
        if close:
            await close()


class Transport(Protocol):
    """The client side of a connection to one service."""

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of the response; raises `Unreachable`."""


Handler = Callable[[Request], Coroutine[Any, Any, Response]]
"""A service: returns the response to a request."""


async def _once(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body

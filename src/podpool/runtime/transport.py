"""The one seam between two processes: a request goes out, a status and a stream of bytes come back.

A client is written against `Transport`, a service is a `Handler`. On a node HTTP lies between the two; in the simulator
a network that delays, drops, repeats and cuts. Everything above is the same code.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from podpool.core.errors import PodpoolError


class Unreachable(PodpoolError):
    """The other side did not answer, or stopped in the middle: whether it acted is not known."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer} cannot be reached: {reason}")
        self.peer = peer
        self.reason = reason


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Response:
    """What is answered: the body comes in pieces, perhaps for a long time. Whoever takes it closes it."""

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
        """Take all of the body, and close."""
        try:
            return b"".join([piece async for piece in self.stream])
        finally:
            await self.close()

    async def close(self) -> None:
        """Let go of the connection; once is enough, twice does no harm."""
        close, self._close = self._close, None
        if close:
            await close()


class Transport(Protocol):
    """The road to one service."""

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of the answer; raises `Unreachable`."""


Handler = Callable[[Request], Coroutine[Any, Any, Response]]
"""A service: the other end of the road."""


async def _once(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body

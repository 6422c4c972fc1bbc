"""A transport that records requests and can change them, answer them, cut streams and hang."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from podpool.runtime.transport import Request, Response, Transport, Unreachable


async def no_delay(_: Request) -> None:
    """Delay nothing."""


class DisturbableTransport:
    """A transport around another."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.sent: list[Request] = []
        self.before: Callable[[Request], Awaitable[None]] = no_delay
        """Called before a request is forwarded."""
        self.change: Callable[[Request], Request] = lambda request: request
        self.answer: Callable[[Request], Response | None] = lambda _: None
        """Returns a response instead of the server's, or None."""
        self.hangs = False
        self._cuts: list[asyncio.Event] = []
        self._opened = asyncio.Event()

    async def send(self, request: Request) -> Response:
        self.sent.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        await self.before(request)
        response = self.answer(request) or await self.inner.send(self.change(request))
        if request.query.get("watch"):
            cut = asyncio.Event()
            self._cuts.append(cut)
            self._opened.set()
            return Response(
                response.status, headers=response.headers, stream=_until(response.stream, cut), close=response.close
            )
        return response

    async def cut(self) -> None:
        """Break all watches, as soon as there is one."""
        await self._opened.wait()
        self._opened.clear()
        for cut in self._cuts:
            cut.set()
        self._cuts.clear()

    async def reopened(self) -> None:
        """Wait for the next watch."""
        self._opened.clear()
        await self._opened.wait()

    @property
    def watched(self) -> list[str]:
        """The resourceVersions from which watches were requested."""
        return [each.query["resourceVersion"] for each in self.sent if each.query.get("watch")]

    @property
    def listed(self) -> list[str]:
        """The resourceVersions of lists; empty for a quorum read."""
        whole = [each for each in self.sent if each.method == "GET" and "limit" in each.query]
        return [each.query.get("resourceVersion", "") for each in whole]


async def _until(stream: AsyncIterator[bytes], cut: asyncio.Event) -> AsyncIterator[bytes]:
    chunks, cutting = aiter(stream), asyncio.ensure_future(cut.wait())
    try:
        while True:
            reading = asyncio.ensure_future(anext(chunks, None))
            try:
                await asyncio.wait([reading, cutting], return_when=asyncio.FIRST_COMPLETED)
            finally:
                reading.cancel()  # no effect if done
                await asyncio.wait([reading])
            if cutting.done():
                raise Unreachable("the server", "the connection was cut")
            if (chunk := reading.result()) is None:
                return
            yield chunk
    finally:
        cutting.cancel()

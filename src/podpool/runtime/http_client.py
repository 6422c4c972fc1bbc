"""HTTP client: a transport to one server, on aiohttp."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from weakref import WeakSet

import aiohttp
from yarl import URL

from podpool.core.errors import InvalidInput
from podpool.runtime.transport import Request, Response, Unreachable

CLOSE_ITERATIONS = 100
"""Loop iterations in which a connection that is shut down gets closed; it takes three."""

Headers = Callable[[], Mapping[str, str]]
"""Returns the headers of a request; called for each, because a token may have been renewed."""


class HttpTransport:
    """Transport to one HTTP server; connections are pooled."""

    def __init__(
        self,
        base: str,
        *,
        tls: ssl.SSLContext | None = None,
        headers: Headers = dict,
        proxy: str | None = None,
        server_name: str | None = None,
        connections: int = 32,
        connect_timeout: float = 10.0,
    ) -> None:
        self.base = _address(base)
        self._peer = str(self.base.with_user(None))  # for errors, which are logged
        self._headers = headers
        self._proxy = proxy
        self._server_name = server_name
        self._connections = connections
        self._tls = tls
        # no total timeout: a watch is long, and callers set their own timeouts
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self._session: aiohttp.ClientSession | None = None
        self._sockets = WeakSet[socket.socket]()

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of the response."""
        url = (self.base / request.path.removeprefix("/")).with_query(dict(request.query))
        try:
            answer = await self._opened().request(
                request.method,
                url,
                data=request.body or None,
                headers={**self._headers(), **request.headers},
                proxy=self._proxy,
                server_hostname=self._server_name,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(self._peer, str(error) or type(error).__name__) from error
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status, headers=headers, stream=self._chunks(answer), close=_closer(answer))

    async def close(self) -> None:
        """Close every connection, also those of cancelled requests, which over TLS still send close_notify."""
        if self._session:
            await self._session.close()
            self._session = None
        for each in tuple(self._sockets):
            with suppress(OSError):  # already closed
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(CLOSE_ITERATIONS):
            if any(each.fileno() >= 0 for each in self._sockets):
                await asyncio.sleep(0)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:  # a session belongs to the loop in which it is created
            connector = aiohttp.TCPConnector(
                limit=self._connections, ssl=self._tls or True, socket_factory=self._new_socket
            )
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=self._timeout, auto_decompress=True, read_bufsize=256 * 1024
            )
        return self._session

    def _new_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = info
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(self._peer, str(error) or type(error).__name__) from error


def _address(text: str) -> URL:
    """Parse the address of a server; behind a gateway it may have a path."""
    try:
        address = URL(text)
    except ValueError:
        address = URL()
    if address.scheme not in {"http", "https"} or not address.host:
        raise InvalidInput("server", text, "not a server address: write it as http://HOST:PORT or https://HOST")
    return address


def _closer(answer: aiohttp.ClientResponse) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        # the connection of a fully read body is reusable, of any other it is not
        if answer.content.at_eof():
            answer.release()
        else:
            answer.close()

    return close

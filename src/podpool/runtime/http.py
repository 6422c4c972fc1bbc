"""HTTP client transport and server on aiohttp, which only this module and `http_connection` import."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import cast
from weakref import WeakSet

import aiohttp
from aiohttp import web
from yarl import URL

from podpool.core.errors import InvalidInput, PodpoolError
from podpool.runtime.http_connection import (
    Connections,
    HttpConnection,
    ServerLimits,
    continue_later,
    read_body,
    write_within,
)
from podpool.runtime.transport import (
    BodyTimeout,
    BodyTooLarge,
    Handler,
    Request,
    Response,
    Unreachable,
    with_body,
)

MAX_BODY_BYTES = 64 * 1024 * 1024
"""An inventory of 5,000 nodes is about a third of it."""

CLOSE_ITERATIONS = 100
"""Loop iterations in which a connection that is shut down gets closed; it takes three."""

Headers = Callable[[], Mapping[str, str]]
"""Returns the headers of a request; called for each, because a token may have been renewed."""


class ListenError(PodpoolError):
    """A server cannot listen on its address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: {reason}; choose another port, or stop the process that uses it"
        )


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


@asynccontextmanager
async def serving(
    handler: Handler,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    grace: float = 1.0,
    limits: ServerLimits | None = None,
    read_bodies: bool = True,
) -> AsyncIterator[int]:
    """Serve a handler; yields the port, which the system chooses if `port` is 0.

    Without `read_bodies` the handler is called when the head of a request has arrived, and reads the body itself
    (`with_body`). At the end no connection is accepted, and running requests have `grace` seconds to finish.
    """
    limits = limits or ServerLimits()
    app = web.Application()
    answer = partial(_answer, _with_whole_body(handler) if read_bodies else handler, limits)
    app.router.add_route("*", r"/{path:[\s\S]*}", answer, expect_handler=continue_later)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=grace)
    await runner.setup()
    try:
        connections = Connections(cast("web.Server", runner.server), limits)
        listening = await _listen(connections, host, port, tls)
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            listening.close()
    finally:
        await runner.cleanup()


async def _listen(connections: Connections, host: str, port: int, tls: ssl.SSLContext | None) -> asyncio.Server:
    handshake = connections.limits.head_timeout if tls else None
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(
            connections.accept, host, port, ssl=tls, ssl_handshake_timeout=handshake, reuse_address=True
        )
    except OSError as error:
        raise ListenError(host, port, error.strerror or str(error)) from None


def _with_whole_body(handler: Handler) -> Handler:
    """Return a handler that is called once the body has arrived."""

    async def answer(request: Request) -> Response:
        try:
            request = await with_body(request, max_bytes=MAX_BODY_BYTES)
        except BodyTooLarge as error:
            return Response(413, f"{error}\n".encode())
        except BodyTimeout as error:
            return Response(408, f"{error}\n".encode())
        return await handler(request)

    return answer


async def _answer(handler: Handler, limits: ServerLimits, incoming: web.Request) -> web.StreamResponse:
    connection = cast("HttpConnection", incoming.protocol)
    connection.begin_request()
    try:
        headers = {name.lower(): value for name, value in incoming.headers.items()}
        request = Request(
            method=incoming.method,
            path=incoming.path,
            query=dict(incoming.query),
            headers=headers,
            receive=partial(read_body, incoming, limits) if incoming.body_exists else None,
        )
        return await _reply(incoming, limits, await handler(request))
    finally:
        connection.end_request()


async def _reply(incoming: web.Request, limits: ServerLimits, response: Response) -> web.StreamResponse:
    try:
        reply = web.StreamResponse(status=response.status, headers=dict(response.headers))
        await reply.prepare(incoming)
        async for chunk in response.stream:
            await write_within(reply.write, chunk, incoming, limits)
        await write_within(reply.write_eof, b"", incoming, limits)
    finally:
        await response.close()
    return reply

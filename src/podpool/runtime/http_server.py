"""HTTP server: serves a handler on an address, on aiohttp."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

from aiohttp import web

from podpool.core.errors import PodpoolError
from podpool.runtime.accepted_connections import (
    Connections,
    HttpConnection,
    ServerLimits,
    continue_later,
    read_body,
    write_within,
)
from podpool.runtime.transport import BodyTimeout, BodyTooLarge, Handler, Request, Response, with_body

MAX_BODY_BYTES = 64 * 1024 * 1024
"""An inventory of 5,000 nodes is about a third of it."""


class ListenError(PodpoolError):
    """A server cannot listen on its address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: {reason}; choose another port, or stop the process that uses it"
        )


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

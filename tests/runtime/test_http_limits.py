"""What a client leaves unfinished ends after a time: heads, bodies, idle connections, responses that are not read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from podpool.runtime.accepted_connections import ServerLimits
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.transport import BodyTooLarge, Handler, Request, Response, with_body

SHORT = ServerLimits(head_timeout=0.1, idle_timeout=0.2, body_timeout=0.1, write_timeout=0.1, min_rate=1e6)
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n"


async def echo(request: Request) -> Response:
    return Response(200, request.body)


async def endless(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield bytes(65_536)

    return Response(200, stream=pieces())


def on_server(
    handler: Handler,
    exchange: Callable[[int], Coroutine[Any, Any, bytes]],
    *,
    limits: ServerLimits = SHORT,
    read_bodies: bool = True,
) -> bytes:
    """Run an exchange with the port of a server; every wait ends."""

    async def run() -> bytes:
        async with (
            serving(handler, host="127.0.0.1", port=0, limits=limits, read_bodies=read_bodies) as port,
            asyncio.timeout(10),
        ):
            return await exchange(port)

    return asyncio.run(run())


async def send(port: int, *parts: bytes) -> bytes:
    """Send parts of a request; returns what comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    try:
        return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("head", [b"", b"POST", POST, b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_head_that_is_not_completed_ends_the_connection(head: bytes) -> None:
    assert on_server(echo, lambda port: send(port, head)) in (b"", b"reset")


def test_head_cannot_be_kept_alive_byte_by_byte() -> None:
    async def trickle(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        received = asyncio.ensure_future(reader.read())
        while not received.done():
            writer.write(b"x")
            await asyncio.wait([received], timeout=0.01)
        writer.transport.abort()
        return b"closed"

    assert b"closed" == on_server(echo, trickle)


def test_body_that_is_not_completed_gets_408() -> None:
    assert b" 408 " in on_server(echo, lambda port: send(port, POST, b"\r\n", b"half")).split(b"\r\n")[0]


def test_idle_connection_is_closed_after_its_requests() -> None:
    answered = on_server(echo, lambda port: send(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"))
    assert 1 == answered.count(b" 200 ")


def test_second_head_that_is_not_completed_ends_the_connection() -> None:
    limits = ServerLimits(head_timeout=0.1, idle_timeout=3600.0)
    parts = (b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HT",)

    async def halves(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(parts[0][-8:])
        head += await reader.read()
        writer.transport.abort()
        return head

    assert 1 == on_server(echo, halves, limits=limits).count(b" 200 ")


def test_response_that_is_not_read_ends() -> None:
    """The handler's stream is closed, so it holds nothing for a client that has gone."""
    ended = asyncio.Event()

    async def handler(request: Request) -> Response:
        answer = await endless(request)

        async def close() -> None:
            ended.set()

        return Response(200, stream=answer.stream, close=close)

    async def stall(port: int) -> bytes:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await ended.wait()
        writer.transport.abort()
        return b"ended"

    assert b"ended" == on_server(handler, stall)


@pytest.mark.parametrize("busy", [False, True])
def test_connection_that_never_sent_a_request_is_closed_first(busy: bool) -> None:
    """Strangers who only connect keep nobody out, and no connection with requests is closed for them."""
    limits = ServerLimits(connections=3, head_timeout=3600.0)

    async def crowd(port: int) -> bytes:
        known = HttpTransport(f"http://127.0.0.1:{port}", connections=1)
        if busy:
            await (await known.send(Request(method="GET", path="/"))).read()
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        body = await (await known.send(Request(method="POST", path="/", body=b"served"))).read()
        closed = [await reader.read() for reader, _ in strangers[:7]]
        assert {b""} == set(closed)
        await known.close()
        for _, writer in strangers:
            writer.transport.abort()
        return body

    assert b"served" == on_server(echo, crowd, limits=limits)


def test_handler_decides_before_the_body_is_read() -> None:
    async def refuse(_: Request) -> Response:
        return Response(401, b"no")

    answered = on_server(refuse, lambda port: send(port, POST, b"expect: 100-continue\r\n\r\n"), read_bodies=False)
    assert answered.startswith(b"HTTP/1.1 401 ")
    assert b"100 Continue" not in answered


def test_handler_that_wants_the_body_gets_it_after_100_continue() -> None:
    async def accept(request: Request) -> Response:
        return Response(200, (await with_body(request, max_bytes=1000)).body)

    async def polite(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST + b"expect: 100-continue\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * 100)
        answer = await reader.readuntil(b"x" * 100)
        writer.transport.abort()
        return head + answer

    answered = on_server(accept, polite, read_bodies=False)
    assert answered.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")


@pytest.mark.parametrize("announced", [b"content-length: 100000\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n"])
def test_body_over_the_limit_is_not_read(announced: bytes) -> None:
    sizes: list[int] = []

    async def limited(request: Request) -> Response:
        try:
            sizes.append(len((await with_body(request, max_bytes=10)).body))
        except BodyTooLarge as error:
            return Response(413, str(error).encode())
        return Response(200)

    head = b"POST / HTTP/1.1\r\nhost: x\r\n" + announced
    answered = on_server(limited, lambda port: send(port, head, b"20\r\n" + b"x" * 32 + b"\r\n"), read_bodies=False)
    assert (b" 413 " in answered.split(b"\r\n")[0], []) == (True, sizes)

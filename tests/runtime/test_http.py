"""HTTP under the seam: what a handler answers is what a transport gets."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from podpool.runtime.http import HttpTransport, serving
from podpool.runtime.transport import Request, Response, Unreachable


async def echo(request: Request) -> Response:
    told = f"{request.method} {request.path} {dict(request.query)} {request.headers['x-test']} {request.body.decode()}"
    return Response(201, told.encode(), headers={"x-answer": "yes"})


async def endless(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(1_000_000):
            yield f"{number}\n".encode()
            await asyncio.sleep(0)

    return Response(200, stream=pieces())


async def broken(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"begun"
        raise ConnectionResetError

    return Response(200, stream=pieces())


def test_a_request_arrives_as_it_was_sent() -> None:
    async def exchange() -> tuple[int, str, str]:
        async with serving(echo, host="127.0.0.1", port=0) as port:
            transport = HttpTransport(f"http://127.0.0.1:{port}/behind", headers=lambda: {"x-test": "ours"})
            answer = await transport.send(
                Request(method="PATCH", path="/a/b c", query={"watch": "true", "q": "a=b&c"}, body=b"{}")
            )
            body = await answer.read()
            await transport.close()
            return answer.status, answer.headers["x-answer"], body.decode()

    status, header, body = asyncio.run(exchange())
    assert (201, "yes") == (status, header)
    assert "PATCH /behind/a/b c {'watch': 'true', 'q': 'a=b&c'} ours {}" == body


def test_a_stream_comes_in_pieces_and_can_be_left() -> None:
    async def first_piece() -> bytes:
        async with serving(endless, host="127.0.0.1", port=0) as port:
            transport = HttpTransport(f"http://127.0.0.1:{port}")
            answer = await transport.send(Request(method="GET", path="/"))
            piece = await anext(aiter(answer.stream))
            await answer.close()
            await answer.close()
            await transport.close()
            return piece

    assert asyncio.run(first_piece()).startswith(b"0\n")


def test_a_server_that_is_not_there_is_unreachable() -> None:
    async def call() -> None:
        async with serving(echo, host="127.0.0.1", port=0) as port:
            pass
        transport = HttpTransport(f"http://127.0.0.1:{port}")
        try:
            await transport.send(Request(method="GET", path="/"))
        finally:
            await transport.close()

    with pytest.raises(Unreachable, match="127.0.0.1"):
        asyncio.run(call())


def test_a_stream_that_breaks_off_is_unreachable_not_ended() -> None:
    async def call() -> None:
        async with serving(broken, host="127.0.0.1", port=0) as port:
            transport = HttpTransport(f"http://127.0.0.1:{port}")
            try:
                await (await transport.send(Request(method="GET", path="/"))).read()
            finally:
                await transport.close()

    with pytest.raises(Unreachable):
        asyncio.run(call())

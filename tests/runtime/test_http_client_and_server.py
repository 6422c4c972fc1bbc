"""HTTP under the seam: what a handler answers is what a transport gets."""

import asyncio
import gc
import ssl
import threading
import warnings
from collections.abc import AsyncIterator
from typing import cast

import pytest
import trustme

from podpool.core.errors import InvalidInput
from podpool.runtime.accepted_connections import ServerLimits
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Request, Response, Unreachable


async def echo(request: Request) -> Response:
    text = f"{request.method} {request.path} {dict(request.query)} {request.headers['x-test']} {request.body.decode()}"
    return Response(201, text.encode(), headers={"x-answer": "yes"})


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


@pytest.mark.parametrize("text", ["", "nonsense", "127.0.0.1:7780", "ftp://host", "http://", "http://[::1"])
def test_what_is_no_address_of_a_server_is_refused_before_anything_is_sent(text: str) -> None:
    with pytest.raises(InvalidInput, match="write it as http://HOST:PORT"):
        HttpTransport(text)


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


def test_any_path_reaches_the_handler() -> None:
    async def exchange() -> str:
        async with serving(echo, host="127.0.0.1", port=0) as port:
            transport = HttpTransport(f"http://127.0.0.1:{port}", headers=lambda: {"x-test": "ours"})
            answer = await transport.send(Request(method="GET", path="/a\nb/ü"))
            text = (await answer.read()).decode()
            await transport.close()
            return text

    assert asyncio.run(exchange()).startswith("GET /a\nb/ü ")


def test_what_was_begun_is_finished_before_a_server_ends() -> None:
    async def exchange() -> int:
        begun, going_on = asyncio.Event(), asyncio.Event()

        async def slow(_: Request) -> Response:
            begun.set()
            await going_on.wait()
            return Response(200)

        transport: HttpTransport | None = None
        async with serving(slow, host="127.0.0.1", port=0, grace=60.0) as port:
            transport = HttpTransport(f"http://127.0.0.1:{port}")
            sending = asyncio.create_task(transport.send(Request(method="GET", path="/")))
            await begun.wait()
            asyncio.get_running_loop().call_later(0.05, going_on.set)  # after the server has begun to end
        answer = await sending
        await answer.read()
        await transport.close()
        return answer.status

    assert 200 == asyncio.run(exchange())


def test_one_connection_too_many_is_closed_and_the_others_go_on() -> None:
    async def exchange() -> list[int]:
        async with serving(endless, host="127.0.0.1", port=0, limits=ServerLimits(connections=1)) as port:
            first, second = (HttpTransport(f"http://127.0.0.1:{port}") for _ in range(2))
            held = await first.send(Request(method="GET", path="/"))
            with pytest.raises(Unreachable):
                await second.send(Request(method="GET", path="/"))
            await held.close()
            for transport in (first, second):
                await transport.close()
            return [held.status]

    assert [200] == asyncio.run(exchange())


def test_what_was_given_up_over_tls_does_not_outlive_its_loop() -> None:
    """A close_notify that the other side does not read would leave the connection open, with a warning."""
    authority = trustme.CA()
    theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)
    asked, over = threading.Event(), asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        cast("asyncio.Transport", writer.transport).pause_reading()  # it does not read close_notify
        await over.wait()
        writer.transport.abort()

    async def give_up(port: int) -> None:
        transport = HttpTransport(f"https://127.0.0.1:{port}", tls=ours)
        asking = asyncio.ensure_future(transport.send(Request(method="GET", path="/")))
        await asyncio.to_thread(asked.wait)
        asking.cancel()
        await asyncio.wait([asking])
        await transport.close()

    def ask(port: int) -> list[warnings.WarningMessage]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            asyncio.run(give_up(port))
            gc.collect()
        return [each for each in seen if each.category is ResourceWarning]

    async def main() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0, ssl=theirs)
        async with server:
            assert [] == await asyncio.to_thread(ask, server.sockets[0].getsockname()[1])
            over.set()

    asyncio.run(main())

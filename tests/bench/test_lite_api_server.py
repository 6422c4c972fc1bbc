"""What measures pocket is answered by pocket, and a watch that is refused ends it with a sentence."""

import asyncio

import pytest

from bench.lite_api_server import Count, Listener, lite_api_fanout, lite_api_writes


def test_writes_and_watches_are_counted() -> None:
    with lite_api_writes(32) as run:
        assert run(0) > 0
    with lite_api_fanout(3, 2) as run:
        assert run(0) > 0


def test_a_watch_that_is_refused_is_not_waited_for() -> None:
    async def refused() -> None:
        listener = Listener("1", Count(1))
        listener.data_received(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        await listener.begun

    with pytest.raises(RuntimeError, match="a watch is refused: b'HTTP/1.1 403"):
        asyncio.run(refused())

"""The benchmark of the lite API server measures, and fails when a watch is rejected."""

import asyncio

import pytest

from bench.lite_api_server import EventCounter, WatchClient, lite_api_fanout, lite_api_writes


@pytest.mark.integration
def test_writes_and_watches_are_counted() -> None:
    with lite_api_writes(32) as run:
        assert run(0) > 0
    with lite_api_fanout(3, 2) as run:
        assert run(0) > 0


def test_a_rejected_watch_fails() -> None:
    async def run() -> None:
        client = WatchClient("1", EventCounter(1))
        client.data_received(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        await client.started

    with pytest.raises(RuntimeError, match="a watch was rejected: b'HTTP/1.1 403"):
        asyncio.run(run())

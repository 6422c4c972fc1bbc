"""The agent's socket: permissions, frames and timeouts."""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from podpool.agent import cni_socket
from podpool.agent.agent import AgentStopped
from podpool.agent.cni_socket import serve_cni
from podpool.cni.protocol import MAX_BODY, PluginRequest, decode_request, encode_frame, encode_request


async def echo(body: bytes) -> bytes:
    return b"\0" + body


async def exchange(path: Path, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(sent)
        await writer.drain()
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def serve_echo(tmp_path: Path, test: Callable[[Path], Awaitable[None]], *, timeout: float = 30.0) -> None:
    async def run() -> None:
        path = tmp_path / "run" / "agent.sock"
        async with asyncio.timeout(30), serve_cni(path, echo, timeout=timeout):
            await test(path)
        assert not path.exists()

    asyncio.run(run())


def test_a_frame_is_answered_with_a_frame(tmp_path: Path) -> None:
    async def test(path: Path) -> None:
        assert encode_frame(b"\0hello") == await exchange(path, encode_frame(b"hello"))

    serve_echo(tmp_path, test)


def test_a_frame_may_come_in_pieces_and_many_at_once(tmp_path: Path) -> None:
    async def slowly(path: Path) -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        for byte in encode_frame(b"hello"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        return answer

    async def test(path: Path) -> None:
        answers = await asyncio.gather(*(slowly(path) for _ in range(50)))
        assert {encode_frame(b"\0hello")} == set(answers)

    serve_echo(tmp_path, test)


def test_only_its_owner_may_connect(tmp_path: Path) -> None:
    async def test(path: Path) -> None:
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)  # noqa: ASYNC240  a local file

    serve_echo(tmp_path, test)


def test_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cni_socket, "_peer_user", lambda _transport: 12345)

    async def test(path: Path) -> None:
        assert b"" == await exchange(path, encode_frame(b"hello"))

    serve_echo(tmp_path, test)
    assert 12345 == caplog.records[0].__dict__["fields"]["uid"]


def test_a_frame_that_is_too_long_closes_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(path: Path) -> None:
        assert b"" == await exchange(path, struct.pack("!I", MAX_BODY + 1))

    serve_echo(tmp_path, test)
    assert ["invalid request on the CNI socket, connection closed"] == [each.message for each in caplog.records]


def test_a_peer_that_sends_no_request_is_disconnected(tmp_path: Path) -> None:
    async def test(path: Path) -> None:
        assert b"" == await exchange(path, b"\0\0")

    serve_echo(tmp_path, test, timeout=0.05)


def test_a_peer_that_disconnects_cancels_its_request(tmp_path: Path) -> None:
    async def run() -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        async def forever(_body: bytes) -> bytes:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return b""

        path = tmp_path / "agent.sock"
        async with asyncio.timeout(30), serve_cni(path, forever):
            _, writer = await asyncio.open_unix_connection(path)
            writer.write(encode_frame(b"hello"))
            await started.wait()
            writer.close()
            await ended.wait()

    asyncio.run(run())


def frame(command: str) -> bytes:
    return encode_frame(encode_request(PluginRequest(command=command, container_id="box", ifname="eth0")))


@pytest.mark.parametrize(("command", "handled"), [("ADD", []), ("DEL", ["DEL"])])
def test_an_add_whose_plugin_has_disconnected_is_not_started(tmp_path: Path, command: str, handled: list[str]) -> None:
    """The plugin sent its request while the agent was busy, and was killed before the agent read it."""
    commands: list[str] = []

    async def handle(body: bytes) -> bytes:
        commands.append(decode_request(body).command)
        return b"\0"

    async def run() -> None:
        path = tmp_path / "agent.sock"
        async with asyncio.timeout(30), serve_cni(path, handle):
            with socket.socket(socket.AF_UNIX) as plugin:
                plugin.connect(str(path))  # without the event loop, which is busy
                plugin.sendall(frame(command))
            await exchange(path, frame("STATUS"))
        assert [*handled, "STATUS"] == commands

    asyncio.run(run())


def test_a_del_is_completed_when_its_plugin_disconnects(tmp_path: Path) -> None:
    async def run() -> None:
        started, released, completed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def delete(_body: bytes) -> bytes:
            started.set()
            await released.wait()
            completed.set()
            return b"\0"

        path = tmp_path / "agent.sock"
        async with asyncio.timeout(30), serve_cni(path, delete):
            _, writer = await asyncio.open_unix_connection(path)
            writer.write(frame("DEL"))
            await started.wait()
            writer.close()
            await asyncio.sleep(0.05)  # not to synchronise: the agent would notice it within a millisecond
            released.set()
            await completed.wait()

    asyncio.run(run())


def test_without_a_response_the_connection_is_closed(tmp_path: Path) -> None:
    async def run() -> None:
        async def stopped(_body: bytes) -> bytes:
            raise AgentStopped("the agent has stopped")

        path = tmp_path / "agent.sock"
        async with asyncio.timeout(30), serve_cni(path, stopped):
            assert b"" == await exchange(path, encode_frame(b"hello"))

    asyncio.run(run())


def test_a_successor_replaces_the_socket_without_a_gap(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "agent.sock"
        async with asyncio.timeout(30):
            old = serve_cni(path, echo)
            await old.__aenter__()
            async with serve_cni(path, echo):
                await old.__aexit__(None, None, None)
                assert encode_frame(b"\0hello") == await exchange(path, encode_frame(b"hello"))
        assert [] == os.listdir(tmp_path)  # noqa: PTH208  only names

    asyncio.run(run())

"""The agent's door: who may come in, and what happens to who says nothing."""

import asyncio
import os
import stat
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from podpool.agent import cni_socket as door
from podpool.agent.agent import AgentStopped
from podpool.agent.cni_socket import listening
from podpool.cni.protocol import LARGEST_BODY, framed


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


def at_the_door(tmp_path: Path, test: Callable[[Path, list[str]], Awaitable[None]], **options: float) -> list[str]:
    told: list[str] = []

    async def play() -> None:
        path = tmp_path / "run" / "agent.sock"
        async with asyncio.timeout(30), listening(path, echo, tell=told.append, **options):
            await test(path, told)
        assert not path.exists()

    asyncio.run(play())
    return told


def test_a_frame_is_answered_with_a_frame(tmp_path: Path) -> None:
    async def test(path: Path, _told: list[str]) -> None:
        assert framed(b"\0hello") == await exchange(path, framed(b"hello"))

    at_the_door(tmp_path, test)


def test_a_frame_may_come_in_pieces_and_many_at_once(tmp_path: Path) -> None:
    async def slowly(path: Path) -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        for byte in framed(b"hello"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        return answer

    async def test(path: Path, _told: list[str]) -> None:
        answers = await asyncio.gather(*(slowly(path) for _ in range(50)))
        assert {framed(b"\0hello")} == set(answers)

    at_the_door(tmp_path, test)


def test_only_its_owner_may_open_it(tmp_path: Path) -> None:
    async def test(path: Path, _told: list[str]) -> None:
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)  # noqa: ASYNC240  the file is at hand

    at_the_door(tmp_path, test)


def test_another_account_is_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_peer", lambda _transport: 12345)

    async def test(path: Path, _told: list[str]) -> None:
        assert b"" == await exchange(path, framed(b"hello"))

    assert "12345" in at_the_door(tmp_path, test)[0]


def test_a_frame_that_is_too_long_is_not_waited_for(tmp_path: Path) -> None:
    async def test(path: Path, _told: list[str]) -> None:
        assert b"" == await exchange(path, struct.pack("!I", LARGEST_BODY + 1))

    assert "too long" in at_the_door(tmp_path, test)[0]


def test_who_says_nothing_is_cut_off(tmp_path: Path) -> None:
    async def test(path: Path, _told: list[str]) -> None:
        assert b"" == await exchange(path, b"\0\0")

    at_the_door(tmp_path, test, deadline=0.05)


def test_who_goes_away_ends_what_was_done_for_him(tmp_path: Path) -> None:
    async def play() -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        async def forever(_body: bytes) -> bytes:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return b""

        path = tmp_path / "agent.sock"
        async with asyncio.timeout(30), listening(path, forever, tell=lambda _sentence: None):
            _, writer = await asyncio.open_unix_connection(path)
            writer.write(framed(b"hello"))
            await started.wait()
            writer.close()
            await ended.wait()

    asyncio.run(play())


def test_without_an_answer_the_connection_just_ends(tmp_path: Path) -> None:
    async def play() -> None:
        async def stopped(_body: bytes) -> bytes:
            raise AgentStopped("the agent has ended")

        path = tmp_path / "agent.sock"
        async with asyncio.timeout(30), listening(path, stopped, tell=lambda _sentence: None):
            assert b"" == await exchange(path, framed(b"hello"))

    asyncio.run(play())


def test_a_successor_takes_its_place_without_a_gap(tmp_path: Path) -> None:
    async def play() -> None:
        path = tmp_path / "agent.sock"
        async with asyncio.timeout(30):
            old = listening(path, echo, tell=lambda _sentence: None)
            await old.__aenter__()
            async with listening(path, echo, tell=lambda _sentence: None):
                await old.__aexit__(None, None, None)
                assert framed(b"\0hello") == await exchange(path, framed(b"hello"))
        assert [] == os.listdir(tmp_path)  # noqa: PTH208  names alone

    asyncio.run(play())

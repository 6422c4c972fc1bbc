"""The plugin process, and the agents that it meets."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from podpool.agent.cni_socket import listening
from podpool.cni.protocol import Answer, Request, decode_request, encode_answer

ADD = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "box", "CNI_NETNS": "/run/netns/box", "CNI_IFNAME": "eth0"}
DEL = {**ADD, "CNI_COMMAND": "DEL"}
SHORT = "200"
"""Milliseconds to look for an agent that is not there."""


class Plugin:
    """The process, in a directory of its own."""

    def __init__(self, shim: Path, home: Path) -> None:
        self.shim = shim
        self.socket = home / "agent.sock"
        self.deletes = home / "deletes"
        self.seen: list[Request] = []

    def environment(self, values: dict[str, str], *, wait: str = SHORT) -> dict[str, str]:
        place = {"PODPOOL_SOCKET": str(self.socket), "PODPOOL_DELETES": str(self.deletes), "PODPOOL_WAIT_MS": wait}
        return {**place, **values}

    def run(self, values: dict[str, str], stdin: bytes = b"{}", *, before: Sequence[str] = ()) -> tuple[int, Any]:
        """Without an agent; `before` is a command that runs it."""
        words, environment = [*before, str(self.shim)], self.environment(values)
        done = subprocess.run(words, env=environment, input=stdin, capture_output=True, check=False, timeout=60)
        return done.returncode, json.loads(done.stdout) if done.stdout else None

    async def start(self, values: dict[str, str], stdin: bytes = b"{}", *, wait: str = "20000") -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(
            self.shim,
            env=self.environment(values, wait=wait),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        stdout, _ = await process.communicate(stdin)
        return process.returncode or 0, stdout

    async def answer(self, body: bytes) -> bytes:
        self.seen.append(decode_request(body))
        return encode_answer(Answer(b'{"ips": []}', 0))

    def with_agent(self, play: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            async with asyncio.timeout(60), listening(self.socket, self.answer, tell=lambda _sentence: None):
                await play()

        asyncio.run(run())

    def with_hostile_agent(self, sent: bytes, values: dict[str, str]) -> tuple[int, bytes]:
        """An agent that answers with these bytes, whatever is asked, and hangs up."""

        async def hostile(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(8)
            writer.write(sent)
            await writer.drain()
            writer.close()

        async def run() -> tuple[int, bytes]:
            server = await asyncio.start_unix_server(hostile, self.socket)
            async with asyncio.timeout(60), server:
                return await self.start(values, wait=SHORT)

        return asyncio.run(run())

"""Runs the plugin as a process, without an agent, with one, or with a hostile one."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from podpool.agent.cni_socket import serve_cni
from podpool.cni.protocol import PluginRequest, PluginResponse, decode_request, encode_response

ADD = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "box", "CNI_NETNS": "/run/netns/box", "CNI_IFNAME": "eth0"}
DEL = {**ADD, "CNI_COMMAND": "DEL"}
SHORT = "200"
"""Milliseconds to wait for an agent that is not running."""


class PluginProcess:
    """The plugin, with socket and deferred DELs in its own directory."""

    def __init__(self, shim: Path, home: Path) -> None:
        self.shim = shim
        self.socket = home / "agent.sock"
        self.deletes = home / "deletes"
        self.requests: list[PluginRequest] = []

    @property
    def deferred(self) -> Path:
        """The deferred DEL, of which there must be one."""
        (found,) = self.deletes.iterdir()
        return found

    def environment(self, values: dict[str, str], *, wait: str = SHORT) -> dict[str, str]:
        paths = {
            "PODPOOL_SOCKET": str(self.socket),
            "PODPOOL_DEFERRED_DELETES": str(self.deletes),
            "PODPOOL_WAIT_MS": wait,
        }
        return {**paths, **values}

    def run(self, values: dict[str, str], stdin: bytes = b"{}", *, before: Sequence[str] = ()) -> tuple[int, Any]:
        """Run it without an agent; `before` is a command prefix."""
        command, environment = [*before, str(self.shim)], self.environment(values)
        done = subprocess.run(command, env=environment, input=stdin, capture_output=True, check=False, timeout=60)
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

    async def respond(self, body: bytes) -> bytes:
        self.requests.append(decode_request(body))
        return encode_response(PluginResponse(b'{"ips": []}', 0))

    def with_agent(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            async with asyncio.timeout(60), serve_cni(self.socket, self.respond):
                await scenario()

        asyncio.run(run())

    def with_hostile_agent(self, sent: bytes, values: dict[str, str]) -> tuple[int, bytes]:
        """Run it with an agent that responds with these bytes and closes the connection."""

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

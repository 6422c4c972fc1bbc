"""An agent on a real disk and a real socket, in a thread, for tests that run programs synchronously."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from podpool.agent.cni_socket import serve_cni
from podpool.core.settings import parse_settings
from podpool.runtime.disk import LocalDisk
from tests.agent.node_env import NodeEnv

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from podpool.agent.agent import Agent

NO_COOLDOWN = parse_settings("cooldown=0")


class AgentThread:
    """`with AgentThread(home) as agent:` serves CNI on `agent.socket`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = home / "agent.sock"
        self.agent: Agent | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._ready = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop and self._stopping:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)

    def holders(self) -> dict[str, str]:
        """Return the address of each container."""
        assert self.agent
        return {each.attachment.container_id: each.grant.address for each in self.agent.pool.assigned.values()}

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        env = NodeEnv()
        env.settings = NO_COOLDOWN
        await env.begin()
        try:
            disks = [LocalDisk(self.home / each) for each in ("journal", "deletes")]
            self.agent = await env.start(wait=False, disk=disks[0], deletes=disks[1])
            async with serve_cni(self.socket, self.agent.handle):
                await self.agent.ready.wait()
                self._ready.set()
                await self._stopping.wait()
        finally:
            await env.end()
            for disk in disks:
                disk.close()

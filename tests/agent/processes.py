"""The agent as a process of its own, on an API server that the test carries, asked by the plugin process itself."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from parts.daemon import dying_with_us
from podpool.cni.build import build
from podpool.lab.apiserver.tls import kubeconfig
from podpool.runtime.http import serving
from tests.agent.worlds import NODE, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from podpool.runtime.transport import Request, Response

PODPOOL = Path(sys.executable).parent / "podpool"
MORTAL = Path(__file__).with_name("mortal.py")
PATIENCE = "60000"
"""Milliseconds for which the plugin looks for its agent, on a machine that is busy with other tests.

By itself it waits for 5 s, and an agent is there in half a second (`agent-start-seconds` of the benchmarks): the tests
of restarts pass with 5000 here too, at a load of 6 on 2 cores. What they show must not depend on that.
"""


class Cluster:
    """An API server over HTTP with a controller's hand on it, and one node's directory."""

    def __init__(self, home: Path, world: World) -> None:
        self.home = home
        self.world = world
        self.patches: list[tuple[int, int]] = []
        """Of the NNC, so far: what was asked for, and how it was answered."""
        self._port = 0
        self._served = AsyncExitStack()
        self.shim = build(platform.machine())
        self.kubeconfig = home / "kubeconfig"

    async def serve(self) -> None:
        """Let the API server be there, always at the same address."""
        self._port = await self._served.enter_async_context(serving(self._answer, host="127.0.0.1", port=self._port))
        self.kubeconfig.write_text(kubeconfig(f"http://127.0.0.1:{self._port}"))

    async def leave(self) -> None:
        """Let the API server be away."""
        await self._served.aclose()

    async def _answer(self, request: Request) -> Response:
        answer = await self.world.server.send(request)
        if request.method == "PATCH" and "/nodenetworkconfigs/" in request.path:
            self.patches.append((json.loads(request.body)["spec"]["requestedIPCount"], answer.status))
        return answer

    async def agent(self, *options: str, dies_in: str = "", before: Sequence[str] = ()) -> asyncio.subprocess.Process:
        """Start the agent, which may die in a change of its disk (`mortal`); `before` are words before the command."""
        program: Sequence[str | Path] = [sys.executable, MORTAL] if dies_in else [PODPOOL]
        words = [
            *program,
            *("agent", "run", "--node", NODE, "--boot-id", self.world.boot_id, "--kubeconfig", self.kubeconfig),
            *("--state", self.home / "journal", "--deletes", self.home / "deletes"),
            *("--socket", self.home / "agent.sock", "--listen", "127.0.0.1:0", "--conf-dir", self.home / "net.d"),
            *("--log-level", "warning", *options),
        ]
        environment = {"MORTAL": dies_in, "PYTHONPATH": ""}
        return await asyncio.create_subprocess_exec(*dying_with_us(), *before, *words, env=environment)

    async def call(
        self, command: str, sandbox: str, *, version: str = "1.1.0", patience: str = PATIENCE
    ) -> tuple[int, str]:
        """Start the plugin as a runtime does; gives how it ended, and the address or what else it said."""
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": sandbox,
            "CNI_NETNS": f"/run/netns/{sandbox}",
            "CNI_IFNAME": "eth0",
            "PODPOOL_SOCKET": str(self.home / "agent.sock"),
            "PODPOOL_DELETES": str(self.home / "deletes"),
            "PODPOOL_WAIT_MS": patience,
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(self.shim, env=environment, stdin=pipe, stdout=pipe)
        stdout, _ = await process.communicate(json.dumps({"cniVersion": version, "name": "net"}).encode())
        if command == "ADD" and process.returncode == 0:
            return 0, str(json.loads(stdout)["ips"][0]["address"])
        return process.returncode or 0, stdout.decode()


@asynccontextmanager
async def cluster(home: Path) -> AsyncIterator[Cluster]:
    """Serve a world of one node."""
    world = World()
    await world.begin()
    there = Cluster(home, world)
    try:
        await there.serve()
        yield there
    finally:
        await there.leave()
        await world.end()

"""The agent as its own process, with an API server in the test and requests by the real plugin."""

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
from podpool.runtime.http_server import serving
from tests.agent.node_env import NODE, NodeEnv

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from podpool.runtime.transport import Request, Response

PODPOOL = Path(sys.executable).parent / "podpool"
KILLING_DISK = Path(__file__).with_name("killing_disk.py")
AGENT_WAIT = "60000"
"""Milliseconds for which the plugin waits for its agent on a machine that is busy with other tests.

The default is 5 s, and an agent starts in half a second (`agent-start-seconds` of the benchmarks): tests of restarts
pass with 5000 here too, at a load of 6 on 2 cores. Their result must not depend on that.
"""


class AgentCluster:
    """An API server over HTTP with a minimal controller, and the directory of one node."""

    def __init__(self, home: Path, env: NodeEnv) -> None:
        self.home = home
        self.env = env
        self.patches: list[tuple[int, int]] = []
        """Requests in patches of the NNC, and the HTTP status of each."""
        self._port = 0
        self._served = AsyncExitStack()
        self.shim = build(platform.machine())
        self.kubeconfig = home / "kubeconfig"

    async def serve(self) -> None:
        """Start the API server, always on the same port."""
        self._port = await self._served.enter_async_context(serving(self._respond, host="127.0.0.1", port=self._port))
        self.kubeconfig.write_text(kubeconfig(f"http://127.0.0.1:{self._port}"))

    async def stop(self) -> None:
        """Stop the API server."""
        await self._served.aclose()

    async def _respond(self, request: Request) -> Response:
        response = await self.env.server.send(request)
        if request.method == "PATCH" and "/nodenetworkconfigs/" in request.path:
            self.patches.append((json.loads(request.body)["spec"]["requestedIPCount"], response.status))
        return response

    async def agent(self, *options: str, killed_in: str = "", before: Sequence[str] = ()) -> asyncio.subprocess.Process:
        """Start the agent, which may be killed in a disk operation (`killing_disk`); `before` is a command prefix."""
        program: Sequence[str | Path] = [sys.executable, KILLING_DISK] if killed_in else [PODPOOL]
        arguments = [
            *program,
            *("agent", "run", "--node", NODE, "--boot-id", self.env.boot_id, "--kubeconfig", self.kubeconfig),
            *("--state", self.home / "journal", "--deferred-deletes", self.home / "deletes"),
            *("--socket", self.home / "agent.sock", "--listen", "127.0.0.1:0", "--conf-dir", self.home / "net.d"),
            *("--log-level", "warning", *options),
        ]
        environment = {"KILLED_IN": killed_in, "PYTHONPATH": ""}
        return await asyncio.create_subprocess_exec(*dying_with_us(), *before, *arguments, env=environment)

    async def call(
        self, command: str, sandbox: str, *, version: str = "1.1.0", wait_ms: str = AGENT_WAIT
    ) -> tuple[int, str]:
        """Start the plugin as a runtime does; return its exit code, and the address or its output."""
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": sandbox,
            "CNI_NETNS": f"/run/netns/{sandbox}",
            "CNI_IFNAME": "eth0",
            "PODPOOL_SOCKET": str(self.home / "agent.sock"),
            "PODPOOL_DEFERRED_DELETES": str(self.home / "deletes"),
            "PODPOOL_WAIT_MS": wait_ms,
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(self.shim, env=environment, stdin=pipe, stdout=pipe)
        stdout, _ = await process.communicate(json.dumps({"cniVersion": version, "name": "net"}).encode())
        if command == "ADD" and process.returncode == 0:
            return 0, str(json.loads(stdout)["ips"][0]["address"])
        return process.returncode or 0, stdout.decode()


@asynccontextmanager
async def agent_cluster(home: Path) -> AsyncIterator[AgentCluster]:
    """Serve a cluster of one node."""
    env = NodeEnv()
    await env.begin()
    cluster = AgentCluster(home, env)
    try:
        await cluster.serve()
        yield cluster
    finally:
        await cluster.stop()
        await env.end()

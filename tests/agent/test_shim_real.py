"""The agent on a local disk and socket, with requests by the real plugin."""

import asyncio
import json
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from podpool.agent.agent import Agent
from podpool.agent.cni_socket import serve_cni
from podpool.cni.build import build
from podpool.runtime.disk import LocalDisk
from tests.agent.node_env import NodeEnv

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]


class Node:
    """A node in a directory."""

    def __init__(self, home: Path, env: NodeEnv) -> None:
        self.home = home
        self.env = env
        self.shim = build(platform.machine())

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[Agent]:
        """Run and serve an agent."""
        journal, deletes = LocalDisk(self.home / "journal"), LocalDisk(self.home / "deletes")
        agent = await self.env.start(wait=False, disk=journal, deletes=deletes)
        try:
            async with serve_cni(self.home / "agent.sock", agent.handle):
                yield agent
        finally:
            await self.env.stop()
            journal.close()

    async def call(self, command: str, sandbox: str) -> str:
        """Start the plugin as a runtime does; return the address or its output."""
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": sandbox,
            "CNI_NETNS": f"/run/netns/{sandbox}",
            "CNI_IFNAME": "eth0",
            "PODPOOL_SOCKET": str(self.home / "agent.sock"),
            "PODPOOL_DEFERRED_DELETES": str(self.home / "deletes"),
            "PODPOOL_WAIT_MS": "200",
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(self.shim, env=environment, stdin=pipe, stdout=pipe)
        stdout, _ = await process.communicate(b'{"cniVersion": "1.0.0", "name": "net"}')
        assert 0 == process.returncode, stdout
        return str(json.loads(stdout)["ips"][0]["address"]) if command == "ADD" else stdout.decode()


def test_a_burst_gets_addresses_which_survive_a_restart_and_a_deferred_del_releases(tmp_path: Path) -> None:
    async def run() -> None:
        env = NodeEnv()
        await env.begin()
        node = Node(tmp_path, env)
        names = [f"box-{n}" for n in range(20)]
        try:
            async with node.agent():
                assigned = dict(
                    zip(names, await asyncio.gather(*(node.call("ADD", each) for each in names)), strict=True)
                )
                assert 20 == len(set(assigned.values()))
                assert "" == await node.call("DEL", "box-0")
            assert "" == await node.call("DEL", "box-1")
            async with node.agent() as agent:
                assert assigned["box-2"] == await node.call("ADD", "box-2")
                held = {each.attachment.container_id for each in agent.pool.assigned.values()}
                assert set(names) - {"box-0", "box-1"} == held
        finally:
            await env.end()

    asyncio.run(asyncio.wait_for(run(), 60))

"""The agent on a real disk and a real socket, asked by the plugin process itself."""

import asyncio
import json
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from podpool.agent.agent import Agent
from podpool.agent.cni_socket import listening
from podpool.cni.build import build
from podpool.runtime.disk import LocalDisk
from tests.agent.worlds import World

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]


class Node:
    """A node in a directory."""

    def __init__(self, home: Path, world: World) -> None:
        self.home = home
        self.world = world
        self.shim = build(platform.machine())

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[Agent]:
        """An agent that runs and answers."""
        journal, deletes = LocalDisk(self.home / "journal"), LocalDisk(self.home / "deletes")
        agent = await self.world.start(wait=False, disk=journal, deletes=deletes)
        try:
            async with listening(self.home / "agent.sock", agent.handle, tell=self.world.told.append):
                yield agent
        finally:
            await self.world.stop()
            journal.close()

    async def call(self, command: str, sandbox: str) -> str:
        """Start the plugin as a runtime does; gives the address, or what else it printed."""
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": sandbox,
            "CNI_NETNS": f"/run/netns/{sandbox}",
            "CNI_IFNAME": "eth0",
            "PODPOOL_SOCKET": str(self.home / "agent.sock"),
            "PODPOOL_DELETES": str(self.home / "deletes"),
            "PODPOOL_WAIT_MS": "200",
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(self.shim, env=environment, stdin=pipe, stdout=pipe)
        stdout, _ = await process.communicate(b'{"cniVersion": "1.0.0", "name": "net"}')
        assert 0 == process.returncode, stdout
        return str(json.loads(stdout)["ips"][0]["address"]) if command == "ADD" else stdout.decode()


def test_a_burst_of_sandboxes_gets_addresses_which_a_restart_keeps_and_a_late_del_frees(tmp_path: Path) -> None:
    async def play() -> None:
        world = World()
        await world.begin()
        node = Node(tmp_path, world)
        names = [f"box-{n}" for n in range(20)]
        try:
            async with node.agent():
                given = dict(zip(names, await asyncio.gather(*(node.call("ADD", each) for each in names)), strict=True))
                assert 20 == len(set(given.values()))
                assert "" == await node.call("DEL", "box-0")
            assert "" == await node.call("DEL", "box-1")
            async with node.agent() as agent:
                assert given["box-2"] == await node.call("ADD", "box-2")
                held = {each.owner.container_id for each in agent.pool.holdings.values()}
                assert set(names) - {"box-0", "box-1"} == held
        finally:
            await world.end()

    asyncio.run(asyncio.wait_for(play(), 60))

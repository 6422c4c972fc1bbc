"""A plugin whose result nobody reads any more ends, unless it is a DEL: the process that started it was killed.

A runtime that cancels a call kills the plugin that it started, such as ptp, and not the IPAM plugin under that one.
"""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from parts.daemon import children
from parts.polling import until
from podpool.agent.agent import Agent
from podpool.agent.cni_socket import serve_cni
from podpool.runtime.disk import LocalDisk
from tests.agent.node_env import NodeEnv
from tests.cni.plugin_process import ADD, DEL, PluginProcess

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

# reads the plugin's result through a pipe, as libcni does
PARENT = """
import subprocess, sys
plugin = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
plugin.communicate(b'{"cniVersion": "1.0.0", "name": "net"}')
"""
ENDED = 10.0
"""Seconds, far below the 30 s of a plugin that nobody ends."""


class InterfacePlugin:
    """A process that starts the plugin and waits for its result."""

    def __init__(self, plugin: PluginProcess, values: dict[str, str], *, wait: str = "25000") -> None:
        self._inherited, kept = os.pipe()
        argv = [sys.executable, "-c", PARENT, str(plugin.shim)]
        environment = plugin.environment(values, wait=wait)
        self._process = subprocess.Popen(argv, env=environment, pass_fds=(kept,))
        os.close(kept)
        until(lambda: bool(children(self._process.pid)), "the plugin has started")

    def kill(self) -> None:
        """Kill it, and not the plugin."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def plugin_has_ended(self) -> bool:
        """Wait for the end of the plugin, which is the last to have the pipe."""
        ready, _, _ = select.select([self._inherited], [], [], ENDED)
        os.close(self._inherited)
        return bool(ready)


@pytest.mark.parametrize("command", ["ADD", "CHECK", "GC", "STATUS"])
def test_a_call_that_waits_for_an_agent_ends_and_is_never_sent(plugin: PluginProcess, command: str) -> None:
    parent = InterfacePlugin(plugin, {**ADD, "CNI_COMMAND": command})
    parent.kill()
    assert parent.plugin_has_ended()

    async def nothing_arrives() -> None:
        await asyncio.sleep(0.1)

    plugin.with_agent(nothing_arrives)
    assert [] == plugin.requests


def test_a_del_that_waits_for_an_agent_is_deferred(plugin: PluginProcess) -> None:
    parent = InterfacePlugin(plugin, DEL, wait="500")
    parent.kill()
    assert parent.plugin_has_ended()
    assert ["box-eth0"] == [each.name[:8] for each in plugin.deletes.iterdir()]


def test_an_add_that_waits_for_its_answer_is_cancelled(plugin: PluginProcess) -> None:
    async def run() -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def wait_for_ever(_body: bytes) -> bytes:
            started.set()
            try:
                return await asyncio.Future()
            finally:
                cancelled.set()

        async with asyncio.timeout(60), serve_cni(plugin.socket, wait_for_ever):
            parent = await asyncio.to_thread(InterfacePlugin, plugin, ADD)
            await started.wait()
            parent.kill()
            async with asyncio.timeout(ENDED):
                await cancelled.wait()
            assert parent.plugin_has_ended()

    asyncio.run(run())


async def until_waiting(agent: Agent, adds: int) -> None:
    while agent.metrics_snapshot().waiting_adds != adds:  # noqa: ASYNC110  the agent has no event for it
        await asyncio.sleep(0.01)


def test_an_add_of_a_killed_parent_gets_no_address_when_one_is_granted(plugin: PluginProcess, tmp_path: Path) -> None:
    async def run() -> None:
        env = NodeEnv()
        env.capacity = 0
        await env.begin()
        disk = LocalDisk(tmp_path / "journal")
        try:
            agent = await env.start(wait=False, disk=disk)
            async with asyncio.timeout(60), serve_cni(plugin.socket, agent.handle):
                parent = await asyncio.to_thread(InterfacePlugin, plugin, ADD)
                await until_waiting(agent, 1)
                parent.kill()
                await until_waiting(agent, 0)
                env.capacity = 1000
                other = {**ADD, "CNI_CONTAINERID": "other"}
                code, _ = await plugin.start(other, b'{"cniVersion": "1.0.0", "name": "net"}')
                assert 0 == code
                assert ["other"] == [each.attachment.container_id for each in agent.pool.assigned.values()]
        finally:
            await env.end()
            disk.close()

    asyncio.run(run())

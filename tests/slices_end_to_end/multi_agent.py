"""Agents of several nodes in one process, each with its own journal, socket and rights.

`python multi_agent.py HOME SETTINGS NODE=KUBECONFIG ...`
"""

import asyncio
import sys
from pathlib import Path

from podpool.agent.agent import Agent
from podpool.agent.cni_socket import serve_cni
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.core.settings import Settings, parse_settings
from podpool.kube import client_config
from podpool.kube.client import KubeClient
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.logging import configure_logging


async def serve(home: Path, node: str, kubeconfig: Path, settings: Settings) -> None:
    """Run the agent of one node."""
    api = client_config.from_kubeconfig(kubeconfig)
    disk, deletes = LocalDisk(home / node), LocalDisk(home / f"{node}.deletes")
    deps = AgentDeps(
        node=node,
        boot_id=f"boot-of-{node}",
        kube=KubeClient(api),
        disk=disk,
        clock=SystemClock(),
        rng=entropy.system_random(),
        settings=settings,
        deferred_deletes=deletes,
    )
    agent = Agent(deps, AgentOptions(whereabouts_namespace="kube-system"))
    try:
        async with serve_cni(home / f"{node}.sock", agent.handle):
            await agent.run()
    finally:
        disk.close()
        deletes.close()
        await api.close()


async def serve_all(home: Path, settings: Settings, nodes: dict[str, Path]) -> None:
    """Run all agents."""
    async with asyncio.TaskGroup() as group:
        for node, kubeconfig in nodes.items():
            group.create_task(serve(home, node, kubeconfig, settings))


if __name__ == "__main__":
    home_path, settings_text, *pairs = sys.argv[1:]
    split = [each.partition("=") for each in pairs]
    kubeconfigs = {node: Path(kubeconfig) for node, _, kubeconfig in split}
    configure_logging()
    process.run(lambda: serve_all(Path(home_path), parse_settings(settings_text), kubeconfigs))

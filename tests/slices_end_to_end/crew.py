"""The agents of several nodes in one process, each with a journal, a door and rights of its own, as on its node.

`python crew.py HOME SETTINGS NODE=KUBECONFIG ...`
"""

import asyncio
import sys
from pathlib import Path

from podpool.agent.notices import to_log

from podpool.agent.agent import Agent
from podpool.agent.cni_socket import listening
from podpool.core.settings import Settings, parse_settings
from podpool.kube import config
from podpool.kube.client import KubeClient
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.logging import configure_logging


async def serve(home: Path, node: str, kubeconfig: Path, settings: Settings) -> None:
    """Be the agent of one node."""
    api = config.from_kubeconfig(kubeconfig)
    disk, deletes = LocalDisk(home / node), LocalDisk(home / f"{node}.deletes")
    agent = Agent(
        node,
        KubeClient(api),
        disk=disk,
        deletes=deletes,
        clock=SystemClock(),
        rng=entropy.system_random(),
        boot_id=f"boot-of-{node}",
        settings=settings,
        pools="kube-system",
    )
    try:
        async with listening(home / f"{node}.sock", agent.handle, tell=to_log(node)):
            await agent.run()
    finally:
        disk.close()
        deletes.close()
        await api.close()


async def serve_all(home: Path, settings: Settings, nodes: dict[str, Path]) -> None:
    """Be all of them."""
    async with asyncio.TaskGroup() as group:
        for node, kubeconfig in nodes.items():
            group.create_task(serve(home, node, kubeconfig, settings))


if __name__ == "__main__":
    where, told, *pairs = sys.argv[1:]
    parted = [each.partition("=") for each in pairs]
    crew = {node: Path(kubeconfig) for node, _, kubeconfig in parted}
    configure_logging()
    process.run(lambda: serve_all(Path(where), parse_settings(told), crew))

"""The agent as a process, and the plugin's place. Imports no other room than the agent's: its memory is counted."""

import logging
from pathlib import Path

from podpool.agent.agent import Agent
from podpool.agent.notices import to_log
from podpool.agent.socket import listening
from podpool.cli.daemons import parse_listen
from podpool.cni.install import install
from podpool.core.numbers import read_numbers
from podpool.kube import config
from podpool.kube.client import KubeClient
from podpool.runtime import daemon, randomness
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http import serving

KERNEL = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger(__name__)


def run_agent(  # noqa: PLR0913  one for each option
    *,
    node: str,
    state: str,
    socket: str,
    deletes: str,
    listen: str,
    numbers: str,
    kubeconfig: str,
    boot_id: str,
) -> None:
    """Run until told to stop."""
    host, port = parse_listen(listen)
    chosen = read_numbers(numbers)
    this_boot = boot_id or KERNEL.read_text().strip()

    async def work() -> None:
        api = config.from_kubeconfig(Path(kubeconfig)) if kubeconfig else config.connect()
        disk, late = LocalDisk(Path(state)), LocalDisk(Path(deletes))
        agent = Agent(
            node,
            KubeClient(api),
            disk=disk,
            clock=SystemClock(),
            rng=randomness.system(),
            boot_id=this_boot,
            numbers=chosen,
            deletes=late,
        )
        try:
            async with (
                serving(daemon.health(lambda: missing(agent)), host=host, port=port),
                listening(Path(socket), agent.handle, tell=to_log(node)),
            ):
                _log.info("the agent of %s answers on %s", node, socket)
                await agent.run()
        finally:
            disk.close()
            late.close()
            await api.close()

    daemon.run(work)


def missing(agent: Agent) -> str | None:
    """Tell what stands in the way of giving addresses."""
    return "the Node is not confirmed: no new address is given" if agent.fenced else None


def install_plugin(*, bin_dir: str) -> None:
    """Put the plugin in place."""
    print(install(Path(bin_dir)))  # noqa: T201  for the person who typed it

"""The agent as a process. Imports no other room than the agent's: its memory is counted."""

import asyncio
import logging
from pathlib import Path

from podpool.agent.agent import Agent
from podpool.agent.cni_socket import listening
from podpool.agent.metrics import Meters
from podpool.agent.notices import to_log
from podpool.agent.scaling_modes import Mode
from podpool.agent.underlay import HostAgent
from podpool.api.rbac import AGENT
from podpool.cli.daemon_parser import parse_listen
from podpool.cni import conflist
from podpool.core.errors import InvalidInput
from podpool.core.settings import parse_settings
from podpool.kube import config
from podpool.kube.client import KubeClient
from podpool.kube.events import Recorder
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http import HttpTransport, serving

KERNEL = Path("/proc/sys/kernel/random/boot_id")
PAUSE = 5.0
"""Seconds between two tries to write the runtime's configuration."""

_log = logging.getLogger(__name__)


def run_agent(  # noqa: PLR0913  one for each option
    *,
    node: str,
    mode: str,
    state: str,
    socket: str,
    deletes: str,
    listen: str,
    conf_dir: str,
    cni_template: str,
    taint: str,
    whereabouts_namespace: str,
    foreign_plugins: str,
    underlay: str,
    numbers: str,
    kubeconfig: str,
    boot_id: str,
) -> None:
    """Run until told to stop."""
    host, port = parse_listen(listen)
    chosen = parse_settings(numbers)
    conflist_told = conflist.content(cni_template)
    this_boot = boot_id or KERNEL.read_text().strip()

    async def work() -> None:
        api = config.from_kubeconfig(Path(kubeconfig)) if kubeconfig else config.connect()
        below = HttpTransport(underlay, connections=1) if underlay else None
        kube, clock, rng = KubeClient(api), SystemClock(), entropy.system()
        disk, late = LocalDisk(Path(state)), LocalDisk(Path(deletes))
        agent = Agent(
            node,
            kube,
            disk=disk,
            clock=clock,
            rng=rng,
            boot_id=this_boot,
            settings=chosen,
            deletes=late,
            mode=Mode(mode),
            taint=taint == "true",
            recorder=Recorder(kube, component=AGENT, instance=node, clock=clock, rng=rng),
            pools=whereabouts_namespace,
            foreign=foreign_plugins == "true",
            read_file=_read_file,
            underlay=HostAgent(below) if below else None,
        )
        meters = Meters(agent.handle, agent.picture)
        try:
            async with (
                serving(meters.page(process.health(agent.missing)), host=host, port=port),
                listening(Path(socket), meters.handle, tell=to_log(node)),
                asyncio.TaskGroup() as group,
            ):
                _log.info("the agent of %s answers on %s", node, socket)
                if conf_dir:
                    group.create_task(_configure(agent, Path(conf_dir), conflist_told))
                await agent.run()
        finally:
            disk.close()
            late.close()
            await api.close()
            if below:
                await below.close()

    process.run(work)


def _read_file(path: str) -> bytes | None:
    """Read a flat file of Whereabouts, if it is there."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput("configuration_path", path, f"cannot be read as a file: {error.strerror}") from None


async def _configure(agent: Agent, conf_dir: Path, told: bytes) -> None:
    """Let the runtime's configuration appear when the agent can serve: from then on its node is Ready."""
    await agent.able.wait()
    warned = False
    while True:
        try:
            _log.info("the runtime's configuration is %s", conflist.write(conf_dir, told))
        except OSError as error:
            if not warned:
                _log.warning("the runtime's configuration cannot be written, so this node is not Ready yet: %s", error)
            warned = True
            await asyncio.sleep(PAUSE)
        else:
            return

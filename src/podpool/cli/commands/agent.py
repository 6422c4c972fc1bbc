"""`podpool agent run`. Imports only what the agent needs: each node pays for its memory."""

import asyncio
from pathlib import Path

from podpool.agent.agent import Agent
from podpool.agent.cni_socket import serve_cni
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.metrics import AgentMetrics
from podpool.agent.scaling import ScalingMode
from podpool.agent.state_lock import acquire_lock
from podpool.agent.underlay_poller import NMAgentClient
from podpool.api.rbac import AGENT
from podpool.cli.listen import parse_listen
from podpool.cni import conflist
from podpool.core.errors import InvalidInput
from podpool.core.settings import parse_settings
from podpool.kube import api_connection
from podpool.kube.client import KubeClient
from podpool.kube.events import EventRecorder
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http import HttpTransport, serving
from podpool.runtime.logging import get_logger

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
RETRY = 5.0
"""Seconds between attempts to write the CNI configuration."""

log = get_logger(__name__)


def run_agent(  # noqa: PLR0913  one for each option
    *,
    node: str,
    mode: str,
    state: str,
    socket: str,
    deferred_deletes: str,
    listen: str,
    conf_dir: str,
    cni_template: str,
    taint: bool,
    whereabouts_namespace: str,
    third_party_plugins: bool,
    underlay: str,
    settings: str,
    kubeconfig: str,
    boot_id: str,
) -> None:
    """Run until stopped."""
    host, port = parse_listen(listen)
    parsed = parse_settings(settings)
    cni_config = conflist.load(cni_template)
    this_boot = boot_id or BOOT_ID.read_text().strip()

    async def run() -> None:
        api = api_connection.from_kubeconfig(Path(kubeconfig)) if kubeconfig else api_connection.connect()
        host_agent = HttpTransport(underlay, connections=1) if underlay else None
        kube, clock, rng = KubeClient(api), SystemClock(), entropy.system_random()
        disk, deletes = LocalDisk(Path(state)), LocalDisk(Path(deferred_deletes))
        deps = AgentDeps(
            node=node,
            boot_id=this_boot,
            kube=kube,
            disk=disk,
            clock=clock,
            rng=rng,
            settings=parsed,
            recorder=EventRecorder(kube, component=AGENT, instance=node, clock=clock, rng=rng),
            deferred_deletes=deletes,
            underlay=NMAgentClient(host_agent) if host_agent else None,
            read_file=_read_file,
        )
        options = AgentOptions(
            mode=ScalingMode(mode),
            taint=taint,
            whereabouts_namespace=whereabouts_namespace,
            third_party_plugins=third_party_plugins,
        )
        agent = Agent(deps, options)
        metrics = AgentMetrics(agent.handle, agent.metrics_snapshot)
        try:
            await acquire_lock(disk, log, directory=state)
            async with (
                serving(metrics.page(process.health_handler(agent.health_checks)), host=host, port=port),
                serve_cni(Path(socket), metrics.handle),
                asyncio.TaskGroup() as group,
            ):
                log.info("agent started", node=node, socket=socket)
                if conf_dir:
                    group.create_task(_write_cni_config(agent, Path(conf_dir), cni_config))
                await agent.run()
        finally:
            disk.close()
            deletes.close()
            await api.close()
            if host_agent:
                await host_agent.close()

    process.run(run)


def _read_file(path: str) -> bytes | None:
    """Read a flat file of Whereabouts; None if it does not exist."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput("configuration_path", path, f"cannot be read as a file: {error.strerror}") from None


async def _write_cni_config(agent: Agent, conf_dir: Path, content: bytes) -> None:
    """Write the CNI configuration once the agent can serve. From then on the node is Ready."""
    await agent.ready.wait()
    warned = False
    while True:
        try:
            log.info("CNI configuration written", path=str(conflist.write(conf_dir, content)))
        except OSError as error:
            if not warned:
                log.warning("cannot write the CNI configuration, node stays NotReady", error=str(error))
            warned = True
            await asyncio.sleep(RETRY)
        else:
            return

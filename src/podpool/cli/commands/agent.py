"""`podpool agent run`. Imports only what the agent needs: each node pays for its memory."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from podpool.agent.agent import Agent
from podpool.agent.cni_socket import serve_cni
from podpool.agent.deps import AgentDeps, AgentOptions, ContainerRuntime, Uplink
from podpool.agent.metrics import AgentMetrics
from podpool.agent.netns import NetnsProbe
from podpool.agent.scaling_decision import ScalingMode
from podpool.agent.secondary.flat_file import FlatFileReader
from podpool.agent.state_lock import acquire_lock
from podpool.agent.underlay_poller import NMAgentClient
from podpool.api.rbac import AGENT
from podpool.cli.listen import parse_listen
from podpool.cni import conflist
from podpool.cni.conflist_keeper import keep_conflist
from podpool.core.errors import InvalidInput
from podpool.core.settings import parse_settings
from podpool.kube import client_config
from podpool.kube.client import KubeClient
from podpool.kube.events import EventRecorder
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.config_merge import FLAT_FILE_DIRECTORIES

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CRI_SOCKETS = ("/run/containerd/containerd.sock", "/run/crio/crio.sock")
"""Where `--cri-socket auto` looks, in this order."""
MAX_SOCKET_PATH = 107
"""Bytes of a unix socket's path, by the kernel."""

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
    cni_profile: str,
    cni_options: str,
    cni_template: str,
    bin_dir: str,
    proxy_uplink: str,
    sysctl_dir: str,
    cri_socket: str,
    taint: bool,
    whereabouts_namespace: str,
    flat_file_dir: str,
    third_party_plugins: bool,
    underlay: str,
    settings: str,
    kubeconfig: str,
    boot_id: str,
) -> None:
    """Run until stopped."""
    host, port = parse_listen(listen)
    parsed = parse_settings(settings)
    _check_profile(cni_profile, template=cni_template, proxy_uplink=proxy_uplink, underlay=underlay)
    cni_config = conflist.load(cni_template, profile=cni_profile, options=cni_options, bin_dir=bin_dir)
    uplink = _uplink(proxy_uplink, sysctl_dir)
    runtime = runtime_at(cri_socket)
    this_boot = boot_id or BOOT_ID.read_text().strip()

    async def run() -> None:
        cri = await runtime.find() if isinstance(runtime, FoundRuntime) else cri_socket
        api = client_config.from_kubeconfig(Path(kubeconfig)) if kubeconfig else client_config.connect()
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
            uplink=uplink,
            runtime=runtime,
            netns_gone=NetnsProbe().gone,
            read_flat_file=FlatFileReader([flat_file_dir] if flat_file_dir else FLAT_FILE_DIRECTORIES).read,
        )
        options = AgentOptions(
            mode=ScalingMode(mode),
            taint=taint,
            whereabouts_namespace=whereabouts_namespace,
            third_party_plugins=third_party_plugins,
            routed_network=conflist.network_name(cni_config),
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
                log.info("agent started", node=node, socket=socket, cri_socket=cri or "none")
                if conf_dir:
                    group.create_task(_keep_cni_config(agent, Path(conf_dir), cni_config))
                await agent.run()
        finally:
            disk.close()
            deletes.close()
            await api.close()
            if host_agent:
                await host_agent.close()

    process.run(run)


def _check_profile(profile: str, *, template: str, proxy_uplink: str, underlay: str) -> None:
    """Raise `InvalidInput` if a profile lacks, or cannot have, what carries its Pods."""
    if template:
        return
    if proxy_uplink and profile != "routed":
        reason = f"is for --cni-profile routed; with profile {profile} remove it"
        raise InvalidInput("--proxy-uplink", proxy_uplink, reason)
    if profile == "azure" and not underlay:
        reason = "needs --underlay, such as http://168.63.129.16: an address works once Azure's host has programmed it"
        raise InvalidInput("--cni-profile", profile, reason)


def _uplink(name: str, sysctl_dir: str) -> Uplink | None:
    """Return the uplink of `--proxy-uplink`; raises `InvalidInput` if the kernel cannot answer for Pods there."""
    if not name:
        return None
    from podpool.agent.uplink import KernelUplink  # noqa: PLC0415  agents without an uplink do not pay for it

    uplink = KernelUplink(name, sysctl_dir=sysctl_dir)
    uplink.check()
    return uplink


class FoundRuntime:
    """The runtime at one of the known sockets: it may start after the agent, so none, or a silent one, is not final."""

    def __init__(self) -> None:
        self._socket = ""
        self._runtime: ContainerRuntime | None = None
        self._responded = False

    async def find(self) -> str:
        """Look for the socket, until a runtime has responded on one; return it, or an empty string."""
        if not self._responded:
            found = await choose_cri_socket(find_cri_sockets("auto"))
            if found and found != self._socket:
                log.info("CRI socket found", cri_socket=found)
                self._socket, self._runtime = found, _container_runtime(found)
        return self._socket

    async def list_sandboxes(self) -> Mapping[str, str] | None:
        """Return the sandboxes; None while there is no socket; raises `Unreachable`."""
        await self.find()
        listed = await self._runtime.list_sandboxes() if self._runtime else None
        self._responded = self._responded or listed is not None
        return listed


def runtime_at(option: str) -> ContainerRuntime | None:
    """Return the runtime of `--cri-socket`."""
    if option == "auto":
        return FoundRuntime()
    return next(map(_container_runtime, find_cri_sockets(option)), None)


def find_cri_sockets(option: str) -> tuple[str, ...]:
    """Return the CRI sockets to choose from."""
    if option in ("", "none"):
        return ()
    if option == "auto":
        return tuple(each for each in CRI_SOCKETS if os.access(each, os.R_OK | os.W_OK))
    path = option.removeprefix("unix://")
    if not path.startswith("/") or len(os.fsencode(path)) > MAX_SOCKET_PATH:
        reason = f"is not an absolute path of a unix socket, of at most {MAX_SOCKET_PATH} bytes; or use auto or none"
        raise InvalidInput("--cri-socket", option, reason)
    return (path,)


async def choose_cri_socket(sockets: Sequence[str]) -> str:
    """Return the first socket whose runtime lists its sandboxes, else the first; empty if there is none."""
    for each in sockets if len(sockets) > 1 else ():
        with suppress(Unreachable):
            await _container_runtime(each).list_sandboxes()
            return each
    return next(iter(sockets), "")


def _container_runtime(cri_socket: str) -> ContainerRuntime:
    from podpool.agent.cri import CRIClient  # noqa: PLC0415  agents without a CRI socket do not pay for HTTP/2

    return CRIClient(cri_socket)


async def _keep_cni_config(agent: Agent, conf_dir: Path, content: bytes) -> None:
    await agent.ready.wait()
    await keep_conflist(conf_dir, content)

"""The components of the demo cluster: ledger, controller, agents, dashboard.

A component that exits is restarted; when the demo stops, no component is left. Ports, plugin and state directory are
checked before anything is started.
"""

import asyncio
import fcntl
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from podpool.api.crds import crd_manifests, multus_crd_manifest
from podpool.cni.install import install, plugin_content
from podpool.core.errors import PodpoolError
from podpool.core.settings import parse_settings
from podpool.kube import client_config
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.lab.demo.api_server import ApiProcess
from podpool.lab.demo.kubelet import PluginEndpoint
from podpool.lab.demo.processes import Process, Ready, StartFailed, Supervisor
from podpool.lab.demo.settings import LOCK_FILE, NETWORK, SUBNET, TOKEN_FILE, DemoSettings, StateDirectory
from podpool.ledger import admin_messages as f
from podpool.ledger import messages as m
from podpool.ledger.client import LedgerClient, Timeouts
from podpool.runtime import entropy
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.transport import Request, Unreachable

HOST = "127.0.0.1"
Print = Callable[[str], None]


class PortInUse(PodpoolError):
    """Another process listens on a port of the demo."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(
            f"port {port} of the {name} is in use: stop the process that has it (ss -ltnp shows it), "
            "or choose four other ports with --port 17780 (make up OPTIONS='--port 17780')"
        )


class AlreadyRunning(PodpoolError):
    """Another demo uses the state directory."""

    def __init__(self, home: Path) -> None:
        super().__init__(f"podpool up already runs in {home}: stop it, or use another directory with --home")


class DemoCluster:
    """The running components."""

    def __init__(
        self,
        settings: DemoSettings,
        home: StateDirectory,
        supervisor: Supervisor,
        *,
        api: ApiProcess,
        print_line: Print,
    ) -> None:
        self.settings = settings
        self.home = home
        self.api = api
        self._supervisor = supervisor
        self._print = print_line
        self.subnet = m.SubnetName(network=NETWORK, name=SUBNET)
        self._sockets = Path(tempfile.mkdtemp(prefix="podpool-up-"))  # the path of a socket must be short
        self._ledger_transport = HttpTransport(self.ledger_url)
        self.transport = client_config.from_kubeconfig(api.kubeconfig)
        self.kube = KubeClient(self.transport)
        token_file = home.file("ledger.db.admin-token")
        transport, rng = self._ledger_transport, entropy.system_random()
        self.ledger = LedgerClient(
            transport, token=lambda: token_file.read_text().strip(), timeouts=Timeouts(), rng=rng
        )
        self.endpoints = {
            name: PluginEndpoint(self._sockets / f"{name}.sock", home.file("nodes", name, "deletes"))
            for name in settings.node_names
        }
        self.agents: dict[str, Process] = {}
        self.controller: Process | None = None
        self.dashboard = ""

    @property
    def ledger_url(self) -> str:
        """URL of the ledger."""
        return f"http://{HOST}:{self.settings.ports['ledger']}"

    async def start(self, *, boot_id: Callable[[str], str]) -> None:
        """Start all components except the API server."""
        settings = self.settings
        database = settings.database or f"sqlite://{self.home.file('ledger.db')}"
        port = settings.ports["ledger"]
        listen = ["--listen", f"{HOST}:{port}", "--health-listen", f"{HOST}:0"]
        admin = str(self.home.file("ledger.db.admin-token"))
        ledger = self._start_process(
            "ledger",
            ["ledger", "serve", *listen, "--admin-token-file", admin],
            _http_ok(port, "/"),
            port=port,
            environment={"PODPOOL_DATABASE": database},
        )
        await install_crds(self.kube, [*crd_manifests(), multus_crd_manifest()])
        await ledger.wait_ready()
        await self._create_subnet()
        port = settings.ports["controller"]
        self.controller = self._start_process(
            "controller", await self._controller_args(), _http_ok(port, "/readyz"), port=port
        )
        for name in settings.node_names:
            self.start_agent(name, boot_id=boot_id(name))
        await asyncio.gather(
            self._start_dashboard(), self.controller.wait_ready(), *(each.wait_ready() for each in self.agents.values())
        )

    def start_agent(self, node: str, *, boot_id: str) -> None:
        """Start the agent of a node."""
        endpoint = self.endpoints[node]
        args = [
            *("agent", "run", "--node", node, "--boot-id", boot_id, "--mode", self.settings.mode),
            *("--state", str(self.home.file("nodes", node, "journal"))),
            *("--deferred-deletes", str(endpoint.deferred_deletes)),
            *("--socket", str(endpoint.socket), "--listen", f"{HOST}:0", "--conf-dir", "", "--cri-socket", "none"),
            *("--settings", self.settings.overrides, "--kubeconfig", str(self.api.kubeconfig)),
        ]
        self.agents[node] = self._start_process(f"agent-{node}", args, lambda: _accepts(endpoint.socket))

    async def close(self) -> None:
        """Close connections and delete the sockets; the supervisor stops the processes."""
        shutil.rmtree(self._sockets, ignore_errors=True)
        await self.transport.close()
        await self._ledger_transport.close()

    def _start_process(
        self,
        name: str,
        args: list[str],
        ready: Ready,
        *,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        log = self.home.file("logs", f"{name}.log")
        process = Process(
            name, args, log=log, ready=ready, port=port, stopped_last=name == "ledger", environment=environment
        )
        return self._supervisor.start(process)

    async def _create_subnet(self) -> None:
        if any(each.subnet == self.subnet for each in (await self.ledger.subnets()).subnets):
            return
        new = m.SubnetSpec(network=NETWORK, name=SUBNET, cidr=self.settings.subnet, gateway=self.settings.gateway)
        await self.ledger.create_subnet(new.with_settings(parse_settings(self.settings.overrides)))

    async def _controller_args(self) -> list[str]:
        token = self.home.file(TOKEN_FILE)
        if not token.exists():
            # unique, because a database may have tokens of earlier demos
            name = f"podpool-up-{entropy.system_random().getrandbits(48):012x}"
            made = await self.ledger.create_token(f.CreateTokenRequest(name=name))
            self.home.write((made.secret or "").encode(), token.name)
        return [
            *("controller", "run", "--subnet", f"{NETWORK}.{SUBNET}", "--scarcity", self.settings.scarcity),
            *("--ledger", self.ledger_url, "--ledger-token-file", str(token)),
            *("--listen", f"{HOST}:{self.settings.ports['controller']}"),
            *("--settings", self.settings.overrides, "--kubeconfig", str(self.api.kubeconfig)),
        ]

    async def _start_dashboard(self) -> None:
        """Start the dashboard; the demo continues without it."""
        port = self.settings.ports["dashboard"]
        args = [
            *("dashboard", "--kubeconfig", str(self.api.kubeconfig), "--ledger", self.ledger_url),
            *("--ledger-token-file", str(self.home.file("ledger.db.admin-token")), "--listen", f"{HOST}:{port}"),
        ]
        log = self.home.file("logs", "dashboard.log")
        process = Process("dashboard", args, log=log, ready=_http_ok(port, "/"), port=port)
        self._supervisor.start(process, on_failure=lambda error: self._print(str(error)))
        try:
            await process.wait_ready()
        except StartFailed as error:
            self._print(str(error))
        else:
            self.dashboard = f"http://{HOST}:{port}"


def _http_ok(port: int, path: str = "/healthz") -> Ready:
    async def is_ok() -> bool:
        transport = HttpTransport(f"http://{HOST}:{port}")
        try:
            response = await transport.send(Request(method="GET", path=path))
            await response.read()
        except Unreachable:
            return False
        else:
            return response.status == 200
        finally:
            await transport.close()

    return is_ok


async def _accepts(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


async def install_plugin(home: StateDirectory, print_line: Print) -> Path:
    """Install the CNI plugin: the compiled one, or without a compiler the Python one."""
    loop = asyncio.get_running_loop()

    def on_progress(text: str) -> None:
        loop.call_soon_threadsafe(print_line, text)

    content = await asyncio.to_thread(plugin_content, local_first=True, on_progress=on_progress)
    return install(home.file("bin", "podpool").parent, content=content)


def check_ports(settings: DemoSettings) -> None:
    """Raise an error if a port is in use."""
    for name, port in settings.ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                raise PortInUse(name, port) from None


def lock_directory(home: StateDirectory) -> IO[str]:
    """Lock the state directory while the returned file is open."""
    lock = home.file(LOCK_FILE).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise AlreadyRunning(home.path) from None
    return lock

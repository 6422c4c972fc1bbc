"""The parts of the stage, started in their order and stopped in the other: ledger, controller, agents, page.

What must hold: a part that ends is started again; when the stage ends no part is left. Ports, plugin and the right to
the directory are looked at before anything is started.
"""

import asyncio
import fcntl
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from podpool.api.crds import crd_manifests
from podpool.cni.build import BuildFailed, NoCompiler
from podpool.cni.install import find_plugin, install, python_plugin
from podpool.core.errors import PodpoolError
from podpool.core.settings import parse_settings
from podpool.kube import config
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds as install_kinds
from podpool.lab.demo.api_server import Api
from podpool.lab.demo.kubelet import Door
from podpool.lab.demo.nads import attachments_kind
from podpool.lab.demo.processes import DoesNotStart, Process, Ready, Supervisor
from podpool.lab.demo.settings import LOCK, NETWORK, SUBNET, DemoSettings, Home
from podpool.ledger import admin_messages as f
from podpool.ledger import messages as m
from podpool.ledger.client import LedgerClient, Timeouts
from podpool.runtime import entropy
from podpool.runtime.http import HttpTransport
from podpool.runtime.transport import Request, Unreachable

HOST = "127.0.0.1"
NAMES = {"pocket": "API server", "dashboard": "page"}
SOON = 0.5
"""Seconds in which a plugin that was made before is there."""
Tell = Callable[[str], None]


class PortTaken(PodpoolError):
    """Somebody answers where a part should."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(
            f"port {port}, for the {NAMES.get(name, name)}, is in use: stop who has it (ss -ltnp shows that), "
            "or choose four others with --port 17780 (make up OPTIONS='--port 17780')"
        )


class RunsAlready(PodpoolError):
    """The same stage is being played."""

    def __init__(self, home: Path) -> None:
        super().__init__(f"podpool up runs already in {home}: end that first, or use another place with --home")


class Cluster:
    """The running parts."""

    def __init__(self, settings: DemoSettings, home: Home, supervisor: Supervisor, *, api: Api, tell: Tell) -> None:
        self.settings = settings
        self.home = home
        self.api = api
        self._supervisor = supervisor
        self._tell = tell
        self.subnet = m.SubnetName(network=NETWORK, name=SUBNET)
        self._sockets = Path(tempfile.mkdtemp(prefix="podpool-up-"))  # a socket's path must be short
        self._books = HttpTransport(self.ledger_url)
        self.road = config.from_kubeconfig(api.kubeconfig)
        self.kube = KubeClient(self.road)
        token_file = home.file("ledger.db.admin-token")
        self.ledger = LedgerClient(self._books, token=lambda: token_file.read_text().strip(), patience=Timeouts(), rng=entropy.system_random())
        self.doors = {
            name: Door(self._sockets / f"{name}.sock", home.file("nodes", name, "deletes"))
            for name in settings.node_names
        }
        self.agents: dict[str, Process] = {}
        self.controller: Process | None = None
        self.page = ""

    @property
    def ledger_url(self) -> str:
        """Where the ledger is."""
        return f"http://{HOST}:{self.settings.ports['ledger']}"

    async def start(self, *, boots: Callable[[str], str]) -> None:
        """Bring up all but the API server."""
        settings = self.settings
        database = settings.database or f"sqlite://{self.home.file('ledger.db')}"
        port = settings.ports["ledger"]
        where = ["--listen", f"{HOST}:{port}"]
        admin = str(self.home.file("ledger.db.admin-token"))
        ledger = self._begin(
            "ledger",
            ["ledger", "serve", *where, "--admin-token-file", admin],
            _answering(port),
            port=port,
            secrets={"PODPOOL_DATABASE": database},
        )
        await install_kinds(self.kube, [*crd_manifests(), attachments_kind()])
        await ledger.up()
        await self._make_subnet()
        port = settings.ports["controller"]
        self.controller = self._begin("controller", await self._controller_words(), _answering(port), port=port)
        for name in settings.node_names:
            self.start_agent(name, boot_id=boots(name))
        await asyncio.gather(self._start_page(), self.controller.up(), *(each.up() for each in self.agents.values()))

    def start_agent(self, node: str, *, boot_id: str) -> None:
        """Start the agent of a machine."""
        door = self.doors[node]
        words = [
            *("agent", "run", "--node", node, "--boot-id", boot_id, "--mode", self.settings.mode),
            *("--state", str(self.home.file("nodes", node, "journal")), "--deferred-deletes", str(door.deletes)),
            *("--socket", str(door.socket), "--listen", f"{HOST}:0", "--conf-dir", ""),
            *("--settings", self.settings.overrides, "--kubeconfig", str(self.api.kubeconfig)),
        ]
        self.agents[node] = self._begin(f"agent-{node}", words, lambda: _knocked(door.socket))

    async def close(self) -> None:
        """Let go of what is held here; the processes end with the supervisor."""
        shutil.rmtree(self._sockets, ignore_errors=True)
        await self.road.close()
        await self._books.close()

    def _begin(
        self,
        name: str,
        words: list[str],
        ready: Ready,
        *,
        port: int | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Process:
        log = self.home.file("logs", f"{name}.log")
        process = Process(name, words, log=log, ready=ready, port=port, needed=name == "ledger", secrets=secrets)
        return self._supervisor.begin(process)

    async def _make_subnet(self) -> None:
        if any(each.subnet == self.subnet for each in (await self.ledger.subnets()).subnets):
            return
        new = m.SubnetSpec(network=NETWORK, name=SUBNET, cidr=self.settings.subnet, gateway=self.settings.gateway)
        await self.ledger.create_subnet(new.with_settings(parse_settings(self.settings.overrides)))

    async def _controller_words(self) -> list[str]:
        token = self.home.file("cluster-token")
        if not token.exists():
            name = f"podpool-up-{entropy.system_random().getrandbits(48):012x}"  # an earlier stage may have left its own
            made = await self.ledger.create_token(f.CreateTokenRequest(name=name))
            self.home.write((made.secret or "").encode(), token.name)
        return [
            *("controller", "run", "--subnet", f"{NETWORK}.{SUBNET}", "--scarcity", self.settings.scarcity),
            *("--ledger", self.ledger_url, "--ledger-token-file", str(token)),
            *("--listen", f"{HOST}:{self.settings.ports['controller']}"),
            *("--settings", self.settings.overrides, "--kubeconfig", str(self.api.kubeconfig)),
        ]

    async def _start_page(self) -> None:
        """Have the page; the stage goes on without."""
        port = self.settings.ports["dashboard"]
        words = [
            *("dashboard", "--kubeconfig", str(self.api.kubeconfig), "--ledger", self.ledger_url),
            *("--ledger-token-file", str(self.home.file("ledger.db.admin-token")), "--listen", f"{HOST}:{port}"),
        ]
        log = self.home.file("logs", "dashboard.log")
        process = Process("dashboard", words, log=log, ready=_answering(port, "/"), port=port)
        self._supervisor.begin(process, otherwise=lambda error: self._tell(str(error)))
        try:
            await process.up()
        except DoesNotStart as error:
            self._tell(str(error))
        else:
            self.page = f"http://{HOST}:{port}"


def _answering(port: int, path: str = "/healthz") -> Ready:
    async def answers() -> bool:
        road = HttpTransport(f"http://{HOST}:{port}")
        try:
            answer = await road.send(Request(method="GET", path=path))
            await answer.read()
        except Unreachable:
            return False
        else:
            return answer.status == 200
        finally:
            await road.close()

    return answers


async def _knocked(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


async def the_plugin(home: Home, tell: Tell) -> Path:
    """Have the plugin: the small one where a compiler is, else the one in Python, which says so."""
    telling = asyncio.get_running_loop().call_later(SOON, tell, "compiling the plugin, once: this may take a minute")
    try:
        made = (await asyncio.to_thread(find_plugin, local_first=True)).read_bytes()
    except (NoCompiler, BuildFailed) as error:
        tell(f"{error}; until then Pods are connected by the plugin in Python, which is slower")
        made = python_plugin()
    finally:
        telling.cancel()
    return install(home.file("bin", "podpool").parent, content=made)


def refuse_taken_ports(settings: DemoSettings) -> None:
    """See that every part finds its port free."""
    for name, port in settings.ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                raise PortTaken(name, port) from None


def alone(home: Home) -> IO[str]:
    """Hold the directory as long as what is given stays open."""
    lock = home.file(LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RunsAlready(home.path) from None
    return lock

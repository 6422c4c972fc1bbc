"""The API server of the stage: pocket as a process, or a real one where the checkout has it."""

import importlib
import sys
from pathlib import Path
from typing import Protocol

import podpool
from podpool.core.errors import PodpoolError
from podpool.lab.demo.processes import Process, Supervisor
from podpool.lab.demo.settings import DemoSettings, Home


class NoRealApi(PodpoolError):
    """The real programs are not there."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"there is no real API server to start ({reason}): type 'make parts' in a checkout of podpool, "
            "or leave --api real away"
        )


class Api(Protocol):
    """An API server that answers."""

    kubeconfig: Path

    def stop(self) -> None:
        """End it, unless the supervisor does."""


class PocketApi:
    """Pocket, in a file."""

    def __init__(self, home: Home) -> None:
        self.kubeconfig = home.file("kubeconfig")
        self._home = home

    async def start(self, supervisor: Supervisor, port: int) -> None:
        """Start it, and wait until it has told where it is."""
        self.kubeconfig.unlink(missing_ok=True)
        words = [
            *("apiserver", "serve", "--listen", f"127.0.0.1:{port}"),
            *("--file", str(self._home.file("pocket.db")), "--write-kubeconfig", str(self.kubeconfig)),
        ]
        log = self._home.file("logs", "pocket.log")
        await supervisor.begin(Process("API server (pocket)", words, log=log, ready=self._told, needed=True)).up()

    async def _told(self) -> bool:
        return self.kubeconfig.exists() and bool(self.kubeconfig.read_text())

    def stop(self) -> None:
        """Leave it to the supervisor."""


def real_api(home: Home) -> Api:
    """Start etcd and kube-apiserver as the tests do."""
    root = Path(podpool.__file__).resolve().parents[2]
    if not (root / "parts" / "control_plane.py").exists():
        raise NoRealApi("this podpool was not started from a checkout")
    sys.path.insert(0, str(root))
    try:
        plane: Api = importlib.import_module("parts.control_plane").ControlPlane(home.file("plane", "ca.pem").parent)
        plane.start()  # type: ignore[attr-defined]  # the parts are not of the package
        home.write(plane.kubeconfig.read_bytes(), "kubeconfig")  # where podpool's own commands look for a stage's
        plane.kubeconfig = home.file("kubeconfig")
    except Exception as error:  # noqa: BLE001  whatever keeps a real server from starting is said in its words
        raise NoRealApi(str(error)) from None
    return plane


async def api_server(settings: DemoSettings, home: Home, supervisor: Supervisor) -> Api:
    """Start the one that is wanted."""
    if settings.api == "real":
        return real_api(home)
    api = PocketApi(home)
    await api.start(supervisor, settings.ports["pocket"])
    return api

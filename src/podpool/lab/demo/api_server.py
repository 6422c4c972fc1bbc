"""The API server of the demo cluster: the lite one, or kube-apiserver in a checkout."""

import importlib
import sys
from pathlib import Path
from typing import Protocol

import podpool
from podpool.core.errors import PodpoolError
from podpool.lab.demo.processes import Process, Supervisor
from podpool.lab.demo.settings import DemoSettings, StateDirectory


class RealApiUnavailable(PodpoolError):
    """kube-apiserver and etcd are not built."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"kube-apiserver cannot be started ({reason}): run 'make parts' in a checkout of podpool, "
            "or omit --api real"
        )


class ApiProcess(Protocol):
    """A running API server."""

    kubeconfig: Path

    def stop(self) -> None:
        """Stop it, unless the supervisor does."""


class LiteApi:
    """The lite API server, with its objects in a file."""

    def __init__(self, home: StateDirectory) -> None:
        self.kubeconfig = home.file("kubeconfig")
        self._home = home

    async def start(self, supervisor: Supervisor, port: int) -> None:
        """Start it and wait until it has written the kubeconfig."""
        self.kubeconfig.unlink(missing_ok=True)
        args = [
            *("apiserver", "serve", "--listen", f"127.0.0.1:{port}"),
            *("--file", str(self._home.file("apiserver.db")), "--write-kubeconfig", str(self.kubeconfig)),
        ]
        log = self._home.file("logs", "apiserver.log")
        process = Process("API server", args, log=log, ready=self._has_kubeconfig, stopped_last=True)
        await supervisor.start(process).wait_ready()

    async def _has_kubeconfig(self) -> bool:
        return self.kubeconfig.exists() and bool(self.kubeconfig.read_text())

    def stop(self) -> None:
        """Do nothing: the supervisor stops it."""


def real_api(home: StateDirectory) -> ApiProcess:
    """Start etcd and kube-apiserver from the checkout."""
    root = Path(podpool.__file__).resolve().parents[2]
    if not (root / "parts" / "control_plane.py").exists():
        raise RealApiUnavailable("this podpool was not started from a checkout")
    sys.path.insert(0, str(root))
    try:
        plane: ApiProcess = importlib.import_module("parts.control_plane").ControlPlane(
            home.file("plane", "ca.pem").parent
        )
        plane.start()  # type: ignore[attr-defined]  # parts is not in the package
        home.write(plane.kubeconfig.read_bytes(), "kubeconfig")  # where other commands find it
        plane.kubeconfig = home.file("kubeconfig")
    except Exception as error:  # noqa: BLE001  any failure is reported with its text
        raise RealApiUnavailable(str(error)) from None
    return plane


async def start_api_server(settings: DemoSettings, home: StateDirectory, supervisor: Supervisor) -> ApiProcess:
    """Start the chosen API server."""
    if settings.api == "real":
        return real_api(home)
    api = LiteApi(home)
    await api.start(supervisor, settings.ports["API server"])
    return api

"""The lite API server as a process, and kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from parts.daemon import Daemon
from parts.loopback import free_port
from parts.recipes import program

if TYPE_CHECKING:
    from pathlib import Path

PODPOOL = (sys.executable, "-m", "podpool")


class ApiServerProcess:
    """`podpool apiserver serve`, on a port of its own."""

    def __init__(self, home: Path, *args: str) -> None:
        self.home = home
        self.port = free_port()
        self.kubeconfig = home / "api_server.kubeconfig"
        arguments = ["--listen", f"127.0.0.1:{self.port}", "--write-kubeconfig", str(self.kubeconfig), *args]
        self.process = Daemon(
            [*PODPOOL, "apiserver", "serve", *arguments], log=home / "api_server.log", ready=self.kubeconfig.exists
        )

    def start(self) -> None:
        """Start it, and wait until it has written its kubeconfig."""
        self.kubeconfig.unlink(missing_ok=True)
        self.process.start()


class Kubectl:
    """kubectl, on one server, in one namespace."""

    def __init__(self, kubeconfig: Path, home: Path, namespace: str) -> None:
        home.mkdir(exist_ok=True)
        arguments = ("--kubeconfig", str(kubeconfig), "--cache-dir", str(home / "cache"), "-n", namespace)
        self._command = (str(program("kubectl")), *arguments)
        self._home = home

    def popen(self, *args: str) -> subprocess.Popen[str]:
        """Start kubectl; the caller ends it."""
        return subprocess.Popen([*self._command, *args], stdout=subprocess.PIPE, text=True, env=self._environment(""))

    def run(self, *args: str, manifest: str = "", editor: str = "") -> str:
        """Run kubectl, and return its output, with the exit code if that is not 0."""
        done = subprocess.run(
            [*self._command, *args],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            input=manifest,
            env=self._environment(editor),
            timeout=60,
        )
        return done.stdout + (f"exit {done.returncode}\n" if done.returncode else "")

    def _environment(self, editor: str) -> dict[str, str]:
        return {**os.environ, "HOME": str(self._home), "EDITOR": editor, "KUBECTL_COMMAND_HEADERS": "false"}

"""Pocket as users start it, and kubectl as they type it."""

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


class Pocket:
    """`podpool pocket serve`, on a port of its own."""

    def __init__(self, home: Path, *words: str) -> None:
        self.home = home
        self.port = free_port()
        self.kubeconfig = home / "pocket.kubeconfig"
        told = ["--listen", f"127.0.0.1:{self.port}", "--write-kubeconfig", str(self.kubeconfig), *words]
        self.process = Daemon(
            [*PODPOOL, "pocket", "serve", *told], log=home / "pocket.log", ready=self.kubeconfig.exists
        )

    def start(self) -> None:
        """Start it, and wait until it has told where it is."""
        self.kubeconfig.unlink(missing_ok=True)
        self.process.start()


class Kubectl:
    """kubectl, on one server, in one namespace."""

    def __init__(self, kubeconfig: Path, home: Path, namespace: str) -> None:
        home.mkdir(exist_ok=True)
        told = ("--kubeconfig", str(kubeconfig), "--cache-dir", str(home / "cache"), "-n", namespace)
        self._words = (str(program("kubectl")), *told)
        self._home = home

    def popen(self, *words: str) -> subprocess.Popen[str]:
        """Start it; whoever asked for it ends it."""
        return subprocess.Popen([*self._words, *words], stdout=subprocess.PIPE, text=True, env=self._environment(""))

    def say(self, *words: str, manifest: str = "", editor: str = "") -> str:
        """Run it, and tell all that it says, with its exit code where that is not 0."""
        done = subprocess.run(
            [*self._words, *words],
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

"""`podpool up` as a person starts it, in a place of the test's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from parts.daemon import dying_with_us
from parts.loopback import free_port
from parts.polling import until

if TYPE_CHECKING:
    from collections.abc import Sequence

PODPOOL = (sys.executable, "-m", "podpool")


class Evening:
    """One stage, which may be opened more than once."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_ports()
        self.log = home.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def words(self) -> list[str]:
        """How it is started, without what a test adds."""
        return [*PODPOOL, "up", "--home", str(self.home), "--port", str(self.port)]

    @property
    def kubeconfig(self) -> Path:
        """The way to its API server."""
        return self.home / "kubeconfig"

    def ask(self, *words: str) -> tuple[int, str]:
        """Run it to its end; gives its exit code and all that it said."""
        done = subprocess.run(
            [*dying_with_us(), *self.words, *words], check=False, capture_output=True, text=True, timeout=280
        )
        return done.returncode, done.stdout + done.stderr

    def open(self, *words: str, until_said: str) -> None:
        """Start it, and wait until it has said something."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([*dying_with_us(), *self.words, *words], stdout=log, stderr=log)
        process = self._process

        def said() -> bool:
            assert process.poll() is None, self.said
            return until_said in self.said

        until(said, f"it says {until_said!r}")

    @property
    def said(self) -> str:
        """What it has said so far."""
        return self.log.read_text()

    def close(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it, and wait for that; gives its exit code."""
        assert self._process
        self._process.send_signal(number)
        code = self._process.wait(60)
        self._process = None
        return code

    def left_over(self) -> Sequence[str]:
        """The processes that work in its place."""
        mark = str(self.home).encode()
        return [
            path.parent.name
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if mark in _content(path) and path.parent.name != str(os.getpid())
        ]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def free_ports() -> int:
    """The first of four ports that are free."""
    while True:
        first = free_port()
        if first < 65000 and all(_free(first + place) for place in range(1, 4)):
            return first


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

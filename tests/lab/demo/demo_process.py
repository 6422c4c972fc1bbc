"""`podpool up` as a process, in a directory of the test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parts.daemon import dying_with_us
from parts.loopback import free_ports
from parts.polling import TIMEOUT, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PODPOOL = (sys.executable, "-m", "podpool")


class DemoProcess:
    """A demo, which may be started more than once; `program` is another way to start podpool."""

    def __init__(self, home: Path, *, program: Sequence[str] = PODPOOL, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.port = free_ports(4)
        self.log = home.with_suffix(".log")
        self._program = program
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        """The command line, without options of a test."""
        return [*dying_with_us(), *self._program, "up", "--home", str(self.home), "--port", str(self.port)]

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig that it printed."""
        found = re.search(r"export KUBECONFIG=(\S+)", self.output)
        assert found, self.output
        return Path(found[1])

    @property
    def dashboard(self) -> str:
        """The URL of the dashboard that it printed."""
        found = re.search(r"dashboard: (\S+)", self.output)
        assert found, self.output
        return found[1]

    def run(self, *words: str) -> tuple[int, str]:
        """Run it until it exits; return its exit code and output."""
        done = subprocess.run(
            [*self.command, *words],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._env,
            timeout=280,
        )
        return done.returncode, done.stdout + done.stderr

    def start(self, *words: str, until: str) -> None:
        """Start it, and wait for a text in its output."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self.command, *words], stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._env
            )
        self.wait_for_output(until)

    def wait_for_output(self, what: str, *, times: int = 1, timeout: float = TIMEOUT) -> None:
        """Wait until a text appeared so often in its output."""
        process = self._process
        assert process

        def printed() -> bool:
            assert process.poll() is None, self.output
            return self.output.count(what) >= times

        until(printed, f"it prints {what!r}", timeout=timeout)

    def press_enter(self) -> None:
        """Press Enter."""
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    @property
    def output(self) -> str:
        """Its output so far."""
        return self.log.read_text()

    def audit(self) -> dict[str, Any]:
        """Run `podpool audit -o json` with its kubeconfig."""
        environment = {**self._env, "KUBECONFIG": str(self.kubeconfig)}
        words = [*PODPOOL, "audit", "-o", "json"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Stop it; return its exit code."""
        assert self._process
        assert self._process.stdin
        self._process.send_signal(number)
        code = self._process.wait(60)
        self._process.stdin.close()
        self._process = None
        return code

    def processes(self) -> Sequence[str]:
        """The processes that use its directory."""
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

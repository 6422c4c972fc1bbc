"""`podpool up` as a person starts it, in a place of the test's own."""

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
from parts.polling import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PODPOOL = (sys.executable, "-m", "podpool")


class Evening:
    """One stage, which may be opened more than once; `program` is another way to start podpool."""

    def __init__(self, home: Path, *, program: Sequence[str] = PODPOOL, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.port = free_ports(4)
        self.log = home.with_suffix(".log")
        self._program = program
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def words(self) -> list[str]:
        """How it is started, without what a test adds."""
        return [*dying_with_us(), *self._program, "up", "--home", str(self.home), "--port", str(self.port)]

    @property
    def kubeconfig(self) -> Path:
        """The way to its API server, as it was told to be pasted."""
        found = re.search(r"export KUBECONFIG=(\S+)", self.said)
        assert found, self.said
        return Path(found[1])

    @property
    def page(self) -> str:
        """Where the page is, as it was told."""
        found = re.search(r"the page: (\S+)", self.said)
        assert found, self.said
        return found[1]

    def ask(self, *words: str) -> tuple[int, str]:
        """Run it to its end; gives its exit code and all that it said."""
        done = subprocess.run(
            [*self.words, *words],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._env,
            timeout=280,
        )
        return done.returncode, done.stdout + done.stderr

    def open(self, *words: str, until_said: str) -> None:
        """Start it, and wait until it has said something."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self.words, *words], stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._env
            )
        self.until_said(until_said)

    def until_said(self, what: str, *, times: int = 1, patience: float = PATIENCE) -> None:
        """Wait until it has said something so often."""
        process = self._process
        assert process

        def said() -> bool:
            assert process.poll() is None, self.said
            return self.said.count(what) >= times

        until(said, f"it says {what!r}", patience=patience)

    def press_enter(self) -> None:
        """Press Enter in its terminal."""
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    @property
    def said(self) -> str:
        """What it has said so far."""
        return self.log.read_text()

    def audit(self) -> dict[str, Any]:
        """Type `podpool audit -o json` after the line that was told to be pasted."""
        environment = {**self._env, "KUBECONFIG": str(self.kubeconfig)}
        words = [*PODPOOL, "audit", "-o", "json"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    def close(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it, and wait for that; gives its exit code."""
        assert self._process
        assert self._process.stdin
        self._process.send_signal(number)
        code = self._process.wait(60)
        self._process.stdin.close()
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

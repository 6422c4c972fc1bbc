"""A server process that a test starts, stops, pauses and kills.

It ends with its parent, even when that is killed: the kernel sends SIGKILL (PR_SET_PDEATHSIG). The signal follows the
thread that started it, so it is started in the main thread; a change of user clears the request, so `setpriv` sets both
in the right order.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from parts.debian import command
from parts.polling import TIMEOUT, until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LAST_LINES = 20


class StartFailed(Exception):
    """A server did not start; the message ends with the last lines of its log."""


class Daemon:
    """One server process. `ready` returns whether it serves; it is called only while the process runs."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path,
        ready: Callable[[], bool],
        user: str | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.argv = argv
        self.log = log
        self.ready = ready
        self.user = user
        self.stop_signal = stop_signal
        self.env = env
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it serves."""
        if self.alive:
            raise StartFailed(f"{self.argv[0]} runs already")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*dying_with_us(self.user), *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=self.env,
            )
        try:
            until(self.serves, f"{self.argv[0]} serves")
        except TimeoutError as error:
            self.kill()
            raise StartFailed(f"{error}; the end of {self.log}:\n{self.last_lines()}") from None

    def serves(self) -> bool:
        """Return whether it serves; raises if the process has exited."""
        if not self.alive:
            raise StartFailed(f"{self.argv[0]} has ended; the end of {self.log}:\n{self.last_lines()}")
        return self.ready()

    def stop(self) -> None:
        """Stop it with its stop signal; kill it if it does not exit."""
        self.end_by(self.stop_signal)

    def kill(self) -> None:
        """Kill it without cleanup."""
        self.end_by(signal.SIGKILL)

    def end_by(self, signal_: signal.Signals) -> None:
        """Send a signal, also to a paused process, and wait for the exit."""
        if self.process is None:
            return
        self.process.send_signal(signal_)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def pause(self) -> None:
        """Pause it: its connections stay open, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.pid}/task")
        until(lambda: {"T"} == {state_of(each) for each in threads.iterdir()}, f"{self.argv[0]} stands still")

    def resume(self) -> None:
        """Resume it."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Stop it and start it."""
        self.stop()
        self.start()

    def settle(self) -> None:
        """Make it run and serve again, whatever a test did to it."""
        if not self.alive:
            self.start()
        self.resume()
        until(self.serves, f"{self.argv[0]} serves")

    @property
    def alive(self) -> bool:
        """Return whether the process exists, also if it is paused."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """Return the process ID."""
        if self.process is None:
            raise ProcessLookupError(f"{self.argv[0]} does not run")
        return self.process.pid

    def last_lines(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])


def dying_with_us(user: str | None = None) -> list[str]:
    """Return the prefix that makes a command end with this process and run as `user`."""
    argv = [command("setpriv"), "--pdeathsig", "KILL"]
    if user:
        argv += ["--reuid", user, "--regid", str(pwd.getpwnam(user).pw_gid), "--clear-groups"]
    return [*argv, "--"]


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    return state_of(Path(f"/proc/{pid}")) not in "ZX"


def state_of(process: Path) -> str:
    """Return the state letter of a process or thread; X if it does not exist."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"

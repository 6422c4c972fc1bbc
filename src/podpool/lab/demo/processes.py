"""Supervised processes: one that exits or is killed is restarted.

They stop with this process, even if it is killed: the kernel signals them.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from podpool.core.errors import PodpoolError

PODPOOL = (sys.executable, "-m", "podpool")
RESTART_DELAY = 0.3
"""Seconds before a restart."""
MAX_FAILED_STARTS = 4
"""Consecutive exits without being ready, after which a process is given up."""
START_TIMEOUT = 30.0
GRACE = 8.0
_PR_SET_PDEATHSIG = 1
_LISTENING = "0A"
"""The state LISTEN in /proc/net/tcp."""

Ready = Callable[[], Awaitable[bool]]


class StartFailed(PodpoolError):
    """A component does not start."""

    def __init__(self, name: str, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
        super().__init__(f"the {name} does not start; last lines of {log}:\n  " + "\n  ".join(lines))


class Process:
    """A process of the demo."""

    def __init__(
        self,
        name: str,
        args: Sequence[str],
        *,
        log: Path,
        ready: Ready,
        port: int | None = None,
        stopped_last: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.stopped_last = stopped_last
        """Whether others need it to stop cleanly."""
        self.starts = 0
        self.ready = asyncio.Event()
        self._command = [*PODPOOL, *args]
        self._log = log
        self._is_ready = ready
        self._port = port
        """Its port: it is ready only if the process itself listens there."""
        # variables of the user are for other installations
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PODPOOL_")}
        self._environment |= environment or {}  # not arguments, which every user of the machine sees
        self._running: asyncio.subprocess.Process | None = None
        self._wanted = True

    async def run(self) -> None:
        """Run and restart it until it is stopped."""
        failed_starts = 0
        while self._wanted:
            self.starts += 1
            with self._log.open("ab") as log:
                self._running = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C reaches only this process, which stops the others in order
                    preexec_fn=_stop_with_parent,
                )
            watcher = asyncio.ensure_future(self._watch())
            await self._running.wait()
            watcher.cancel()
            failed_starts = 0 if self.ready.is_set() else failed_starts + 1
            self.ready.clear()
            if failed_starts >= MAX_FAILED_STARTS:
                raise StartFailed(self.name, self._log)
            await asyncio.sleep(RESTART_DELAY)

    async def wait_ready(self) -> None:
        """Wait until it is ready."""
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await self.ready.wait()
        except TimeoutError:
            raise StartFailed(self.name, self._log) from None

    def kill(self) -> None:
        """Send SIGKILL; it is restarted."""
        self._send(signal.SIGKILL)

    async def stop(self, *, kill: bool = False) -> None:
        """Stop it for good."""
        self._wanted = False
        self._send(signal.SIGKILL if kill else signal.SIGTERM)
        if self._running is None:
            return
        try:
            async with asyncio.timeout(GRACE):
                await self._running.wait()
        except TimeoutError:
            self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._running is not None and self._running.returncode is None:
            self._running.send_signal(number)

    async def _watch(self) -> None:
        while not self.ready.is_set():
            if self._listens() and await self._is_ready():
                self.ready.set()
            await asyncio.sleep(0.05)

    def _listens(self) -> bool:
        if self._port is None or self._running is None:
            return self._port is None
        return listens(self._running.pid, self._port)


class Supervisor:
    """All processes of the demo."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes with the error of a process that does not start."""
        self._tasks: dict[Process, asyncio.Task[None]] = {}

    def start(self, process: Process, *, on_failure: Callable[[StartFailed], None] | None = None) -> Process:
        """Run a process; if it does not start, call `on_failure`, or else fail."""

        def on_exit(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, StartFailed) and on_failure:
                on_failure(error)
            elif error and not self.failed.done():
                self.failed.set_exception(error)

        task = asyncio.ensure_future(process.run())
        task.add_done_callback(on_exit)
        self._tasks[process] = task
        return process

    async def stop(self) -> None:
        """Stop all: clients first, then servers."""
        for last in (False, True):
            await asyncio.gather(*(each.stop() for each in self._tasks if each.stopped_last is last))
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self.failed.cancel()


def listens(pid: int, port: int) -> bool:
    """Return whether this process listens on a port."""
    proc = Path(f"/proc/{pid}")
    try:
        rows = [line.split() for line in (proc / "net" / "tcp").read_text().splitlines()[1:]]
        sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTENING and row[1].endswith(f":{port:04X}")}
        return any(str(each.readlink()) in sockets for each in (proc / "fd").iterdir())
    except OSError:  # it has exited, or closed a file meanwhile
        return False


def _stop_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

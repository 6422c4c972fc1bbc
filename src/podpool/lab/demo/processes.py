"""Processes that are kept running: one that ends by itself, or is killed, is started again.

They end with whoever started them, even when that is killed: the kernel tells them.
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
AGAIN = 0.3
"""Seconds before it is started again,"""
HOPELESS = 4
"""unless it has ended this often without ever being ready."""
PATIENCE = 30.0
GRACE = 8.0
_PR_SET_PDEATHSIG = 1
_LISTENING = "0A"
"""As the kernel writes the state of a socket."""

Ready = Callable[[], Awaitable[bool]]


class DoesNotStart(PodpoolError):
    """A part of the stage that does not come up."""

    def __init__(self, name: str, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
        super().__init__(f"the {name} does not start; the end of {log}:\n  " + "\n  ".join(lines))


class Process:
    """One process."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        *,
        log: Path,
        ready: Ready,
        port: int | None = None,
        needed: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.needed = needed
        """Whether others need it to end in good order."""
        self.starts = 0
        self.ready = asyncio.Event()
        self._words = [*PODPOOL, *words]
        self._log = log
        self._is_ready = ready
        self._port = port
        """Where it answers: who else does there does not count."""
        # what the user has set for other installations is not for this one
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PODPOOL_")}
        self._environment |= secrets or {}  # words are seen by everybody on the machine
        self._running: asyncio.subprocess.Process | None = None
        self._wanted = True

    async def keep(self) -> None:
        """Keep it running until it is stopped."""
        in_vain = 0
        while self._wanted:
            self.starts += 1
            with self._log.open("ab") as log:
                self._running = await asyncio.create_subprocess_exec(
                    *self._words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C is for us, who stop it in order
                    preexec_fn=_die_with_us,
                )
            watching = asyncio.ensure_future(self._watch())
            await self._running.wait()
            watching.cancel()
            in_vain = 0 if self.ready.is_set() else in_vain + 1
            self.ready.clear()
            if in_vain >= HOPELESS:
                raise DoesNotStart(self.name, self._log)
            await asyncio.sleep(AGAIN)

    async def up(self) -> None:
        """Wait until it serves."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self.ready.wait()
        except TimeoutError:
            raise DoesNotStart(self.name, self._log) from None

    def kill(self) -> None:
        """End it without a chance to tidy up; it comes again."""
        self._send(signal.SIGKILL)

    async def stop(self, *, kill: bool = False) -> None:
        """End it for good."""
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
    """All processes of the stage."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends with the error of a process that does not start."""
        self._kept: dict[Process, asyncio.Task[None]] = {}

    def begin(self, process: Process, *, otherwise: Callable[[DoesNotStart], None] | None = None) -> Process:
        """Keep a process running; without it the stage fails, unless told what to do otherwise."""

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, DoesNotStart) and otherwise:
                otherwise(error)
            elif error and not self.failed.done():
                self.failed.set_exception(error)

        task = asyncio.ensure_future(process.keep())
        task.add_done_callback(ended)
        self._kept[process] = task
        return process

    async def stop(self) -> None:
        """End all: first who asks, then who answers."""
        for wave in (False, True):
            await asyncio.gather(*(each.stop() for each in self._kept if each.needed is wave))
        for task in self._kept.values():
            task.cancel()
        await asyncio.gather(*self._kept.values(), return_exceptions=True)
        self.failed.cancel()


def listens(pid: int, port: int) -> bool:
    """Tell whether it is this process that listens on a port."""
    home = Path(f"/proc/{pid}")
    try:
        rows = [line.split() for line in (home / "net" / "tcp").read_text().splitlines()[1:]]
        here = {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTENING and row[1].endswith(f":{port:04X}")}
        return any(str(each.readlink()) in here for each in (home / "fd").iterdir())
    except OSError:  # it has ended, or closed one meanwhile
        return False


def _die_with_us() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

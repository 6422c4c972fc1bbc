"""Machines and their processes: what can be killed, paused and rebooted, and what survives each.

A kill keeps what a process has written. A reboot keeps what it has synced, and a random part of what follows. A pause
stops a machine's processes while its clocks run on.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from errno import EBADF, EIO
from typing import Any, TypeVar

from podpool.lab.sim.event_loop import PROCESS, CallbackOwner, VirtualHandle, VirtualLoop
from podpool.runtime.entropy import new_uuid

T = TypeVar("T")

MAX_SYNC_SECONDS = 0.005
EPOCH = 1_800_000_000.0


class MachineClock:
    """The clocks of one machine: the boot clock starts with each boot, the wall clock may be wrong."""

    def __init__(self, loop: VirtualLoop, *, wall_error: float = 0.0) -> None:
        self._loop = loop
        self.booted_at = loop.time()
        self.wall_error = wall_error

    def boot(self) -> float:
        """Return the seconds since this boot."""
        return self._loop.time() - self.booted_at

    def wall(self) -> float:
        """Return the seconds since 1970 by this machine's clock."""
        return EPOCH + self._loop.time() + self.wall_error


class MachineDisk:
    """Files in memory, each with its synced content. `sync_seconds` gives the duration of a sync; None is zero.

    A killed process changes nothing: its file descriptors are closed.
    """

    def __init__(self, sync_seconds: Callable[[], float] | None = None) -> None:
        self._sync_seconds = sync_seconds
        self._files: dict[str, bytearray] = {}
        self._synced: dict[str, bytes] = {}
        self._replaced: dict[str, bytes | None] = {}
        """The former content of replaced files whose directory is not synced yet."""
        self._dropped: dict[str, tuple[int, int]] = {}
        """The part of a file that a failed sync dropped: no later sync writes it."""
        self.failing_syncs = 0
        """How many of the next syncs fail."""
        self._holder: CallbackOwner | None = None

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if it does not exist."""
        return bytes(self._files[name]) if name in self._files else None

    def append(self, name: str, data: bytes) -> None:
        """Append to a file."""
        _require_descriptor()
        self._files.setdefault(name, bytearray()).extend(data)

    async def sync(self, name: str) -> None:
        """Make the present content survive a reboot."""
        written = bytes(self._files.get(name, b""))
        await self._wait_for_disk()
        _require_descriptor()
        synced = self._synced.get(name, b"")
        if self.failing_syncs:
            self.failing_syncs -= 1
            self._dropped[name] = (min(self._dropped.get(name, (len(synced), 0))[0], len(synced)), len(written))
            raise OSError(EIO, "Input/output error")
        if self._files.get(name, b"").startswith(written) and len(written) >= len(synced):
            self._synced[name] = self._on_platter(name, written)

    def _on_platter(self, name: str, written: bytes) -> bytes:
        """Return what a sync leaves of a file's content: zeros where a failed one dropped it."""
        start, end = self._dropped.get(name, (0, 0))
        return written[:start] + bytes(len(written[start:end])) + written[end:]

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file."""
        _require_descriptor()
        del self._files[name][size:]

    async def replace(self, name: str, data: bytes) -> None:
        """Write a temporary file, sync it, and rename it to the name."""
        await self._wait_for_disk()
        _require_descriptor()
        self._replaced[name] = self._synced.get(name)
        self._files[name], self._synced[name] = bytearray(data), data
        self._dropped.pop(name, None)
        await self._wait_for_disk()
        self._replaced.pop(name, None)

    async def _wait_for_disk(self) -> None:
        if self._sync_seconds is not None:
            await asyncio.sleep(self._sync_seconds())

    def remove(self, name: str) -> None:
        """Remove a file."""
        _require_descriptor()
        for files in (self._files, self._synced, self._replaced, self._dropped):
            files.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of the files."""
        return sorted(self._files)

    def try_lock(self) -> str | None:
        """Lock the disk for the present process until it is killed; return the holder if another one runs."""
        process = PROCESS.get()
        if self._holder is not None and self._holder.alive and self._holder is not process:
            return self._holder.name
        self._holder = process
        return None

    def synced(self) -> "MachineDisk":
        """Return the least that a power loss would leave."""
        left = MachineDisk()
        left._files = {name: bytearray(self._replaced.get(name) or data) for name, data in self._synced.items()}
        return left

    def damage(self, name: str, rng: random.Random) -> None:
        """Change one byte of a file."""
        if self._files.get(name):
            at = rng.randrange(len(self._files[name]))
            self._files[name][at] ^= 1 + rng.randrange(255)
            self._synced[name] = bytes(self._files[name])

    def lose_power(self, rng: random.Random) -> None:
        """Keep what was synced, and a random prefix of what was written since: a torn tail.

        A file that was just replaced may have its former content.
        """
        for name, before in list(self._replaced.items()):
            if rng.random() < 0.5:
                self.remove(name)
                if before is not None:
                    self._files[name], self._synced[name] = bytearray(before), before
        self._replaced.clear()
        for name, written in list(self._files.items()):
            synced = self._synced.get(name, b"")
            left = self._on_platter(name, bytes(written))
            kept = left if left.startswith(synced) else synced
            self._files[name] = bytearray(kept[: rng.randint(len(synced), len(kept))])
            self._synced[name] = bytes(self._files[name])
        self._dropped.clear()


def _require_descriptor() -> None:
    process = PROCESS.get()
    if process is not None and not process.alive:
        raise OSError(EBADF, "Bad file descriptor")


class SimProcess:
    """Runs until it is killed. Every task and callback that it starts belongs to it."""

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        self.name = name
        self.alive = True
        self.backlog: list[VirtualHandle] | None = None
        self.kill_scheduled = False
        self._steps_left = 0
        self._on_scheduled_kill: Callable[[], None] | None = None
        self.loop = loop
        self._on_exit: dict[Callable[[], None], None] = {}  # in order
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)
        loop.owners.append(self)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as this process."""
        task = self.loop.create_task(coroutine, name=self.name, context=self.context)
        task.add_done_callback(self._report)
        return task

    def kill(self) -> None:
        """Stop it between two awaits."""
        self.alive = self.kill_scheduled = False
        callbacks, self._on_exit = self._on_exit, {}
        for callback in callbacks:
            callback()

    def schedule_kill(self, steps: int, then: Callable[[], None]) -> None:
        """Kill it after a number of its own steps, wherever it is by then, and call `then`."""
        self.kill_scheduled, self._steps_left, self._on_scheduled_kill = True, steps, then

    def cancel_kill(self) -> None:
        """Cancel a scheduled kill."""
        self.kill_scheduled = False

    def count_step(self) -> None:
        """Count a step towards the scheduled kill."""
        self._steps_left -= 1
        if self._steps_left <= 0:
            self.kill_scheduled, then = False, self._on_scheduled_kill
            self.kill()
            if then:
                then()

    def pause(self) -> None:
        """Stop running while time passes for everything else."""
        self.backlog = self.backlog or []

    def resume(self) -> None:
        """Continue, with all that became due meanwhile."""
        kept, self.backlog = self.backlog, None
        self.loop.requeue(kept or [])

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Call back when it is killed, as a peer notices a broken connection."""
        self._on_exit[callback] = None

    def remove_exit_callback(self, callback: Callable[[], None]) -> None:
        """Remove a callback of `on_exit`."""
        self._on_exit.pop(callback, None)

    def _report(self, task: Any) -> None:  # noqa: ANN401  asyncio.Task, invariant
        if not task.cancelled() and task.exception() is not None:
            self.loop.call_exception_handler({"message": f"{self.name} failed", "exception": task.exception()})


class SimMachine:
    """A node's machine: a boot ID, clocks and a disk, which outlive its processes."""

    def __init__(self, name: str, loop: VirtualLoop, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.loop = loop
        self.disk = MachineDisk(sync_seconds=lambda: self.rng.uniform(0.0, MAX_SYNC_SECONDS))
        self.clock = MachineClock(loop)
        self.boot_id = new_uuid(rng)
        self.journal_faults = 0
        """How often its files were lost or damaged."""
        self.processes: list[SimProcess] = []

    def start(self, name: str) -> SimProcess:
        """Return a new process on it."""
        process = SimProcess(f"{self.name}/{name}", self.loop)
        self.processes.append(process)
        return process

    def running(self, name: str) -> list[SimProcess]:
        """Return its processes of a name that are not killed."""
        return [each for each in self.processes if each.alive and each.name == f"{self.name}/{name}"]

    def reboot(self) -> None:
        """Lose power and boot again: processes and unsynced bytes are lost, and the boot ID is new."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.disk.lose_power(self.rng)
        self.boot_id = new_uuid(self.rng)
        self.clock.booted_at = self.loop.time()

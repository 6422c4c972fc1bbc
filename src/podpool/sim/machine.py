"""Machines and the processes on them: what can be killed, paused, rebooted, and what survives each.

A kill keeps what a process had written; a reboot only what it had synced, and perhaps a part of what followed. A pause
stops a machine's processes while its clocks run on.
"""

import random
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from podpool.runtime.randomness import new_uuid
from podpool.sim.loop import PROCESS, VirtualLoop

if TYPE_CHECKING:
    import asyncio


T = TypeVar("T")


class MachineClock:
    """The clocks of one machine: the boot clock starts anew with each boot, the wall clock may be wrong."""

    def __init__(self, loop: VirtualLoop, *, wall_error: float = 0.0) -> None:
        self._loop = loop
        self.booted_at = loop.time()
        self.wall_error = wall_error

    def boot(self) -> float:
        """Tell the seconds since this boot."""
        return self._loop.time() - self.booted_at

    def wall(self) -> float:
        """Tell the seconds since 1970, as this machine believes."""
        return 1_800_000_000.0 + self._loop.time() + self.wall_error


class MachineDisk:
    """Files in memory, each with how much of it is synced."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._synced: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """Read a file as it is."""
        return bytes(self._files[name]) if name in self._files else None

    def append(self, name: str, data: bytes) -> None:
        """Write at the end of a file."""
        self._files.setdefault(name, bytearray()).extend(data)

    async def sync(self, name: str) -> None:
        """Make what is written now safe from a reboot."""
        self._synced[name] = bytes(self._files.get(name, b""))

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""
        del self._files[name][size:]

    async def replace(self, name: str, data: bytes) -> None:
        """Write a file anew, at once and synced."""
        self._files[name] = bytearray(data)
        self._synced[name] = data

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._files.pop(name, None)
        self._synced.pop(name, None)

    def names(self) -> list[str]:
        """List the files."""
        return sorted(self._files)

    def damage(self, name: str, rng: random.Random) -> None:
        """Let one byte of a file be another."""
        if self._files.get(name):
            at = rng.randrange(len(self._files[name]))
            self._files[name][at] ^= 1 + rng.randrange(255)
            self._synced[name] = bytes(self._files[name])

    def lose_power(self, rng: random.Random) -> None:
        """Keep what was synced, and of what was written since a random part from its beginning: a torn tail."""
        for name, written in list(self._files.items()):
            synced = self._synced.get(name, b"")
            kept = bytes(written) if written.startswith(synced) else synced
            self._files[name] = bytearray(kept[: rng.randint(len(synced), len(kept))])
            self._synced[name] = bytes(self._files[name])


class Process:
    """Something that runs until it is killed. Whatever it starts belongs to it."""

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        self.name = name
        self.alive = True
        self.backlog: list[asyncio.Handle] | None = None
        self._loop = loop
        self._mourners: list[Callable[[], None]] = []
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run something as this process."""
        task = self._loop.create_task(work, name=self.name, context=self.context)
        task.add_done_callback(self._report)
        return task

    def kill(self) -> None:
        """End it between two awaits."""
        self.alive = False
        mourners, self._mourners = self._mourners, []
        for mourner in mourners:
            mourner()

    def pause(self) -> None:
        """Let nothing of it run, while time passes for everybody else."""
        self.backlog = self.backlog or []

    def resume(self) -> None:
        """Let it go on, with all that came due meanwhile."""
        kept, self.backlog = self.backlog, None
        self._loop.catch_up(kept or [])

    def on_death(self, mourner: Callable[[], None]) -> None:
        """Have somebody told when it is killed: a peer whose connection breaks."""
        self._mourners.append(mourner)

    def forget(self, mourner: Callable[[], None]) -> None:
        """Leave somebody out again."""
        if mourner in self._mourners:
            self._mourners.remove(mourner)

    def _report(self, task: Any) -> None:  # noqa: ANN401  asyncio.Task, invariant
        if not task.cancelled() and task.exception() is not None:
            self._loop.call_exception_handler({"message": f"{self.name} failed", "exception": task.exception()})


class Machine:
    """A node's machine: a boot id, clocks and a disk, which outlive its processes."""

    def __init__(self, name: str, loop: VirtualLoop, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.loop = loop
        self.disk = MachineDisk()
        self.clock = MachineClock(loop)
        self.boot_id = new_uuid(rng)
        self.spoilt = 0
        """How often files of it were lost or damaged."""
        self.processes: list[Process] = []

    def start(self, name: str) -> Process:
        """Make a process on it."""
        process = Process(f"{self.name}/{name}", self.loop)
        self.processes.append(process)
        return process

    def reboot(self) -> None:
        """Lose power and come back: processes die, unsynced bytes with them, and the boot id is new."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.disk.lose_power(self.rng)
        self.boot_id = new_uuid(self.rng)
        self.clock.booted_at = self.loop.time()

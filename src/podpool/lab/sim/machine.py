"""Machines and the processes on them: what can be killed, paused, rebooted, and what survives each.

A kill keeps what a process had written; a reboot only what it had synced, and perhaps a part of what followed. A pause
stops a machine's processes while its clocks run on.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

from podpool.lab.sim.event_loop import PROCESS, VirtualLoop
from podpool.runtime.entropy import new_uuid

T = TypeVar("T")

SLOWEST_SYNC = 0.005
"""Seconds that a disk takes at the most."""


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
    """Files in memory, each with how much of it is synced. Syncing takes as long as `takes` says, if it does."""

    def __init__(self, takes: Callable[[], float] | None = None) -> None:
        self._takes = takes
        self._files: dict[str, bytearray] = {}
        self._synced: dict[str, bytes] = {}
        self._renamed: dict[str, bytes | None] = {}
        """Files that were replaced, and what they were: the directory is not synced yet."""

    def read(self, name: str) -> bytes | None:
        """Read a file as it is."""
        return bytes(self._files[name]) if name in self._files else None

    def append(self, name: str, data: bytes) -> None:
        """Write at the end of a file."""
        self._files.setdefault(name, bytearray()).extend(data)

    async def sync(self, name: str) -> None:
        """Make what is written now safe from a reboot."""
        written = bytes(self._files.get(name, b""))
        await self._take_time()
        if self._files.get(name, b"").startswith(written) and len(written) >= len(self._synced.get(name, b"")):
            self._synced[name] = written

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""
        del self._files[name][size:]

    async def replace(self, name: str, data: bytes) -> None:
        """Write a file anew, beside the old one and synced, and exchange the two."""
        await self._take_time()
        self._renamed[name] = self._synced.get(name)
        self._files[name], self._synced[name] = bytearray(data), data
        await self._take_time()
        self._renamed.pop(name, None)

    async def _take_time(self) -> None:
        if self._takes is not None:
            await asyncio.sleep(self._takes())

    def remove(self, name: str) -> None:
        """Remove a file."""
        for files in (self._files, self._synced, self._renamed):
            files.pop(name, None)

    def names(self) -> list[str]:
        """List the files."""
        return sorted(self._files)

    def synced(self) -> "MachineDisk":
        """Show what a loss of power would leave at the least."""
        left = MachineDisk()
        left._files = {name: bytearray(self._renamed.get(name) or data) for name, data in self._synced.items()}
        return left

    def damage(self, name: str, rng: random.Random) -> None:
        """Let one byte of a file be another."""
        if self._files.get(name):
            at = rng.randrange(len(self._files[name]))
            self._files[name][at] ^= 1 + rng.randrange(255)
            self._synced[name] = bytes(self._files[name])

    def lose_power(self, rng: random.Random) -> None:
        """Keep what was synced, and of what was written since a random part from its beginning: a torn tail.

        Of a file that was just replaced the old one may be back.
        """
        for name, before in list(self._renamed.items()):
            if rng.random() < 0.5:
                self.remove(name)
                if before is not None:
                    self._files[name], self._synced[name] = bytearray(before), before
        self._renamed.clear()
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
        self.doomed = False
        self._left = 0
        self._then: Callable[[], None] | None = None
        self._loop = loop
        self._mourners: list[Callable[[], None]] = []
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as this process."""
        task = self._loop.create_task(work, name=self.name, context=self.context)
        task.add_done_callback(self._report)
        return task

    def kill(self) -> None:
        """End it between two awaits."""
        self.alive = self.doomed = False
        mourners, self._mourners = self._mourners, []
        for mourner in mourners:
            mourner()

    def doom(self, steps: int, then: Callable[[], None]) -> None:
        """Let it be killed after so many more of its own steps, wherever it is by then; and tell somebody."""
        self.doomed, self._left, self._then = True, steps, then

    def pardon(self) -> None:
        """Let it live, if it does."""
        self.doomed = False

    def count_down(self) -> None:
        """Count a step of the doomed."""
        self._left -= 1
        if self._left <= 0:
            self.doomed, then = False, self._then
            self.kill()
            if then:
                then()

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
        self.disk = MachineDisk(takes=lambda: self.rng.uniform(0.0, SLOWEST_SYNC))
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

"""Keys that want work: each at most once at a time, and again if it was asked for meanwhile.

A queue carries keys, not what happened: who works on a key looks at the world as it is then. A key that fails comes
back later each time, until it succeeds.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

import msgspec

from podpool.core.errors import PodpoolError
from podpool.kube.backoff import backoff
from podpool.kube.errors import ApiError, Conflict

BACKOFF_BASE, BACKOFF_MOST = 0.05, 60.0

_log = logging.getLogger(__name__)


class Again(msgspec.Struct, frozen=True):
    """The result of work that is done for now: look at the key again after so many seconds."""

    after: float


Reconcile = Callable[[str], Awaitable[Again | None]]
"""Work on a key: None when it is done; what it raises is a failure."""


class WorkQueue:
    """Keys in the order in which they were added."""

    def __init__(self, *, rng: random.Random) -> None:
        self._rng = rng
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return self._ready.qsize()

    @property
    def idle(self) -> bool:
        """Nothing waits for work, and nothing is worked on; what is due later does not count."""
        return not self._dirty and not self._busy

    def add(self, key: str) -> None:
        """Ask for work on a key; one that waits already is not added again."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._busy:
            self._ready.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Ask for work on a key later; of several such the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer and timer.when() <= loop.time() + seconds:
            return
        if timer:
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def retry(self, key: str, *, at_least: float = 0.0) -> None:
        """Ask for work on a key that failed: later with each failure."""
        self._failures[key] = self._failures.get(key, 0) + 1
        wait = backoff(self._failures[key], rng=self._rng, base=BACKOFF_BASE, most=BACKOFF_MOST)
        self.add_after(key, max(at_least, wait))

    def forget(self, key: str) -> None:
        """Count the failures of a key from nothing again."""
        self._failures.pop(key, None)

    async def take(self) -> str:
        """Wait for a key; whoever takes it says `done`."""
        key = await self._ready.get()
        self._dirty.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: str) -> None:
        """Let go of a key; if it was asked for meanwhile, it is ready again."""
        self._busy.discard(key)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def close(self) -> None:
        """Drop what is due later."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)


def log_failure(key: str, error: Exception) -> None:
    """Say what failed: a sentence for what podpool knows of, else all there is; a conflict is routine."""
    level = logging.DEBUG if isinstance(error, Conflict) else logging.WARNING
    _log.log(level, "%s: %s; trying again", key, error, exc_info=None if isinstance(error, PodpoolError) else error)


async def work(
    queue: WorkQueue,
    reconcile: Reconcile,
    *,
    workers: int = 4,
    failed: Callable[[str, Exception], None] = log_failure,
) -> None:
    """Work on keys until cancelled, as many at once as there are workers. What `failed` raises ends it."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(_worker(queue, reconcile, failed))
    finally:
        queue.close()


async def _worker(queue: WorkQueue, reconcile: Reconcile, failed: Callable[[str, Exception], None]) -> None:
    while True:
        key = await queue.take()
        try:
            result = await reconcile(key)
        except Exception as error:  # noqa: BLE001  one object's trouble must not stop the work on the others
            failed(key, error)
            queue.retry(key, at_least=(error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)
        else:
            queue.forget(key)
            if result:
                queue.add_after(key, result.after)
        finally:
            queue.done(key)

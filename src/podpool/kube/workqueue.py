"""Keys that want work: each at most once at a time, and again if it was asked for meanwhile.

A queue carries keys, not what happened: who works on a key looks at the world as it is then. A key that fails comes
back later each time, until it succeeds. What a queue counts is for its owner to show; seconds are the loop's.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

import msgspec

from podpool.core.errors import PodpoolError
from podpool.kube.backoff import backoff
from podpool.kube.errors import ApiConflict, ApiError

BACKOFF_BASE, BACKOFF_MAX = 0.05, 60.0

_log = logging.getLogger(__name__)


class Requeue(msgspec.Struct, frozen=True):
    """The result of work that is done for now: look at the key again after so many seconds."""

    after: float


Reconcile = Callable[[str], Awaitable[Requeue | None]]
"""Work on a key: None when it is done; what it raises is a failure."""


class WorkQueueMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue is at this moment, and what it has done in all."""

    waiting: int
    busy: int
    later: int
    """Keys that are due at a later time."""
    failing: int
    """Keys whose last work failed."""
    longest_busy: float
    """For how long the oldest work has been going on: one that hangs shows here."""
    taken: int
    failures: int
    waited: float
    """Seconds from ready to taken, of all that were taken."""
    worked: float
    """Seconds from taken to done, of all that are done."""


class WorkQueue:
    """Keys in the order in which they were added."""

    def __init__(self, *, rng: random.Random) -> None:
        self._rng = rng
        self._ready: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._busy: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._taken = 0
        self._failed = 0
        self._waited = 0.0
        self._worked = 0.0

    def __len__(self) -> int:
        return self._ready.qsize()

    def metrics(self) -> WorkQueueMetrics:
        """Count."""
        return WorkQueueMetrics(
            waiting=len(self),
            busy=len(self._busy),
            later=len(self._timers),
            failing=len(self._failures),
            longest_busy=_now() - min(self._busy.values(), default=_now()),
            taken=self._taken,
            failures=self._failed,
            waited=self._waited,
            worked=self._worked,
        )

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
            self._ready.put_nowait((key, _now()))

    def add_after(self, key: str, seconds: float) -> None:
        """Ask for work on a key later; of several such the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        timer = self._timers.get(key)
        if timer and timer.when() <= _now() + seconds:
            return
        if timer:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._due, key)

    def retry(self, key: str, *, at_least: float = 0.0) -> None:
        """Ask for work on a key that failed: later with each failure."""
        self._failed += 1
        self._failures[key] = self._failures.get(key, 0) + 1
        wait = backoff(self._failures[key], rng=self._rng, base=BACKOFF_BASE, most=BACKOFF_MAX)
        self.add_after(key, max(at_least, wait))

    def forget(self, key: str) -> None:
        """Count the failures of a key from nothing again."""
        self._failures.pop(key, None)

    async def take(self) -> str:
        """Wait for a key; whoever takes it says `done`."""
        key, since = await self._ready.get()
        now = _now()
        self._dirty.discard(key)
        self._busy[key] = now
        self._taken += 1
        self._waited += now - since
        return key

    def done(self, key: str) -> None:
        """Let go of a key; if it was asked for meanwhile, it is ready again."""
        now = _now()
        self._worked += now - self._busy.pop(key, now)
        if key in self._dirty:
            self._ready.put_nowait((key, now))

    def close(self) -> None:
        """Drop what is due later."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)


def _now() -> float:
    return asyncio.get_running_loop().time()


def log_failure(key: str, error: Exception) -> None:
    """Say what failed: a sentence for what podpool knows of, else all there is; a conflict is routine."""
    level = logging.DEBUG if isinstance(error, ApiConflict) else logging.WARNING
    _log.log(level, "%s: %s; trying again", key, error, exc_info=None if isinstance(error, PodpoolError) else error)


async def run_workers(
    queue: WorkQueue,
    reconcile: Reconcile,
    *,
    workers: int = 4,
    failed: Callable[[str, Exception], None] = log_failure,
) -> None:
    """Work on keys until cancelled, so many at once at the most. What `failed` raises ends it."""
    room = asyncio.Semaphore(workers)
    try:
        async with asyncio.TaskGroup() as group:
            while True:
                await room.acquire()
                working = group.create_task(_work_on(await queue.take(), queue, reconcile, failed))
                working.add_done_callback(lambda _: room.release())
    finally:
        queue.close()


async def _work_on(key: str, queue: WorkQueue, reconcile: Reconcile, failed: Callable[[str, Exception], None]) -> None:
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

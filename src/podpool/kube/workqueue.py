"""Workqueue: keys to reconcile, each by one worker at a time, and again if it was added meanwhile.

A queue holds keys, never objects: a reconciler reads the current state of a key. A key that fails is retried with
back-off until it succeeds. Seconds are the loop's.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from podpool.kube.backoff import backoff_delay
from podpool.kube.errors import ApiConflict, ApiError
from podpool.runtime.logging import get_logger
from podpool.runtime.supervision import is_expected, report_defect

BACKOFF_BASE, BACKOFF_MAX = 0.05, 60.0

log = get_logger(__name__)


class Requeue(msgspec.Struct, frozen=True):
    """The result of a reconciler that wants the key again after so many seconds."""

    after: float


Reconcile = Callable[[str], Awaitable[Requeue | None]]
"""Reconciles one key; an exception is a failure, which is retried."""


class WorkQueueMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of a queue."""

    depth: int
    """Keys that are ready."""
    active: int
    """Keys that are being reconciled."""
    failing: int
    """Keys whose last reconcile failed."""
    longest_running_seconds: float
    """For how long the oldest reconcile has run: one that hangs shows here."""


class WorkQueue:
    """Keys in the order in which they were added."""

    def __init__(self, *, rng: random.Random) -> None:
        self._rng = rng
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._active: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return self._ready.qsize()

    def metrics(self) -> WorkQueueMetrics:
        """Return the counts for the owner's metrics."""
        return WorkQueueMetrics(
            depth=len(self),
            active=len(self._active),
            failing=len(self._failures),
            longest_running_seconds=_now() - min(self._active.values(), default=_now()),
        )

    @property
    def idle(self) -> bool:
        """Whether no key waits or is being reconciled; keys that are due later do not count."""
        return not self._dirty and not self._active

    def add(self, key: str) -> None:
        """Add a key unless it is waiting already."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._ready.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Add a key later; of several times the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        timer = self._timers.get(key)
        if timer and timer.when() <= _now() + seconds:
            return
        if timer:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._due, key)

    def add_rate_limited(self, key: str, *, min_delay: float = 0.0) -> None:
        """Add a key that failed after a delay that grows with each failure."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = backoff_delay(self._failures[key], rng=self._rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)
        self.add_after(key, max(min_delay, delay))

    def forget(self, key: str) -> None:
        """Reset the failure count of a key."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """Wait for a key; the caller calls `done` with it."""
        key = await self._ready.get()
        self._dirty.discard(key)
        self._active[key] = _now()
        return key

    def done(self, key: str) -> None:
        """Release a key; if it was added meanwhile, it is ready again."""
        self._active.pop(key, None)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def close(self) -> None:
        """Cancel the keys that are due later."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)


def _now() -> float:
    return asyncio.get_running_loop().time()


def log_failure(key: str, error: Exception) -> None:
    """Log a failed reconcile: conflicts as debug, unexpected exceptions with their traceback."""
    if isinstance(error, ApiConflict):
        log.debug("reconcile conflicted, retrying", key=key, error=error)
    elif is_expected(error):
        log.warning("reconcile failed, retrying", key=key, error=error)
    else:
        report_defect(log, "reconcile failed unexpectedly, retrying", error, key=key)


async def run_workers(
    queue: WorkQueue,
    reconcile: Reconcile,
    *,
    workers: int = 4,
    on_error: Callable[[str, Exception], None] = log_failure,
) -> None:
    """Reconcile keys until cancelled, at most `workers` at once. An exception of `on_error` ends it."""
    slots = asyncio.Semaphore(workers)
    try:
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                worker = group.create_task(_reconcile_key(await queue.get(), queue, reconcile, on_error))
                worker.add_done_callback(lambda _: slots.release())
    finally:
        queue.close()


async def _reconcile_key(
    key: str, queue: WorkQueue, reconcile: Reconcile, on_error: Callable[[str, Exception], None]
) -> None:
    try:
        result = await reconcile(key)
    except Exception as error:  # noqa: BLE001  the failure of one key must not stop the others
        on_error(key, error)
        queue.add_rate_limited(key, min_delay=(error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)
    else:
        queue.forget(key)
        if result:
            queue.add_after(key, result.after)
    finally:
        queue.done(key)

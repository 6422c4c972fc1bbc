"""An asyncio event loop on virtual time: it jumps from one timer to the next.

Everything that asyncio builds on a loop works (tasks, events, timeouts, sleep); sockets, threads and signals raise
NotImplementedError. Callbacks run in the order of their registration, so only the random numbers decide a run.

A callback belongs to the process that registered it (`PROCESS`). Callbacks of a killed process are dropped: it stops
between two awaits, without running its `finally` blocks. Callbacks of a paused process are kept for it. Callbacks of a
process with a scheduled kill are counted, so that it can be killed at any step of its work.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class VirtualHandle(msgspec.Struct, eq=False):
    """A registered callback, with the methods of `asyncio.TimerHandle`; a struct is created in a third of its time."""

    callback: Callable[..., object]
    args: tuple[object, ...]
    context: Context
    at: float = 0.0
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Do not run it."""
        self.is_cancelled, self.callback, self.args = True, _do_nothing, ()

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """Return the time of a timer."""
        return self.at


def _do_nothing() -> None:
    """Stand for a cancelled callback, which may refer to much."""


class CallbackOwner(Protocol):
    """What a callback belongs to."""

    name: str

    alive: bool
    """Whether its callbacks run, and its handles are valid."""

    @property
    def kill_scheduled(self) -> bool:
        """Whether its callbacks are counted."""

    def count_step(self) -> None:
        """Count one callback."""

    @property
    def backlog(self) -> list[VirtualHandle] | None:
        """The callbacks of a paused owner; None while it runs."""


# the abstract class raises NotImplementedError for missing methods, as intended; but its stub cannot be instantiated
if TYPE_CHECKING:
    from asyncio import BaseEventLoop as Loop
else:
    from asyncio import AbstractEventLoop as Loop


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.cancelled():
        sleeper.set_result(None)


STEP_DURATION = 1e-6
"""Virtual seconds per callback, as on a real machine: a loop that waits for a rounding error must end."""

PROCESS: ContextVar[CallbackOwner | None] = ContextVar("process", default=None)


class Deadlock(Exception):
    """No callback is left, and the awaited future is not done."""


class VirtualLoop(Loop):
    """Time advances when no callback is ready."""

    def __init__(self) -> None:
        self.steps = 0
        self.failures: list[dict[str, Any]] = []
        """Exceptions that no code awaited."""
        self.owners: list[CallbackOwner] = []
        """Every owner of callbacks, also those that are killed."""
        self._now = 0.0
        self._ready: deque[VirtualHandle] = deque()
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._trim_timers_at = 1000
        self._registered = 0
        self._running = False
        self._shutting_down = False
        self._dropped: list[VirtualHandle] = []
        self._paused: dict[CallbackOwner, None] = {}
        # referenced, because garbage collection of a killed process's tasks would run their `finally` blocks
        self._tasks: list[asyncio.Task[Any]] = []
        self._trim_at = 1000

    def time(self) -> float:
        """Return the virtual time."""
        return self._now

    def call_soon(  # type: ignore[override]  # a handle with the same methods
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> VirtualHandle:
        """Run a callback after those already registered."""
        handle = VirtualHandle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # cheaper handles
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> VirtualHandle:
        """Run a callback after a delay."""
        return self.call_at(self._now + delay if delay > 0.0 else self._now, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # cheaper handles
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> VirtualHandle:
        """Run a callback at a time; callbacks of one time run in the order of registration."""
        handle = VirtualHandle(callback, args, copy_context() if context is None else context, when)
        self._registered += 1
        heapq.heappush(self._timers, (when, self._registered, handle))
        if len(self._timers) > self._trim_timers_at:
            self._timers = [each for each in self._timers if not each[2].is_cancelled]
            heapq.heapify(self._timers)
            self._trim_timers_at = 2 * len(self._timers) + 1000
        return handle

    async def sleep(self, seconds: float) -> None:
        """Wait as `asyncio.sleep` does, which looks up the running loop, a system call in some versions."""
        if seconds <= 0.0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.Future(loop=self)
        handle = self.call_at(self._now + seconds, _wake, woken)
        try:
            await woken
        finally:
            handle.cancel()

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Return a new task of this loop."""
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._trim_at:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._trim_at = 2 * len(self._tasks) + 1000
        return task

    def run_until_complete(self, future: Any) -> Any:  # noqa: ANN401  the stub's own type
        """Run until a future is done, however much virtual time that takes."""
        awaited = asyncio.ensure_future(future, loop=self)
        before = events._get_running_loop()
        events._set_running_loop(self)
        self._running = True
        try:
            self._run_until(awaited)
        finally:
            self._running = False
            events._set_running_loop(before)
        return awaited.result()

    def _run_until(self, awaited: asyncio.Future[Any]) -> None:
        """Run callbacks until a future is done, except those of killed and paused owners.

        All in one function: a call per callback is a tenth of what a callback costs.
        """
        ready, shutting_down = self._ready, self._shutting_down
        while not awaited.done():
            if not ready:
                self._advance()
                continue
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            context = handle.context
            owner = None if shutting_down else context.get(PROCESS)
            if owner is not None and (owner.backlog is not None or not owner.alive):
                self._set_aside(handle, owner)
                continue
            self.steps += 1
            self._now += STEP_DURATION
            try:
                context.run(handle.callback, *handle.args)
            except Exception as error:  # noqa: BLE001  recorded, and raised by the runner
                self.call_exception_handler({"message": f"{handle!r} failed", "exception": error})
            if owner is not None and owner.kill_scheduled:
                owner.count_step()

    def _set_aside(self, handle: VirtualHandle, owner: CallbackOwner) -> None:
        """Keep a callback of an owner that is killed or paused."""
        if not owner.alive:
            self._dropped.append(handle)
        elif owner.backlog is not None:
            owner.backlog.append(handle)
            self._paused[owner] = None

    def _advance(self) -> None:
        """Advance the time to the next timer."""
        timers, heappop = self._timers, heapq.heappop
        while timers and timers[0][2].is_cancelled:
            heappop(timers)
        if not timers:
            raise Deadlock
        self._now = max(self._now, timers[0][0])
        now, append = self._now, self._ready.append
        while timers and timers[0][0] <= now:
            append(heappop(timers)[2])

    def shutdown(self) -> None:
        """Kill every process, then cancel the remaining tasks: asyncio warns about pending ones.

        A killed process has no valid handle, so that what its tasks do when they are cancelled has no effect.
        """
        self._shutting_down = True
        for owner in self.owners:
            owner.alive = False
        self._ready.extend(self._dropped)
        for owner in self._paused:
            self._ready.extend(owner.backlog or ())
        for _ in range(100):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                return
            for task in left:
                task.cancel()
            self.run_until_complete(self._yield_often())

    async def _yield_often(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def requeue(self, backlog: list[VirtualHandle]) -> None:
        """Run the callbacks of a resumed process."""
        self._ready.extend(backlog)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an exception that no code awaited: a background task without an owner is a bug."""
        self.failures.append(context)

    def get_exception_handler(self) -> Callable[[Any, dict[str, Any]], None]:
        """Return what records an exception: a defect that a component survives is a failure as well."""
        return lambda _loop, context: self.call_exception_handler(context)

    def is_running(self) -> bool:
        """Return whether the loop runs."""
        return self._running

    def is_closed(self) -> bool:
        """Return False: the loop holds nothing open."""
        return False

    get_debug = staticmethod(bool)
    """Return False: the debug mode is off. Every task and future asks, and calling a type needs no Python frame."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: there is nothing to release."""

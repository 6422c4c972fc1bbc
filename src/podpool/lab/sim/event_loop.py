"""An asyncio event loop whose time is made up: it jumps from one timer to the next.

Everything asyncio offers above a loop works on it (tasks, events, timeouts, sleep); sockets, threads and signals do
not, and say so. Callbacks run in the order in which they were registered, so a run is decided by what is random above.

A callback belongs to the process that registered it (`PROCESS`). Those of a dead process are dropped: from one await to
the next it is gone, and not even its `finally` runs. Those of a paused one are kept for it. Those of a doomed one are
counted, so that it dies in the midst of its work: a timer fires only when nothing else is left to do.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

T = TypeVar("T")


class Mortal(Protocol):
    """Whoever callbacks can belong to."""

    name: str

    @property
    def alive(self) -> bool:
        """Tell whether its callbacks still run."""

    @property
    def doomed(self) -> bool:
        """Tell whether its callbacks are counted."""

    def count_down(self) -> None:
        """Count one."""

    @property
    def backlog(self) -> list[asyncio.Handle] | None:
        """Where its callbacks are kept while it is paused; None while it is not."""


# the abstract class raises NotImplementedError for what is missing, as it should; but its stub cannot be instantiated
if TYPE_CHECKING:
    from asyncio import BaseEventLoop as Loop
else:
    from asyncio import AbstractEventLoop as Loop

COST = 1e-6
"""Seconds that a callback takes, as on a real machine: whoever waits for a rounding error does not wait for ever."""

PROCESS: ContextVar[Mortal | None] = ContextVar("process", default=None)


class Deadlock(Exception):
    """Nothing is left to do, and what was awaited is not done."""


class VirtualLoop(Loop):
    """Time that passes when nothing else is left to do."""

    def __init__(self) -> None:
        self.steps = 0
        self.failures: list[dict[str, Any]] = []
        """What was raised where nobody awaited it."""
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._registered = 0
        self._running = False
        self._ending = False
        self._dropped: list[asyncio.Handle] = []
        self._paused: dict[Mortal, None] = {}
        self._tasks: list[asyncio.Task[Any]] = []  # held, or the dead would be unwound whenever memory is tidied
        self._many = 1000

    def time(self) -> float:
        """Tell the time."""
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback after those that are registered already."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback after some time."""
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at some time; of those at one moment, the first registered first."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._registered += 1
        heapq.heappush(self._timers, (when, self._registered, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Make a task of this loop."""
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._many:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._many = 2 * len(self._tasks) + 1000
        return task

    def run_until_complete(self, future: Any) -> Any:  # noqa: ANN401  the stub's own type
        """Run until something is done, however much virtual time it takes."""
        awaited = asyncio.ensure_future(future, loop=self)
        before = events._get_running_loop()
        events._set_running_loop(self)
        self._running = True
        try:
            while not awaited.done():
                if self._ready:
                    self._step(self._ready.popleft())
                else:
                    self._jump()
        finally:
            self._running = False
            events._set_running_loop(before)
        return awaited.result()

    def _step(self, handle: asyncio.Handle) -> None:
        """Run one callback, if whoever it belongs to can."""
        if handle._cancelled:
            return
        context: Context = handle._context  # type: ignore[attr-defined]  # not in the stub, nor are the others
        owner = None if self._ending else context.get(PROCESS)
        if owner is not None:
            if not owner.alive:
                self._dropped.append(handle)
                return
            if owner.backlog is not None:
                owner.backlog.append(handle)
                self._paused[owner] = None
                return
        self.steps += 1
        self._now += COST
        try:
            context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # not in the stub
        except Exception as error:  # noqa: BLE001  remembered, and raised by whoever runs the world
            self.call_exception_handler({"message": f"{handle!r} failed", "exception": error})
        if owner is not None and owner.doomed:
            owner.count_down()

    def _jump(self) -> None:
        """Let time pass to the next timer."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Deadlock
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    def end(self) -> None:
        """Unwind every task that is left, of the dead and the paused too, so that nothing is said about them later."""
        self._ending = True
        self._ready.extend(self._dropped)
        for owner in self._paused:
            self._ready.extend(owner.backlog or ())
        for _ in range(100):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                return
            for task in left:
                task.cancel()
            self.run_until_complete(self._breathe())

    async def _breathe(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def catch_up(self, backlog: list[asyncio.Handle]) -> None:
        """Run what was kept for a process that goes on."""
        self._ready.extend(backlog)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Remember what nobody awaited: a background task without an owner is a fault."""
        self.failures.append(context)

    def is_running(self) -> bool:
        """Tell whether the loop runs."""
        return self._running

    def is_closed(self) -> bool:
        """Tell that the loop is never closed: nothing is held open."""
        return False

    def get_debug(self) -> bool:
        """Tell that this is not asyncio's debug mode."""
        return False

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: there is nothing to give back."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are passed over when they are due."""

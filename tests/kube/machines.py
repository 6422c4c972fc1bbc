"""Machines whose clocks are wrong: each runs at a speed of its own, and stands still while the machine sleeps."""

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TypeVar

from podpool.lab.sim.event_loop import VirtualLoop

T = TypeVar("T")

MACHINE: ContextVar["Machine | None"] = ContextVar("machine", default=None)


class ClockedLoop(VirtualLoop):
    """Whoever runs on a machine is told its time, and waits by it."""

    def time(self) -> float:
        machine = MACHINE.get()
        return machine.time() if machine else super().time()

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + max(delay, 0.0), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        machine = MACHINE.get()
        if machine is None:
            return super().call_at(when, callback, *args, context=context)
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        machine.remember(handle)
        return handle

    def true_time(self) -> float:
        return super().time()

    def call_at_true_time(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return super().call_at(when, callback)


class Counter:
    """A clock that runs at some speed."""

    def __init__(self, loop: ClockedLoop) -> None:
        self._loop = loop
        self._shown, self._since, self._speed = 0.0, loop.true_time(), 1.0

    def now(self) -> float:
        return self._shown + (self._loop.true_time() - self._since) * self._speed

    def run_at(self, speed: float) -> None:
        self._shown, self._since, self._speed = self.now(), self._loop.true_time(), speed

    def comes_at(self, when: float) -> float | None:
        """Tell at which true time it will show this; None when never."""
        return self._since + (when - self._shown) / self._speed if self._speed else None


class Machine:
    """Its loop's clock stops while it sleeps; its boot clock does not."""

    def __init__(self, loop: ClockedLoop) -> None:
        self._loop = loop
        self._monotonic, self._boot = Counter(loop), Counter(loop)
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._alarm: asyncio.TimerHandle | None = None

    def time(self) -> float:
        return self._monotonic.now()

    def boot(self) -> float:
        return self._boot.now()

    def wall(self) -> float:
        return 1_700_000_000.0

    def run_at(self, speed: float) -> None:
        """Let both clocks run at this speed."""
        self._boot.run_at(speed)
        self._monotonic.run_at(speed)
        self._set_alarm()

    def sleep(self) -> None:
        """Stop all that runs here; only the boot clock goes on."""
        self._monotonic.run_at(0.0)
        self._set_alarm()

    def do(self, what: Callable[[], T]) -> T:
        """Do something on this machine."""

        def there() -> T:
            MACHINE.set(self)
            return what()

        return copy_context().run(there)

    def remember(self, handle: asyncio.TimerHandle) -> None:
        self._count += 1
        heapq.heappush(self._timers, (handle.when(), self._count, handle))
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        when = self._monotonic.comes_at(self._timers[0][0]) if self._timers else None
        self._alarm = self._loop.call_at_true_time(when, self._ring) if when is not None else None

    def _ring(self) -> None:
        while self._timers and self._timers[0][0] <= self.time():
            self._loop.requeue([heapq.heappop(self._timers)[2]])
        self._set_alarm()

"""Machines with skewed clocks: each runs at its own speed and stops while its machine sleeps."""

import heapq
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TypeVar

from podpool.lab.sim.event_loop import VirtualHandle, VirtualLoop

T = TypeVar("T")

MACHINE: ContextVar["SkewedMachine | None"] = ContextVar("machine", default=None)


class ClockedLoop(VirtualLoop):
    """A virtual loop whose time is that of the machine on which the caller runs."""

    def time(self) -> float:
        machine = MACHINE.get()
        return machine.time() if machine else super().time()

    def call_later(  # type: ignore[override]  # a handle with the same methods
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> VirtualHandle:
        return self.call_at(self.time() + max(delay, 0.0), callback, *args, context=context)

    def call_at(  # type: ignore[override]  # the same
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> VirtualHandle:
        machine = MACHINE.get()
        if machine is None:
            return super().call_at(when, callback, *args, context=context)
        handle = VirtualHandle(callback, args, copy_context() if context is None else context, when)
        machine.add_timer(handle)
        return handle

    def true_time(self) -> float:
        return super().time()

    def call_at_true_time(self, when: float, callback: Callable[[], None]) -> VirtualHandle:
        return super().call_at(when, callback)


class SkewedClock:
    """A clock with a speed."""

    def __init__(self, loop: ClockedLoop) -> None:
        self._loop = loop
        self._shown, self._since, self._speed = 0.0, loop.true_time(), 1.0

    def now(self) -> float:
        return self._shown + (self._loop.true_time() - self._since) * self._speed

    def run_at(self, speed: float) -> None:
        self._shown, self._since, self._speed = self.now(), self._loop.true_time(), speed

    def comes_at(self, when: float) -> float | None:
        """Return the true time at which it shows `when`; None for never."""
        return self._since + (when - self._shown) / self._speed if self._speed else None


class SkewedMachine:
    """A machine. Its loop's clock stops while it sleeps; its boot clock does not."""

    def __init__(self, loop: ClockedLoop) -> None:
        self._loop = loop
        self._monotonic, self._boot = SkewedClock(loop), SkewedClock(loop)
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._count = 0
        self._alarm: VirtualHandle | None = None

    def time(self) -> float:
        return self._monotonic.now()

    def boot(self) -> float:
        return self._boot.now()

    def wall(self) -> float:
        return 1_700_000_000.0

    def run_at(self, speed: float) -> None:
        """Set the speed of both clocks."""
        self._boot.run_at(speed)
        self._monotonic.run_at(speed)
        self._set_alarm()

    def sleep(self) -> None:
        """Put the machine to sleep: only the boot clock runs."""
        self._monotonic.run_at(0.0)
        self._set_alarm()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on this machine."""

        def on_machine() -> T:
            MACHINE.set(self)
            return function()

        return copy_context().run(on_machine)

    def add_timer(self, handle: VirtualHandle) -> None:
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

"""Clocks of a machine.

Waiting uses the time of the asyncio loop, which the simulator replaces. These clocks are for what outlives a process or
a boot: cooldowns, fences and timestamps.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The clocks of one machine."""

    def boot(self) -> float:
        """Return the seconds since boot, which also count while the machine sleeps and never go back."""

    def wall(self) -> float:
        """Return the seconds since 1970; the clock may be set, forwards and backwards."""


class SystemClock:
    """The clocks of this machine."""

    def boot(self) -> float:
        """Return CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        """Return the wall clock."""
        return time.time()

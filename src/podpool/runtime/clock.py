"""Time, as a machine has it.

Waiting is asyncio's business, and asyncio's loop has its own time, which the simulator replaces. What is here is for
what outlives a process or a boot: rest, fence, and the moments that are written down.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The clocks of one machine."""

    def boot(self) -> float:
        """Seconds since this boot; counts while the machine sleeps, and never goes back."""

    def wall(self) -> float:
        """Seconds since 1970; may be set, forwards and backwards."""


class SystemClock:
    """The clocks of this machine."""

    def boot(self) -> float:
        """Read CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        """Read the wall clock."""
        return time.time()

"""Rate and concurrency limits per caller: a token bucket, and a count of open requests and streams.

A request over a limit is rejected at once; nothing waits here.
"""

from collections.abc import Hashable

import msgspec

from podpool.ledger.errors import TooManyRequests
from podpool.runtime.clock import Clock


class RateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of each caller; all requests without a valid token count as one caller."""

    rate: float = 200.0
    """Requests per second."""
    burst: float = 400.0
    """Requests at once after an idle time."""
    unauthenticated: float = 20.0
    """Requests per second without a valid token."""
    concurrent: int = 256
    """Open requests and streams."""


class RateLimiter:
    """Counts the requests of each caller."""

    def __init__(self, limits: RateLimits, *, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}
        self._open: dict[Hashable, int] = {}

    def enter(self, caller: Hashable) -> None:
        """Count a request, which must `leave` when it ends; raises TooManyRequests."""
        limits = self._limits
        self._take(caller, rate=limits.rate, burst=limits.burst)
        if self._open.get(caller, 0) >= limits.concurrent:
            raise TooManyRequests(f"{limits.concurrent} requests of this caller are open: wait until one has ended")
        self._open[caller] = self._open.get(caller, 0) + 1

    def leave(self, caller: Hashable) -> None:
        """End a request that has entered."""
        left = self._open.pop(caller) - 1
        if left:
            self._open[caller] = left

    def count_unauthenticated(self) -> None:
        """Count a request without a valid token; raises TooManyRequests."""
        self._take(None, rate=self._limits.unauthenticated, burst=2 * self._limits.unauthenticated)

    def _take(self, caller: Hashable, *, rate: float, burst: float) -> None:
        now = self._clock.boot()
        level, at = self._buckets.get(caller, (burst, now))
        level = min(burst, level + (now - at) * rate)
        if level < 1:
            raise TooManyRequests(f"more than {rate:g} requests per second: retry later")
        self._buckets[caller] = (level - 1, now)

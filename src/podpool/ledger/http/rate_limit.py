"""Rate and concurrency limits per caller: a token bucket, and a count of open requests and streams.

A request over a limit is rejected at once; nothing waits here.
"""

from collections.abc import Hashable

import msgspec

from podpool.ledger.errors import TooManyRequests
from podpool.runtime.clock import Clock

_MAX_BUCKETS = 1_000
"""Callers that are remembered before idle ones are forgotten: as many as there may be valid tokens."""


class RateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of each caller."""

    rate: float = 200.0
    """Requests per second."""
    burst: float = 400.0
    """Requests at once after an idle time."""
    concurrent: int = 256
    """Open requests and streams."""
    body_bytes: int = 128 * 1024 * 1024
    """Bodies of open requests: two of the largest."""


class RateLimiter:
    """Counts the requests of each caller."""

    def __init__(self, limits: RateLimits, *, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}
        self._open: dict[Hashable, tuple[int, int]] = {}
        """The number of open requests, and the sum of their bodies."""

    def enter(self, caller: Hashable, *, body_bytes: int) -> None:
        """Count a request, which must `leave` when it ends; raises TooManyRequests."""
        limits = self._limits
        self._take(caller, rate=limits.rate, burst=limits.burst)
        count, size = self._open.get(caller, (0, 0))
        if count >= limits.concurrent:
            what = f"{limits.concurrent} requests of this caller are open: wait until one has ended"
            raise TooManyRequests(what, retry_after=1.0)
        if count and size + body_bytes > limits.body_bytes:
            what = f"open requests of this caller have more than {limits.body_bytes} bytes: wait until one has ended"
            raise TooManyRequests(what, retry_after=1.0)
        self._open[caller] = (count + 1, size + body_bytes)

    def leave(self, caller: Hashable, *, body_bytes: int) -> None:
        """End a request that has entered."""
        count, size = self._open.pop(caller)
        if count > 1:
            self._open[caller] = (count - 1, size - body_bytes)

    def _take(self, caller: Hashable, *, rate: float, burst: float) -> None:
        now = self._clock.boot()
        level, at = self._buckets.get(caller, (burst, now))
        level = min(burst, level + (now - at) * rate)
        if level < 1:
            raise TooManyRequests(f"more than {rate:g} requests per second", retry_after=(1 - level) / rate)
        self._buckets[caller] = (level - 1, now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._drop_full(now)

    def _drop_full(self, now: float) -> None:
        """Forget callers without a request for so long that they may send a burst again, as new ones may."""
        idle = self._limits.burst / self._limits.rate
        self._buckets = {caller: bucket for caller, bucket in self._buckets.items() if now - bucket[1] < idle}

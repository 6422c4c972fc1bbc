"""How much one caller may ask of the ledger: calls in a second, and streams and calls at once.

A bucket fills at a rate and holds a burst; a call takes one drop, or is refused. Nobody waits in here.
"""

from collections.abc import Hashable

import msgspec

from podpool.ledger.errors import TooMany
from podpool.runtime.clock import Clock


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """For each caller; all who come without a good token are one."""

    rate: float = 200.0
    """Calls in a second,"""
    burst: float = 400.0
    """and after a quiet time so many at once."""
    strangers: float = 20.0
    """Calls in a second of all who have no good token."""
    at_once: int = 256
    """Calls and streams that are not finished."""


class Gate:
    """Counts callers."""

    def __init__(self, limits: Limits, *, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}
        self._inside: dict[Hashable, int] = {}

    def enter(self, caller: Hashable) -> None:
        """Let a call in; raises `TooMany`. Whoever was let in leaves."""
        limits = self._limits
        self._take(caller, rate=limits.rate, burst=limits.burst)
        if self._inside.get(caller, 0) >= limits.at_once:
            raise TooMany(f"{limits.at_once} calls of this caller are not finished yet: wait for one of them")
        self._inside[caller] = self._inside.get(caller, 0) + 1

    def leave(self, caller: Hashable) -> None:
        """End a call that was let in."""
        left = self._inside.pop(caller) - 1
        if left:
            self._inside[caller] = left

    def knock(self) -> None:
        """Count a call without a good token; raises `TooMany`."""
        self._take(None, rate=self._limits.strangers, burst=2 * self._limits.strangers)

    def _take(self, caller: Hashable, *, rate: float, burst: float) -> None:
        now = self._clock.boot()
        level, at = self._buckets.get(caller, (burst, now))
        level = min(burst, level + (now - at) * rate)
        if level < 1:
            raise TooMany(f"more than {rate:g} calls in a second: send it again a little later")
        self._buckets[caller] = (level - 1, now)

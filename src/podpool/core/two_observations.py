"""Garbage collection by two observations: what was seen at least an interval apart, and each time between, is garbage.

One observation may be made on a stale cache, or between a removal and its successor.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

OBSERVATION_INTERVAL = 60.0
"""Seconds between the first observation and removal."""

K = TypeVar("K", bound=Hashable)


class TwoObservations(Generic[K]):
    """Keeps since when each candidate has been observed without interruption."""

    def __init__(self, interval: float = OBSERVATION_INTERVAL) -> None:
        self._interval = interval
        self._since: dict[K, float] = {}

    def observe(self, candidates: Iterable[K], *, now: float) -> tuple[K, ...]:
        """Record one observation; return the candidates that were first observed at least an interval ago."""
        self._since = {key: self._since.get(key, now) for key in candidates}
        return tuple(key for key, since in self._since.items() if since + self._interval <= now)

    def forget(self, key: K) -> None:
        """Drop a candidate that was seen in use: its next observation counts as the first."""
        self._since.pop(key, None)

    def clear(self) -> None:
        """Drop all observations."""
        self._since.clear()

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._since))

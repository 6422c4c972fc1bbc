"""Expectations (read-your-writes): writes that the informer cache does not show yet.

A decision on an object as it was before the last write would be made twice, and be rejected. The watch may be late, but
not for ever: an API server that was restored shows an older version.
"""

import asyncio

WATCH_DELAY = 10.0
"""Seconds after which a watch should show what was written."""


class Expectations:
    """Versions of objects, by key, that were overwritten."""

    def __init__(self) -> None:
        self._overwritten: dict[str, tuple[float, frozenset[str]]] = {}

    def wrote(self, key: str, *, over: str) -> None:
        """Record a write over a version; an empty version is a creation."""
        _, before = self._overwritten.get(key, (0.0, frozenset()))
        self._overwritten[key] = (asyncio.get_running_loop().time() + WATCH_DELAY, before | {over})

    def due(self, key: str, *, seen: str) -> float | None:
        """Return for how many seconds to wait if the cache shows this version; None if it is not outdated."""
        until, over = self._overwritten.get(key, (0.0, frozenset[str]()))
        left = until - asyncio.get_running_loop().time()
        if seen in over and left > 0:
            return left
        self._overwritten.pop(key, None)
        return None

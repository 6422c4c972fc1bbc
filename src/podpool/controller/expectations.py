"""Our own writes, until the watch has shown them.

A decision on an object as it was before our last write would be made twice, and be refused. The watch may be late when
much is going on, but not for ever: a server that was restored shows an older version, and means it.
"""

import asyncio

PATIENCE = 10.0
"""Seconds after which a watch should show what was written."""


class Echoes:
    """Versions of objects, by name, that we have written over."""

    def __init__(self) -> None:
        self._over: dict[str, tuple[float, frozenset[str]]] = {}

    def wrote(self, name: str, *, over: str) -> None:
        """Note a write over a version; over none, when the object was made."""
        _, before = self._over.get(name, (0.0, frozenset()))
        self._over[name] = (asyncio.get_running_loop().time() + PATIENCE, before | {over})

    def due(self, name: str, *, seen: str) -> float | None:
        """Tell for how many seconds to wait when this version, or none, is what a cache shows; None is not at all."""
        until, over = self._over.get(name, (0.0, frozenset[str]()))
        left = until - asyncio.get_running_loop().time()
        if seen in over and left > 0:
            return left
        self._over.pop(name, None)
        return None

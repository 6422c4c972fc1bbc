"""The stream that pages follow: everything once, then numbered changes, as server-sent events.

The last changes are kept, within bounds, for all pages together: one that was away for a moment goes on where it was,
and one that was away, or slow, for longer begins anew. So a slow page costs no memory.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

from podpool.inspect.cluster_model import Scene
from podpool.runtime.clock import Clock

PERIOD = 0.5
"""Seconds between two looks."""
KEPT = 256
KEPT_BYTES = 8 << 20
QUIET = 15.0
"""Seconds after which a quiet stream says that it is there."""
RETRY = 1000
"""Milliseconds after which a page tries again."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change, ready to be sent."""

    number: int
    event: bytes


class Feed:
    """What pages are told; `run` looks at the scene."""

    def __init__(self, scene: Scene, *, clock: Clock, epoch: str) -> None:
        self._scene = scene
        self._clock = clock
        self._epoch = epoch
        self._number = 0
        self._changes: deque[Change] = deque()
        self._bytes = 0
        self._troubles: dict[str, str] = {}
        self._more = asyncio.Event()
        self._begin: Change | None = None

    async def run(self) -> None:
        """Look again and again."""
        while True:
            self.look()
            await asyncio.sleep(PERIOD)

    def look(self) -> None:
        """Look once, and tell what changed."""
        delta = self._scene.look(at=self._clock.wall())
        if delta.empty and delta.troubles == self._troubles:
            return
        self._troubles = dict(delta.troubles)
        self._number += 1
        self._begin = None
        change = Change(self._number, self._event("change", msgspec.json.encode(delta)))
        self._changes.append(change)
        self._bytes += len(change.event)
        while len(self._changes) > KEPT or (self._bytes > KEPT_BYTES and len(self._changes) > 1):
            self._bytes -= len(self._changes.popleft().event)
        self._more.set()
        self._more = asyncio.Event()

    async def follow(self, last: str = "") -> AsyncGenerator[bytes, None]:
        """Tell a page everything, or what it missed since `last`; then what changes."""
        yield f"retry: {RETRY}\n\n".encode()
        at = self._known(last)
        while True:
            more = self._more
            change = self._next(at)
            if change:
                at = change.number
                yield change.event
                continue
            try:
                await asyncio.wait_for(more.wait(), QUIET)
            except TimeoutError:
                yield b": still here\n\n"

    def _next(self, at: int | None) -> Change | None:
        """Find what comes after a number: everything when that was forgotten, nothing when it is the last."""
        if at == self._number:
            return None
        if at is None or at < self._changes[0].number - 1:
            return self._beginning()
        return self._changes[at + 1 - self._changes[0].number]

    def _known(self, last: str) -> int | None:
        """Read where a page was; None when that was another process' stream."""
        epoch, _, number = last.partition(":")
        if epoch != self._epoch or not (number.isascii() and number.isdigit() and int(number) <= self._number):
            return None
        return int(number)

    def _beginning(self) -> Change:
        if self._begin is None:
            picture = self._scene.picture(at=self._clock.wall())
            self._begin = Change(self._number, self._event("everything", msgspec.json.encode(picture)))
        return self._begin

    def _event(self, name: str, data: bytes) -> bytes:
        return b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (self._epoch.encode(), self._number, name.encode(), data)

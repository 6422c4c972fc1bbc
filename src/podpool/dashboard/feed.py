"""Server-sent events of the dashboard: a snapshot, then numbered deltas.

Recent deltas are kept, within bounds, for all clients together: a client that reconnects soon continues where it was;
one that is too far behind gets a new snapshot. A slow client therefore costs no memory.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

from podpool.api.annotation_decoder import parse_number
from podpool.inspect.cluster_model import ClusterModel
from podpool.runtime.clock import Clock

REFRESH_INTERVAL = 0.5
"""Seconds between two refreshes of the model."""
MAX_CHANGES = 256
MAX_BYTES = 8 << 20
KEEPALIVE = 15.0
"""Seconds after which an idle stream sends a comment."""
RETRY = 1000
"""Milliseconds after which a client reconnects."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One encoded event."""

    number: int
    event: bytes


class Feed:
    """Refreshes the model and serves the stream."""

    def __init__(self, model: ClusterModel, *, clock: Clock, epoch: str) -> None:
        self._model = model
        self._clock = clock
        self._epoch = epoch
        self._number = 0
        self._changes: deque[Change] = deque()
        self._bytes = 0
        self._problems: dict[str, str] = {}
        self._updated = asyncio.Event()
        self._snapshot_change: Change | None = None

    async def run(self) -> None:
        """Refresh periodically."""
        while True:
            self.refresh()
            await asyncio.sleep(REFRESH_INTERVAL)

    def refresh(self) -> None:
        """Refresh once and publish the delta."""
        delta = self._model.refresh(at=self._clock.wall())
        if delta.empty and delta.problems == self._problems:
            return
        self._problems = dict(delta.problems)
        self._number += 1
        self._snapshot_change = None
        change = Change(self._number, self._event("delta", msgspec.json.encode(delta)))
        self._changes.append(change)
        self._bytes += len(change.event)
        while len(self._changes) > MAX_CHANGES or (self._bytes > MAX_BYTES and len(self._changes) > 1):
            self._bytes -= len(self._changes.popleft().event)
        self._updated.set()
        self._updated = asyncio.Event()

    async def follow(self, last: str = "") -> AsyncGenerator[bytes, None]:
        """Yield a snapshot, or the deltas since `last`, then new deltas."""
        yield f"retry: {RETRY}\n\n".encode()
        at = self._parse_event_id(last)
        while True:
            more = self._updated
            change = self._next(at)
            if change:
                at = change.number
                yield change.event
                continue
            try:
                await asyncio.wait_for(more.wait(), KEEPALIVE)
            except TimeoutError:
                yield b": keepalive\n\n"

    def _next(self, at: int | None) -> Change | None:
        """Return the event after a number: a snapshot if it is no longer kept, None if it is the newest."""
        if at == self._number:
            return None
        if at is None or at < self._changes[0].number - 1:
            return self._snapshot_event()
        return self._changes[at + 1 - self._changes[0].number]

    def _parse_event_id(self, last: str) -> int | None:
        """Parse the last event ID; None when it is of another process."""
        epoch, _, number = last.partition(":")
        parsed = parse_number(number)
        return parsed if epoch == self._epoch and parsed is not None and parsed <= self._number else None

    def _snapshot_event(self) -> Change:
        if self._snapshot_change is None:
            snapshot = self._model.snapshot(at=self._clock.wall())
            self._snapshot_change = Change(self._number, self._event("snapshot", msgspec.json.encode(snapshot)))
        return self._snapshot_change

    def _event(self, name: str, data: bytes) -> bytes:
        return b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (self._epoch.encode(), self._number, name.encode(), data)

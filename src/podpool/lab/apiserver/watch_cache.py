"""The latest writes, in order: for watches that start at a version, and for lists of an earlier revision."""

from collections import deque
from collections.abc import Iterator

import msgspec

from podpool.lab.apiserver.registry import GroupResource, Object
from podpool.lab.apiserver.status_errors import expired

CAPACITY = 10_000
"""Events; a watch that starts earlier must list again."""


class StoreEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One write. After a deletion `new` is the last state of the object, with the version of the deletion."""

    revision: int
    id: GroupResource
    key: str
    old: Object | None
    new: Object
    deleted: bool = False
    encoded: dict[str, bytes] = msgspec.field(default_factory=dict)
    """The event as watch lines, by type and representation: encoded once for all watches."""


class WatchCache:
    """The latest writes."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        """Writes up to this revision are not kept."""
        self._events: deque[StoreEvent] = deque()

    def add(self, event: StoreEvent) -> None:
        """Add a write, and drop the oldest beyond the capacity."""
        self._events.append(event)
        if len(self._events) > CAPACITY:
            self.floor = self._events.popleft().revision

    def compact(self, revision: int) -> None:
        """Drop writes up to a revision."""
        self.floor = max(self.floor, revision)
        while self._events and self._events[0].revision <= revision:
            self._events.popleft()

    def since(self, revision: int, of: GroupResource) -> list[StoreEvent]:
        """Return the writes to a resource after a revision; raises a 410 if some are dropped."""
        if revision < self.floor:
            raise expired(f"too old resource version: {revision} ({self.floor})")
        return [each for each in reversed(list(self.after(revision))) if each.id == of]

    def differences(self, revision: int, of: GroupResource) -> dict[str, Object | None]:
        """Return what differed at a revision: the older objects by key, None where there was none."""
        if revision < self.floor:
            reason = "The provided continue parameter, or version, is too old to display a consistent list result."
            raise expired(reason)
        return {event.key: event.old for event in self.after(revision) if event.id == of}

    def after(self, revision: int) -> Iterator[StoreEvent]:
        """Iterate over the writes after a revision, newest first."""
        for event in reversed(self._events):
            if event.revision <= revision:
                return
            yield event

"""What happened lately, in order: for watches that go on from a version, and for lists of an earlier one."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from podpool.lab.apiserver.registry import Id
from podpool.lab.apiserver.status_errors import expired

Object = Mapping[str, Any]

KEPT = 10_000
"""Events; a watch that is further behind must list again."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One write: what an object was, and what it became. At its end `new` is as it was last, with the last version."""

    revision: int
    id: Id
    key: str
    old: Object | None
    new: Object
    gone: bool = False
    lines: dict[str, bytes] = msgspec.field(default_factory=dict)
    """How it is told to watches: written once, however many there are."""


class History:
    """The last writes."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        """The version up to which everything is forgotten."""
        self._events: deque[Event] = deque()

    def add(self, event: Event) -> None:
        """Remember a write, and forget the oldest."""
        self._events.append(event)
        if len(self._events) > KEPT:
            self.floor = self._events.popleft().revision

    def forget(self, revision: int) -> None:
        """Forget writes up to a version."""
        self.floor = max(self.floor, revision)
        while self._events and self._events[0].revision <= revision:
            self._events.popleft()

    def since(self, revision: int, of: Id) -> list[Event]:
        """Tell the writes to a kind after a version; refuses when some are forgotten."""
        if revision < self.floor:
            raise expired(f"too old resource version: {revision} ({self.floor})")
        return [each for each in reversed(list(self._after(revision))) if each.id == of]

    def otherwise(self, revision: int, of: Id) -> dict[str, Object | None]:
        """Tell which objects of a kind were otherwise at a version, and what they were; None is not there."""
        if revision < self.floor:
            raise expired(
                "The provided continue parameter, or version, is too old to display a consistent list result."
            )
        return {event.key: event.old for event in self._after(revision) if event.id == of}

    def _after(self, revision: int) -> Iterator[Event]:
        """Go through the writes after a version, the last one first."""
        for event in reversed(self._events):
            if event.revision <= revision:
                return
            yield event

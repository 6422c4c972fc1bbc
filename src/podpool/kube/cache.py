"""Cache of one kind's objects, with indexes and subscribers.

Only an informer writes. Subscribers receive each difference in order, as `(old, new)`: `(None, new)` for a created
object, `(old, None)` for a deleted one. An object that was deleted and created again between two updates is reported as
both. Indexes are updated before subscribers are called.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from podpool.api.meta import T
from podpool.runtime.logging import get_logger
from podpool.runtime.supervision import is_expected, report_defect

log = get_logger(__name__)

Subscriber = Callable[[T | None, T | None], None]


class CacheIndex(Generic[T]):
    """Objects by a value computed from them; an object may have several values, or none."""

    def __init__(self, values: Callable[[T], Iterable[str]]) -> None:
        self._values = values
        self._objects: dict[str, dict[str, T]] = {}

    def get(self, value: str) -> tuple[T, ...]:
        """Return all objects with this value, in the order in which they got it."""
        return tuple(self._objects.get(value, {}).values())

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._objects))

    def change(self, old: T | None, new: T | None) -> None:
        """Apply one difference of the cache."""
        values = dict.fromkeys(self._values(new)) if new is not None else {}
        if old is not None:
            for value in self._values(old):
                if value not in values:
                    self._drop(value, old.key)
        if new is not None:
            for value in values:
                self._objects.setdefault(value, {})[new.key] = new

    def _drop(self, value: str, key: str) -> None:
        objects = self._objects.get(value, {})
        objects.pop(key, None)
        if not objects:
            self._objects.pop(value, None)


class ObjectCache(Generic[T]):
    """Objects by key (`namespace/name`, or the name alone), in the order in which they were added."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        """Set after the first complete list."""
        self._objects: dict[str, T] = {}
        self._indexes: list[CacheIndex[T]] = []
        self._subscribers: list[Subscriber[T]] = []

    def get(self, key: str) -> T | None:
        """Return an object, or None."""
        return self._objects.get(key)

    def values(self) -> tuple[T, ...]:
        """Return all objects."""
        return tuple(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._objects))

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def index(self, values: Callable[[T], Iterable[str]]) -> CacheIndex[T]:
        """Add and return an index by what `values` returns for each object."""
        index = CacheIndex(values)
        for each in self._objects.values():
            index.change(None, each)
        self._indexes.append(index)
        return index

    def subscribe(self, subscriber: Subscriber[T]) -> Callable[[], None]:
        """Call `subscriber` with each difference; return a function that ends the subscription."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def apply(self, new: T) -> None:
        """Add or update an object."""
        key = new.key
        old = self._objects.get(key)
        if old is not None and old.metadata.uid != new.metadata.uid:
            self.discard(key)
            old = None
        self._objects[key] = new
        self._notify(old, new)

    def discard(self, key: str) -> None:
        """Remove an object if it is present."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._notify(old, None)

    def replace(self, listed: Iterable[T]) -> None:
        """Replace the contents by a complete list."""
        now = {each.key: each for each in listed}
        for key in [each for each in self._objects if each not in now]:
            self.discard(key)
        for key, new in now.items():
            if self._objects.get(key) != new:  # on a restored server one version can have two states
                self.apply(new)
        self.synced.set()

    def _notify(self, old: T | None, new: T | None) -> None:
        for index in self._indexes:
            _call(index.change, old, new)
        for subscriber in tuple(self._subscribers):
            _call(subscriber, old, new)


def _call(consumer: Subscriber[T], old: T | None, new: T | None) -> None:
    """Call a consumer; an exception that it does not expect ends neither the informer nor the calls of others."""
    try:
        consumer(old, new)
    except Exception as error:
        if is_expected(error):
            raise
        changed = new or old
        report_defect(log, "a change failed unexpectedly, skipped", error, object=changed.key if changed else "")

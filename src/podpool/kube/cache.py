"""The objects of one kind as a reflector last saw them.

Only a reflector writes. Subscribers are told of every difference, one after the other, as `(old, new)`: `(None, new)`
when an object came, `(old, None)` when it went. An object that went and came again under its name, unseen in between,
is told as both. Indexes are in step with the store before anybody is told.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from podpool.api.meta import T

Subscriber = Callable[[T | None, T | None], None]


class Index(Generic[T]):
    """Objects by something in them; an object may be found under several values, or none."""

    def __init__(self, values: Callable[[T], Iterable[str]]) -> None:
        self._values = values
        self._found: dict[str, dict[str, T]] = {}

    def get(self, value: str) -> tuple[T, ...]:
        """Find all objects that have this value, in the order in which they came by it."""
        return tuple(self._found.get(value, {}).values())

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._found))

    def change(self, old: T | None, new: T | None) -> None:
        """Follow one difference of the store."""
        values = dict.fromkeys(self._values(new)) if new is not None else {}
        if old is not None:
            for value in self._values(old):
                if value not in values:
                    self._drop(value, old.key)
        if new is not None:
            for value in values:
                self._found.setdefault(value, {})[new.key] = new

    def _drop(self, value: str, key: str) -> None:
        under = self._found.get(value, {})
        under.pop(key, None)
        if not under:
            self._found.pop(value, None)


class ObjectCache(Generic[T]):
    """Objects by key (`namespace/name`, or the name alone), in the order in which they came."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        """Set once a whole list has been seen."""
        self._objects: dict[str, T] = {}
        self._indexes: list[Index[T]] = []
        self._subscribers: list[Subscriber[T]] = []

    def get(self, key: str) -> T | None:
        """Find an object; None when there is none."""
        return self._objects.get(key)

    def values(self) -> tuple[T, ...]:
        """Take all objects, as they are now."""
        return tuple(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._objects))

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def index(self, values: Callable[[T], Iterable[str]]) -> Index[T]:
        """Have objects found by what `values` says of each, from now on without a search."""
        made = Index(values)
        for each in self._objects.values():
            made.change(None, each)
        self._indexes.append(made)
        return made

    def subscribe(self, subscriber: Subscriber[T]) -> Callable[[], None]:
        """Be told of every difference from now on; call what comes back to end it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def apply(self, new: T) -> None:
        """Take an object as it is now."""
        key = new.key
        old = self._objects.get(key)
        if old is not None and old.metadata.uid != new.metadata.uid:
            self.discard(key)
            old = None
        self._objects[key] = new
        self._tell(old, new)

    def discard(self, key: str) -> None:
        """Forget an object, if it is there."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._tell(old, None)

    def replace(self, listed: Iterable[T]) -> None:
        """Take a whole list: what it does not show is gone."""
        now = {each.key: each for each in listed}
        for key in [each for each in self._objects if each not in now]:
            self.discard(key)
        for key, new in now.items():
            if self._objects.get(key) != new:  # on a restored server one version can have two states
                self.apply(new)
        self.synced.set()

    def _tell(self, old: T | None, new: T | None) -> None:
        for index in self._indexes:
            index.change(old, new)
        for subscriber in tuple(self._subscribers):
            subscriber(old, new)

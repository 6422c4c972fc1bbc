"""The objects of one kind as a reflector last saw them.

Only a reflector writes. Subscribers are told of every difference, one after the other, as `(old, new)`: `(None, new)`
when an object came, `(old, None)` when it went. An object that went and came again under its name, unseen in between,
is told as both.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from podpool.resources.meta import T

Subscriber = Callable[[T | None, T | None], None]


class Store(Generic[T]):
    """Objects by key (`namespace/name`, or the name alone), in the order in which they came."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        """Set once a whole list has been seen."""
        self._objects: dict[str, T] = {}
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

    def subscribe(self, subscriber: Subscriber[T]) -> Callable[[], None]:
        """Be told of every difference from now on; call what comes back to end it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def apply(self, new: T) -> None:
        """Take an object as it is now."""
        old = self._objects.get(new.key)
        if old is not None and old.metadata.uid != new.metadata.uid:
            self.discard(new.key)
            old = None
        self._objects[new.key] = new
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
            old = self._objects.get(key)
            if old is None or old.metadata.resource_version != new.metadata.resource_version:
                self.apply(new)

    def _tell(self, old: T | None, new: T | None) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(old, new)

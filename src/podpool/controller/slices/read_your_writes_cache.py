"""Read-your-writes cache: it shows the controller's writes and quorum reads before the watch does."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic

import msgspec

from podpool.api.meta import T, version_number
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.kube.expectations import WATCH_DELAY
from podpool.kube.informer import Informer


class _Write(msgspec.Struct, Generic[T], frozen=True):
    """An object that was written or read past the watch; None if it was deleted."""

    object: T | None
    uid: str
    expires: float
    restores: int


class ReadYourWritesCache(Generic[T]):
    """Objects of one kind by name: the informer's, overlaid with the controller's own writes and quorum reads.

    An overlaid object counts until the watch has reached its resourceVersion, however late: a decision on an older
    state could assign a slice twice. A deletion counts only for a while. After a restore of the API
    server neither counts.
    """

    def __init__(self, informer: Informer[T], *, on_change: Callable[[str], object]) -> None:
        self._informer = informer
        self._cache = informer.cache
        self._on_change = on_change
        """Called with the name of an object that may have changed."""
        self._writes: dict[str, _Write[T]] = {}
        self._scheduled: set[str] = set()
        """Names that a timer checks again."""

    def get(self, name: str) -> T | None:
        """Return the latest known object."""
        namespace = self._informer.namespace
        cached = self._cache.get(f"{namespace}/{name}" if namespace else name)
        written = self._writes.get(name)
        if written is None:
            return cached
        if self._is_observed(written, cached):
            del self._writes[name]
            return cached
        return written.object

    def put(self, obj: T) -> None:
        """Overlay an object."""
        self._overlay(obj.metadata.name, obj, obj.metadata.uid)

    def remove(self, obj: T) -> None:
        """Overlay a deletion."""
        self._overlay(obj.metadata.name, None, obj.metadata.uid)

    async def delete(self, kube: KubeClient, obj: T) -> None:
        """Delete an object at its UID and resourceVersion."""
        meta, namespace = obj.metadata, self._informer.namespace
        with suppress(ApiNotFound):
            version, kind = meta.resource_version, self._informer.kind
            await kube.delete(kind, meta.name, namespace=namespace, uid=meta.uid, resource_version=version)
        self.remove(obj)

    async def read_all(self, kube: KubeClient) -> None:
        """Overlay all objects with a quorum read."""
        informer = self._informer
        for each in (await kube.list(informer.kind, namespace=informer.namespace)).items:
            self.put(each)

    def follow(self) -> Callable[[], None]:
        """Call `on_change` for all objects and for each change; returns a function that unsubscribes."""
        for key in self._cache:
            self._on_change(key.rpartition("/")[2])
        return self._cache.subscribe(self._on_event)

    def _on_event(self, old: T | None, new: T | None) -> None:
        changed = new or old
        if changed is not None:
            self._on_change(changed.metadata.name)

    def _overlay(self, name: str, obj: T | None, uid: str) -> None:
        loop = asyncio.get_running_loop()
        if name not in self._scheduled:
            self._scheduled.add(name)
            loop.call_later(WATCH_DELAY, self._check, name)
        self._writes[name] = _Write(obj, uid, loop.time() + WATCH_DELAY, self._informer.restores)
        self._on_change(name)

    def _check(self, name: str) -> None:
        """Check whether the watch has caught up: one that starts with a list sends no event for unseen objects."""
        if name in self._writes:
            self._on_change(name)
        if name in self._writes:
            asyncio.get_running_loop().call_later(WATCH_DELAY, self._check, name)
        else:
            self._scheduled.discard(name)

    def _is_observed(self, written: _Write[T], cached: T | None) -> bool:
        """Return whether the watch shows at least what was written."""
        if written.restores != self._informer.restores:
            return True
        if written.object is None:
            expired = asyncio.get_running_loop().time() >= written.expires
            return expired or cached is None or cached.metadata.uid != written.uid
        seen = version_number(self._informer.resource_version)
        return seen >= version_number(written.object.metadata.resource_version)

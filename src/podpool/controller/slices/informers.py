"""Informers of the slice controller, and a cache that shows the controller's writes before the watch does."""

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Generic

import msgspec

from podpool.api.builtin import LEASES
from podpool.api.meta import Kind, T, version_number
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS, NODE_UID_LABEL
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.kube.expectations import WATCH_DELAY
from podpool.kube.informer import Informer
from podpool.kube.wait import wait_until_served

CRD_POLL_INTERVAL = 60.0
"""Seconds between two checks whether Multus' CRD is installed."""


class TrackedInformer(Generic[T]):
    """An informer that counts restores of the API server."""

    def __init__(
        self,
        kube: KubeClient,
        kind: Kind[T],
        *,
        settings: ControllerSettings,
        rng: random.Random,
        namespace: str = "",
        labels: str | None = None,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.labels = labels
        self.restores = 0
        """How often the API server was restored to an older state."""
        self.restored_at = -math.inf
        """Time of the last restore, by the event loop's clock."""
        self._informer = Informer(
            kube,
            kind,
            rng=rng,
            namespace=namespace or None,
            labels=labels,
            relist_interval=settings.common.relist_interval,
        )
        self._informer.on_restored = self._on_restored
        self.cache = self._informer.cache
        self.run = self._informer.run

    @property
    def resource_version(self) -> int:
        """The newest resourceVersion that the watch has shown."""
        return version_number(self._informer.resource_version)

    def _on_restored(self, _seen: int, _found: int) -> None:
        self.restores += 1
        self.restored_at = asyncio.get_running_loop().time()


class SliceControllerInformers:
    """Informers of NADs, IPPools, Leases and NodeSlicePools; they run on every replica."""

    def __init__(self, kube: KubeClient, *, settings: ControllerSettings, rng: random.Random) -> None:
        namespace = settings.whereabouts_namespace
        nads = TrackedInformer(kube, NETWORK_ATTACHMENTS, settings=settings, rng=rng)
        self.nads = nads.cache
        self.pools = TrackedInformer(kube, IP_POOLS, settings=settings, rng=rng, namespace=namespace)
        label = NODE_UID_LABEL
        self.leases = TrackedInformer(kube, LEASES, settings=settings, rng=rng, namespace=namespace, labels=label)
        self.slice_pools = TrackedInformer(kube, NODE_SLICE_POOLS, settings=settings, rng=rng, namespace=namespace)
        self._informers = (nads, self.pools, self.leases, self.slice_pools)
        self._kube = kube
        self._rng = rng

    @property
    def restores(self) -> int:
        """How often a restore of the API server was detected."""
        return sum(each.restores for each in self._informers)

    def restored_within(self, seconds: float) -> bool:
        """Return whether a restore was detected within the last seconds."""
        return max(each.restored_at for each in self._informers) + seconds > asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Follow the objects until cancelled, once Multus' CRD is installed."""
        await wait_until_served(self._kube, NETWORK_ATTACHMENTS, rng=self._rng, interval=CRD_POLL_INTERVAL)
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())

    async def synced(self) -> None:
        """Wait until every cache has been filled; without Multus' CRD this never returns."""
        for informer in self._informers:
            await informer.cache.synced.wait()


class _Write(msgspec.Struct, Generic[T], frozen=True):
    """An object that was written or read past the watch; None if it was deleted."""

    object: T | None
    uid: str
    expires: float
    restores: int


class WriteThroughCache(Generic[T]):
    """Objects of one kind by name: the informer's, overlaid with the controller's own writes and quorum reads.

    An overlaid object counts until the watch has reached its resourceVersion, however late: a decision on an older
    state could assign a slice twice. A deletion counts only for a while. After a restore of the API
    server neither counts.
    """

    def __init__(self, informer: TrackedInformer[T], *, on_change: Callable[[str], object]) -> None:
        self._informer = informer
        self._cache = informer.cache
        self._on_change = on_change
        """Called with the name of an object that may have changed."""
        self._writes: dict[str, _Write[T]] = {}
        self._scheduled: set[str] = set()
        """Names that a timer checks again."""

    def get(self, name: str) -> T | None:
        """Return the latest known object."""
        cached = self._cache.get(f"{self._informer.namespace}/{name}")
        written = self._writes.get(name)
        if written is None:
            return cached
        if self._is_observed(written, cached):
            del self._writes[name]
            return cached
        return written.object

    def put(self, obj: T) -> None:
        """Overlay an object; without a resourceVersion it is one whose creation is still under way."""
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

    def drop_overlay(self, name: str) -> None:
        """Return to what the informer shows."""
        self._writes.pop(name, None)
        self._on_change(name)

    async def read_all(self, kube: KubeClient) -> None:
        """Overlay all objects with a quorum read."""
        informer = self._informer
        for each in (await kube.list(informer.kind, namespace=informer.namespace, labels=informer.labels)).items:
            self.put(each)

    def follow(self) -> Callable[[], None]:
        """Call `on_change` for all objects and for each change; returns a function that unsubscribes."""
        for key in self._cache:
            self._on_change(key.partition("/")[2])
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
        version = written.object.metadata.resource_version
        return self._informer.resource_version >= version_number(version) if version else cached is not None

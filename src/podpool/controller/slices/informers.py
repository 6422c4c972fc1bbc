"""The objects of Whereabouts' world as the controller sees them, with its own writes before a watch shows them."""

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Generic

import msgspec

from podpool.api.builtin import LEASES
from podpool.api.meta import Kind, T
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS, NODE_UID_LABEL
from podpool.controller.expectations import PATIENCE
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError, ApiNotFound
from podpool.kube.informer import Informer
from podpool.runtime.transport import Unreachable

UNDEFINED = 60.0
"""Seconds between two looks for whether Multus is there."""


class TrackedInformer(Generic[T]):
    """One kind's objects in one namespace, or everywhere, and how far the server's tale of them has come."""

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
        """How often the server went back to an older copy,"""
        self.restored_at = -math.inf
        """and when it last did, by the loop's time."""
        self._reflector = Informer(
            kube,
            kind,
            rng=rng,
            namespace=namespace or None,
            labels=labels,
            relist_interval=settings.common.relist_interval,
            on_restored=self._restored,
        )
        self.cache = self._reflector.cache
        self.run = self._reflector.run

    @property
    def seen(self) -> int:
        """The newest version that the server has told."""
        return _number(self._reflector.resource_version)

    def _restored(self, _seen: int, _found: int) -> None:
        self.restores += 1
        self.restored_at = asyncio.get_running_loop().time()


class SliceInformers:
    """One for each kind; kept whether the controller leads or not."""

    def __init__(self, kube: KubeClient, *, settings: ControllerSettings, rng: random.Random) -> None:
        home = settings.whereabouts_namespace
        self._definitions = TrackedInformer(kube, NETWORK_ATTACHMENTS, settings=settings, rng=rng)
        self.attachments = self._definitions.cache
        self.pools = TrackedInformer(kube, IP_POOLS, settings=settings, rng=rng, namespace=home)
        self.leases = TrackedInformer(kube, LEASES, settings=settings, rng=rng, namespace=home, labels=NODE_UID_LABEL)
        self.tables = TrackedInformer(kube, NODE_SLICE_POOLS, settings=settings, rng=rng, namespace=home)
        self._all = (self._definitions, self.pools, self.leases, self.tables)
        self._kube = kube

    @property
    def restores(self) -> int:
        """How often it was noticed that the server went back to an older copy."""
        return sum(each.restores for each in self._all)

    def restored_within(self, seconds: float) -> bool:
        """Tell whether it did so lately."""
        return max(each.restored_at for each in self._all) + seconds > asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Keep them, from the moment that the cluster knows of attachments."""
        await self._defined()
        async with asyncio.TaskGroup() as group:
            for mirror in self._all:
                group.create_task(mirror.run())

    async def _defined(self) -> None:
        """Wait for Multus' kind; whatever else is wrong the mirrors find out."""
        while True:
            try:
                await self._kube.list(NETWORK_ATTACHMENTS, cached=True)
            except ApiNotFound:
                await asyncio.sleep(UNDEFINED)
            except (ApiError, Unreachable):
                return
            else:
                return

    async def synced(self) -> None:
        """Wait until each has been seen as a whole: for ever, where nobody has defined the kinds."""
        for mirror in self._all:
            await mirror.cache.synced.wait()


class _Known(msgspec.Struct, Generic[T], frozen=True):
    """An object that was written or read past the watch; None where it was deleted."""

    object: T | None
    uid: str
    until: float
    restores: int


class WriteThroughCache(Generic[T]):
    """Objects of one kind by name, as they are by the latest that is known.

    What a leader wrote, or read for itself, counts until the watch has come as far, however late that is: a decision on
    what was before would give a slice twice. That something was deleted is believed for a while only, and nothing of
    all this when the server was restored from an older copy.
    """

    def __init__(self, mirror: TrackedInformer[T], *, changed: Callable[[str], object]) -> None:
        self._mirror = mirror
        self._store = mirror.cache
        self._changed = changed
        """Whom to tell the name of whatever may be another now."""
        self._known: dict[str, _Known[T]] = {}
        self._looked_at: set[str] = set()
        """What is looked at again, by a timer."""

    def get(self, name: str) -> T | None:
        """Find an object; None when there is none."""
        shown = self._store.get(f"{self._mirror.namespace}/{name}")
        known = self._known.get(name)
        if known is None:
            return shown
        if self._is_shown(known, shown):
            del self._known[name]
            return shown
        return known.object

    def note(self, obj: T) -> None:
        """Know an object from elsewhere than the watch; one that is only asked for has no version yet."""
        self._know(obj.metadata.name, obj, obj.metadata.uid)

    def gone(self, obj: T) -> None:
        """Know that an object was deleted."""
        self._know(obj.metadata.name, None, obj.metadata.uid)

    async def end(self, kube: KubeClient, obj: T) -> None:
        """Delete what was looked at, and nothing else."""
        meta, namespace = obj.metadata, self._mirror.namespace
        with suppress(ApiNotFound):
            await kube.delete(
                self._mirror.kind, meta.name, namespace=namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        self.gone(obj)

    def forget(self, name: str) -> None:
        """Know no better than the watch."""
        self._known.pop(name, None)
        self._changed(name)

    async def read(self, kube: KubeClient) -> None:
        """Read all of them as they are now."""
        mirror = self._mirror
        for each in (await kube.list(mirror.kind, namespace=mirror.namespace, labels=mirror.labels)).items:
            self.note(each)

    def follow(self) -> Callable[[], None]:
        """Tell of what is there and of what changes; call what comes back to end it."""
        for key in self._store:
            self._changed(key.partition("/")[2])
        return self._store.subscribe(self._shown)

    def _shown(self, old: T | None, new: T | None) -> None:
        moved = new or old
        if moved is not None:
            self._changed(moved.metadata.name)

    def _know(self, name: str, obj: T | None, uid: str) -> None:
        loop = asyncio.get_running_loop()
        if name not in self._looked_at:
            self._looked_at.add(name)
            loop.call_later(PATIENCE, self._look_again, name)
        self._known[name] = _Known(obj, uid, loop.time() + PATIENCE, self._mirror.restores)
        self._changed(name)

    def _look_again(self, name: str) -> None:
        """Look whether the watch has come as far: one that begins with a list tells of nothing that it never showed."""
        if name in self._known:
            self._changed(name)
        if name in self._known:
            asyncio.get_running_loop().call_later(PATIENCE, self._look_again, name)
        else:
            self._looked_at.discard(name)

    def _is_shown(self, known: _Known[T], shown: T | None) -> bool:
        """Tell whether the watch tells at least what is known."""
        if known.restores != self._mirror.restores:
            return True
        if known.object is None:
            late = asyncio.get_running_loop().time() >= known.until
            return late or shown is None or shown.metadata.uid != known.uid
        version = known.object.metadata.resource_version
        return self._mirror.seen >= _number(version) if version else shown is not None


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0

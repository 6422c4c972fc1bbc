"""Informer: a cache of one kind's objects, kept current by a list and a watch from its resourceVersion.

Invariant: a consumer of all events ends with what a fresh list shows, and never returns to an older state because of a
stale API server cache. If a cached list is older than what was seen, the informer makes a quorum read. If that is older
too, the API server was restored from a backup: the older state is accepted, logged and reported to `on_restored`.

A watch resumes from its last version only if the server ended it at the requested timeout. A watch that breaks may have
broken because the server was restored, and a restored server sends nothing to a watch from its future: list again. A
restore between a list and its watch goes unnoticed, so everything is listed again every `relist_interval`.
"""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Generic, TypeAlias

import msgspec

from podpool.api.meta import Kind, T, is_older, version_number
from podpool.kube.backoff import Backoff
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.kube.cluster_discovery import not_served_reason, wait_until_served
from podpool.kube.codec import ObjectList
from podpool.kube.errors import ApiError, ApiNotFound
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

WATCH_SECONDS = (300, 600)
"""Shortest and longest timeout of a watch; drawn at random, so that not all end at once."""
RELIST_INTERVAL = 1800.0
"""Seconds after which everything is listed again although no watch failed."""
BACKOFF_BASE, BACKOFF_MAX = 0.2, 30.0
RESTORED = "API server was restored from an older backup, accepting its state"
"""A log message."""

log = get_logger(__name__)


class Replaced(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """All objects: the first event, and again after each relist. An object that is not among them is deleted."""

    objects: Sequence[T]


class Applied(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object that was created or changed."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object that was deleted or no longer matches the selectors, in its last state."""

    object: T


InformerEvent: TypeAlias = Replaced[T] | Applied[T] | Deleted[T]


class Informer(Generic[T]):
    """Lists and watches a kind for one consumer: `run` keeps `cache`, or `stream` yields the events."""

    def __init__(
        self,
        client: KubeClient,
        kind: Kind[T],
        *,
        rng: random.Random,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        relist_interval: float = RELIST_INTERVAL,
    ) -> None:
        self.cache: ObjectCache[T] = ObjectCache()
        self.watch_seconds = WATCH_SECONDS
        self.on_restored: Callable[[int, int], None] = lambda _before, _now: None
        """Called with the version seen before and the older one that the server has now."""
        self.last_contact: float | None = None
        """Loop time of the server's last message; bookmarks arrive every minute."""
        self.failure = ""
        """Why the last list or watch failed; empty after a list."""
        self.restores = 0
        """How often the API server was restored to an older state."""
        self.restored_at = -math.inf
        """Loop time of the last restore."""
        self.kind = kind
        self.namespace = namespace
        self._client = client
        self._rng = rng
        self._selection = {"namespace": namespace, "labels": labels, "fields": fields}
        self._relist_interval = relist_interval
        self._seen = ""
        self._backoff = Backoff(rng=rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)

    @property
    def resource_version(self) -> str:
        """The newest version that the server has sent; empty before the first list."""
        return self._seen

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        async with aclosing(self.stream()) as events:
            async for event in events:
                match event:
                    case Applied():
                        self.cache.apply(event.object)
                    case Deleted():
                        self.cache.discard(event.object.key)
                    case Replaced():
                        self.cache.replace(event.objects)

    async def stream(self) -> AsyncGenerator[InformerEvent[T], None]:
        """Yield all objects, then each change, for ever; close it to stop (`contextlib.aclosing`).

        A slow consumer delays only itself: the server ends a watch that falls behind, and a new list follows.
        """
        clock = asyncio.get_running_loop().time
        relist_at = clock()
        while True:
            try:
                if clock() >= relist_at:
                    begun = clock()
                    yield Replaced(await self._list())
                    relist_at = begun + self._relist_interval
                async with aclosing(self._watch()) as events:
                    async for event in events:
                        yield event
            except (ApiError, Unreachable) as error:
                relist_at = clock()
                self._report_failure(error)
                await self._backoff.wait(at_least=(error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)

    async def quorum_list(self) -> ObjectList[T]:
        """Read the watched objects from etcd, for a decision that must not use a cache.

        If they are older than what was seen before the request, the API server was restored, which is reported.
        """
        seen = self._seen
        listing = await self._request_list(cached=False)
        if is_older(listing.resource_version, seen):
            self._report_restored(seen, listing.resource_version)
        return listing

    async def _list(self) -> Sequence[T]:
        listing = await self._request_list(cached=True)
        if is_older(listing.resource_version, self._seen):
            listing = await self.quorum_list()
        self._seen = listing.resource_version
        self.last_contact = asyncio.get_running_loop().time()
        self.failure = ""
        return listing.items

    async def _request_list(self, *, cached: bool) -> ObjectList[T]:
        return await self._client.list(self.kind, **self._selection, cached=cached)

    async def _watch(self) -> AsyncGenerator[InformerEvent[T], None]:
        timeout = min(self._rng.randint(*self.watch_seconds), math.ceil(self._relist_interval))
        loop = asyncio.get_running_loop()
        earliest_end = loop.time() + timeout - 1.0  # the server counts whole seconds
        version = self._seen
        watch = self._client.watch(self.kind, resource_version=version, **self._selection, timeout_seconds=timeout)
        async with aclosing(watch) as events:
            async for event in events:
                self._backoff.reset()
                self.last_contact = loop.time()
                self._seen = event.object.metadata.resource_version
                if event.type == "DELETED":
                    yield Deleted(event.object)
                elif event.type != "BOOKMARK":
                    yield Applied(event.object)
        if loop.time() < earliest_end:
            raise Unreachable("the API server", "a watch ended before its timeout")

    def _report_failure(self, error: ApiError | Unreachable) -> None:
        """Log a failure; that the kind is not served only once, because it needs an operator."""
        if not isinstance(error, ApiNotFound):
            self.failure = str(error)
            log.info("list or watch failed, retrying", kind=self.kind.plural, error=error)
            return
        reason = not_served_reason(self.kind)
        if reason != self.failure:
            log.warning("kind is not served, waiting for it", kind=self.kind.plural, reason=reason)
        self.failure = reason

    def _report_restored(self, before: str, now: str) -> None:
        log.warning(RESTORED, kind=self.kind.plural, resource_version=now, previous=before)
        self.restores += 1
        self.restored_at = asyncio.get_running_loop().time()
        self.on_restored(version_number(before), version_number(now))


class ObjectInformer(Generic[T]):
    """Watches one object by name; `on_change` is called after each change of what is known.

    That the object, or its kind, does not exist counts as known.
    """

    def __init__(
        self,
        kube: KubeClient,
        kind: Kind[T],
        name: str,
        *,
        rng: random.Random,
        namespace: str | None = None,
        relist_interval: float = RELIST_INTERVAL,
        on_change: Callable[[], None],
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._rng = rng
        self._namespace = namespace
        self._on_change = on_change
        self._fields = f"metadata.name={name}"
        self._key = f"{namespace}/{name}" if namespace else name
        self._informer = Informer(
            kube,
            kind,
            rng=rng,
            namespace=namespace,
            fields=self._fields,
            relist_interval=relist_interval,
        )
        self.on_restored: Callable[[], None] = on_change
        """Called when the API server was restored from an older backup."""
        self._informer.on_restored = lambda _before, _now: self.on_restored()
        self._kind_missing = False
        self._informer.cache.subscribe(lambda _old, _new: on_change())

    @property
    def last_contact(self) -> float | None:
        """Loop time of the last message of the API server."""
        return self._informer.last_contact

    @property
    def synced(self) -> bool:
        """Whether it is known if the object exists."""
        return self._kind_missing or self._informer.cache.synced.is_set()

    @property
    def listed(self) -> bool:
        """Whether the kind is served and it is known if the object exists."""
        return self._informer.cache.synced.is_set()

    @property
    def object(self) -> T | None:
        """The object; None if it does not exist or is not known yet."""
        return self._informer.cache.get(self._key)

    async def run(self) -> None:
        """Watch until cancelled."""
        namespace, fields, missing = self._namespace, self._fields, self._missing
        await wait_until_served(
            self._kube, self._kind, rng=self._rng, namespace=namespace, fields=fields, missing=missing
        )
        self._kind_missing = False
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            await self._informer.cache.synced.wait()
            self._on_change()  # an empty list reaches no subscriber

    def _missing(self) -> None:
        self._kind_missing = True
        self._on_change()


async def quorum_find(
    client: KubeClient, kind: Kind[T], name: str, *, cache: ObjectCache[T], namespace: str | None = None
) -> T | None:
    """Read as `quorum_get` does; None if the object does not exist."""
    try:
        return await quorum_get(client, kind, name, cache=cache, namespace=namespace)
    except ApiNotFound:
        return None


async def quorum_get(
    client: KubeClient, kind: Kind[T], name: str, *, cache: ObjectCache[T], namespace: str | None = None
) -> T:
    """Read one object from etcd, for a decision that must not use a cache; a restored API server is logged."""
    cached = cache.get(f"{namespace}/{name}" if namespace else name)
    found = await client.get(kind, name, namespace=namespace)
    before, now = cached.metadata.resource_version if cached else "", found.metadata.resource_version
    if cached and is_older(now, before):
        log.warning(RESTORED, kind=kind.plural, name=name, resource_version=now, previous=before)
    return found

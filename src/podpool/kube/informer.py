"""A kind's objects, followed from the API server: a list, then a watch from its version on.

What must hold: whatever happens on the way, who takes every event comes to hold what a fresh list shows, and never goes
back to an older state on the word of a cache. A cached list that is older than what was seen is not believed; a quorum
read is asked. If that is older too, the server itself was restored from a copy: then it is believed, and said.

A watch is taken up again where it ended only when the server ended it at the time agreed. A watch that broke may have
broken because the server was restored, and a restored server says nothing to who watches from its future: list again.
A server may also be restored unseen, between a list and its watch: so, now and then, all is listed although nothing
broke.
"""

import asyncio
import logging
import math
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Generic, TypeAlias

import msgspec

from podpool.api.meta import Kind, T
from podpool.kube.backoff import backoff
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.kube.codec import ObjectList
from podpool.kube.errors import ApiError
from podpool.runtime.transport import Unreachable

WATCH_SECONDS = (300, 600)
"""Seconds between which a watch's length is drawn, so that not all end at once."""
RELIST_INTERVAL = 1800.0
"""Seconds for which a list is trusted, however well the watches on it go."""
BACKOFF_BASE, BACKOFF_MAX = 0.2, 30.0

_log = logging.getLogger(__name__)


class Replaced(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """All that is there: first of all, and again whenever the thread was lost. What is not among it is gone."""

    objects: Sequence[T]


class Applied(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object that came, or changed."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object that went, or that the selectors fit no more, as it was last."""

    object: T


InformerEvent: TypeAlias = Replaced[T] | Applied[T] | Deleted[T]


class Informer(Generic[T]):
    """Follows a kind for one taker: `run` keeps the store, or `stream` tells somebody else."""

    def __init__(  # noqa: PLR0913  everything that a list can be narrowed by
        self,
        client: KubeClient,
        kind: Kind[T],
        *,
        rng: random.Random,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        relist_interval: float = RELIST_INTERVAL,
        on_restored: Callable[[int, int], None] | None = None,
    ) -> None:
        self.cache: ObjectCache[T] = ObjectCache()
        self.watch_seconds = WATCH_SECONDS
        self._client = client
        self._kind = kind
        self._rng = rng
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._relist_interval = relist_interval
        self._on_restored = on_restored
        self.last_contact: float | None = None
        """When the server last told anything, by the loop's time; it does every minute while all is well."""
        self._seen = ""
        self._failures = 0

    @property
    def resource_version(self) -> str:
        """The newest version that the server has told; empty before the first list."""
        return self._seen

    async def run(self) -> None:
        """Keep the store equal to what the API server has, until cancelled."""
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
        """Tell what there is, and then what happens, for ever. Whoever stops closes (`contextlib.aclosing`).

        Who takes slowly holds up nobody but itself: the server ends a watch that falls behind, and all is told anew.
        """
        clock = asyncio.get_running_loop().time
        trusted_until = clock()
        while True:
            try:
                if clock() >= trusted_until:
                    begun = clock()
                    yield Replaced(await self._list())
                    trusted_until = begun + self._relist_interval
                async with aclosing(self._watch()) as events:
                    async for event in events:
                        yield event
            except (ApiError, Unreachable) as error:
                trusted_until = clock()
                self._failures += 1
                _log.info("%s: %s; trying again", self._kind.plural, error)
                await asyncio.sleep(self._patience(error))

    async def quorum_list(self) -> ObjectList[T]:
        """Read what is followed as it is now, for a decision that no cache may make.

        When that is older than what was seen before it was asked for, the server was restored, which is said.
        """
        seen = self._seen
        listing = await self._ask(cached=False)
        if _older(listing.resource_version, seen):
            self._say_restored(seen, listing.resource_version)
        return listing

    async def _list(self) -> Sequence[T]:
        listing = await self._ask(cached=True)
        if _older(listing.resource_version, self._seen):
            listing = await self.quorum_list()
        self._seen = listing.resource_version
        self.last_contact = asyncio.get_running_loop().time()
        return listing.items

    async def _ask(self, *, cached: bool) -> ObjectList[T]:
        return await self._client.list(
            self._kind, namespace=self._namespace, labels=self._labels, fields=self._fields, cached=cached
        )

    async def _watch(self) -> AsyncGenerator[InformerEvent[T], None]:
        lasting = min(self._rng.randint(*self.watch_seconds), math.ceil(self._relist_interval))
        loop = asyncio.get_running_loop()
        agreed = loop.time() + lasting - 1.0  # the server counts in whole seconds
        changes = self._client.watch(
            self._kind,
            resource_version=self._seen,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            timeout_seconds=lasting,
        )
        async with aclosing(changes) as told:
            async for change in told:
                self._failures, self.last_contact = 0, loop.time()
                self._seen = change.object.metadata.resource_version
                if change.type == "DELETED":
                    yield Deleted(change.object)
                elif change.type != "BOOKMARK":
                    yield Applied(change.object)
        if loop.time() < agreed:
            raise Unreachable("the API server", "a watch ended before its time")

    def _say_restored(self, seen: str, found: str) -> None:
        _log.warning(
            "%s: the API server is at version %s and was at %s: it was restored from an older copy, which is believed",
            self._kind.plural,
            found,
            seen,
        )
        if self._on_restored:
            self._on_restored(int(seen), int(found))

    def _patience(self, error: ApiError | Unreachable) -> float:
        asked = (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
        return max(asked, backoff(self._failures, rng=self._rng, base=BACKOFF_BASE, most=BACKOFF_MAX))


async def quorum_get(
    client: KubeClient, kind: Kind[T], name: str, *, cache: ObjectCache[T], namespace: str | None = None
) -> T:
    """Read one object as it is now, for a decision that no cache may make; a server that was restored is told of."""
    known = cache.get(f"{namespace}/{name}" if namespace else name)
    found = await client.get(kind, name, namespace=namespace)
    if known and _older(found.metadata.resource_version, known.metadata.resource_version):
        _log.warning(
            "%s %s is at version %s and was at %s: the API server was restored from an older copy, which is believed",
            kind.kind,
            name,
            found.metadata.resource_version,
            known.metadata.resource_version,
        )
    return found


def _older(version: str, seen: str) -> bool:
    """Compare versions as numbers, which they are on every API server so far, though none promises it."""
    return version.isdecimal() and seen.isdecimal() and int(version) < int(seen)

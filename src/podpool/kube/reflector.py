"""A kind's objects, mirrored from the API server into a store: a list, then a watch from its version on.

What must hold: whatever happens on the way, the store comes to equal a fresh list, and never goes back to an older
state on the word of a cache. A cached list that is older than what was seen is not believed; a quorum read is asked. If
that is older too, the server itself was restored from a copy: then it is believed, and said.

A watch is taken up again where it ended only when the server ended it at the time agreed. A watch that broke may have
broken because the server was restored, and a restored server says nothing to who watches from its future: list again.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic

from podpool.kube.backoff import backoff
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError
from podpool.kube.store import Store
from podpool.kube.wire import Change, Listing
from podpool.resources.meta import Kind, T
from podpool.runtime.transport import Unreachable

LASTING = (300, 600)
"""Seconds between which a watch's length is drawn, so that not all end at once."""
BACKOFF_BASE, BACKOFF_MOST = 0.2, 30.0

_log = logging.getLogger(__name__)


class Reflector(Generic[T]):
    """Keeps a store equal to what the API server has; `run` until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        kind: Kind[T],
        *,
        rng: random.Random,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        restored: Callable[[int, int], None] | None = None,
    ) -> None:
        self.store: Store[T] = Store()
        self.lasting = LASTING
        self._client = client
        self._kind = kind
        self._rng = rng
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._restored = restored
        self._seen = ""
        self._listed = False
        self._failures = 0

    @property
    def seen(self) -> str:
        """The newest version that the server has told; empty before the first list."""
        return self._seen

    async def run(self) -> None:
        """List and watch for ever."""
        while True:
            try:
                if not self._listed:
                    await self._list()
                await self._watch()
            except (ApiError, Unreachable) as error:
                self._listed = False
                self._failures += 1
                _log.info("%s: %s; trying again", self._kind.plural, error)
                await asyncio.sleep(self._patience(error))

    async def _list(self) -> None:
        listing = await self._ask(cached=True)
        if self._older(listing):
            listing = await self._ask(cached=False)
            if self._older(listing):
                self._say_restored(listing)
        self.store.replace(listing.items)
        self._seen = listing.resource_version
        self._listed = True
        self.store.synced.set()

    async def _ask(self, *, cached: bool) -> Listing[T]:
        return await self._client.list(
            self._kind, namespace=self._namespace, labels=self._labels, fields=self._fields, cached=cached
        )

    async def _watch(self) -> None:
        lasting = self._rng.randint(*self.lasting)
        loop = asyncio.get_running_loop()
        agreed = loop.time() + lasting - 1.0  # the server counts in whole seconds
        changes = self._client.watch(
            self._kind,
            since=self._seen,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            lasting=lasting,
        )
        async with aclosing(changes) as told:
            async for change in told:
                self._failures = 0
                self._take(change)
        if loop.time() < agreed:
            raise Unreachable("the API server", "a watch ended before its time")

    def _take(self, change: Change[T]) -> None:
        if change.type == "DELETED":
            self.store.discard(change.object.key)
        elif change.type != "BOOKMARK":
            self.store.apply(change.object)
        self._seen = change.object.metadata.resource_version

    def _older(self, listing: Listing[T]) -> bool:
        told, seen = _number(listing.resource_version), _number(self._seen)
        return told is not None and seen is not None and told < seen

    def _say_restored(self, listing: Listing[T]) -> None:
        _log.warning(
            "%s: the API server is at version %s and was at %s: it was restored from an older copy, which is believed",
            self._kind.plural,
            listing.resource_version,
            self._seen,
        )
        if self._restored:
            self._restored(int(self._seen), int(listing.resource_version))

    def _patience(self, error: ApiError | Unreachable) -> float:
        asked = (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
        return max(asked, backoff(self._failures, rng=self._rng, base=BACKOFF_BASE, most=BACKOFF_MOST))


def _number(version: str) -> int | None:
    """Read a version as a number, which it is on every API server so far, though none promises it."""
    return int(version) if version.isdecimal() else None

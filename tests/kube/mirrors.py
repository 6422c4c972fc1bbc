"""A reflector at work, and the few things that tests do to the objects it follows."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.kube.codec import decoders_of
from podpool.kube.informer import Informer
from podpool.runtime.transport import Request
from tests.kube.clusters import Guest

NNC = NODE_NETWORK_CONFIGS
Told = tuple[str | None, str | None]


class Mirror:
    """A reflector at work, and what its subscriber was told."""

    def __init__(self, guest: Guest, *, lasting: int | None = None, **selectors: Any) -> None:  # noqa: ANN401  whatever
        self.guest = guest
        self.told: list[tuple[NodeNetworkConfig | None, NodeNetworkConfig | None]] = []
        rng = random.Random(1)  # noqa: S311  seeded
        self.reflector = Informer(guest.client, NNC, rng=rng, namespace=guest.namespace, **selectors)
        self.reflector.watch_seconds = (lasting, lasting) if lasting else self.reflector.watch_seconds
        self.cache = self.reflector.cache
        self.cache.subscribe(self._tell)
        self._changed = asyncio.Event()

    def _tell(self, old: NodeNetworkConfig | None, new: NodeNetworkConfig | None) -> None:
        self.told.append((old, new))
        self._changed.set()

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait until something holds, looked at after each change."""
        async with asyncio.timeout(100):
            while not what():
                self._changed.clear()
                await self._changed.wait()

    async def has(self, name: str) -> None:
        await self.until(lambda: f"{self.guest.namespace}/{name}" in self.cache)

    async def shows(self, *names: str) -> None:
        """Wait until these are the objects in the store, and see that a fresh list says the same."""
        await self.until(lambda: sorted(names) == sorted(each.metadata.name for each in self.cache.values()))
        await self.equals_a_fresh_list()

    async def equals_a_fresh_list(self) -> None:
        """Wait until the store has come to be what the server has, while nobody writes."""
        wanted = await fresh(self.guest)
        await self.until(lambda: wanted == {each.key: each for each in self.cache.values()})

    def names(self) -> list[Told]:
        return [(old.metadata.name if old else None, new.metadata.name if new else None) for old, new in self.told]


@asynccontextmanager
async def mirror(guest: Guest, **selectors: Any) -> AsyncIterator[Mirror]:  # noqa: ANN401  same
    watching = Mirror(guest, **selectors)
    running = asyncio.ensure_future(watching.reflector.run())
    try:
        async with asyncio.timeout(100):
            await watching.cache.synced.wait()
        yield watching
    finally:
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled(), "a reflector ends only when it is told to"


async def make(guest: Guest, *names: str, **labels: str) -> None:
    for name in names:
        await guest.client.create(NNC, {"metadata": {"name": name, "labels": labels}}, namespace=guest.namespace)


async def ask(guest: Guest, name: str, requested: int) -> None:
    await guest.client.merge_patch(NNC, name, {"spec": {"requestedIPCount": requested}}, namespace=guest.namespace)


async def drop(guest: Guest, name: str) -> None:
    await guest.client.delete(NNC, name, namespace=guest.namespace)


async def fresh(guest: Guest) -> dict[str, NodeNetworkConfig]:
    """What a quorum read shows, by key, all at once."""
    request = Request(method="GET", path=NNC.path(namespace=guest.namespace))
    answer = await guest.road.send(request)
    while answer.status == 429:  # just after its start a server asks for patience
        await answer.read()
        await asyncio.sleep(0.1)
        answer = await guest.road.send(request)
    assert 200 == answer.status
    page = decoders_of(NNC).page.decode(await answer.read())
    return {each.key: each for each in page.items or ()}


async def cached(guest: Guest, count: int) -> None:
    """Wait until the server's own cache shows so many."""
    shown = -1
    while shown < count:
        shown = len((await guest.client.list(NNC, namespace=guest.namespace, cached=True)).items)

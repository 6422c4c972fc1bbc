"""A running informer, and operations on the objects that it watches."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.kube.codec import decoders_of
from podpool.kube.informer import Informer
from podpool.runtime.transport import Request
from tests.kube.api_servers import NamespaceClient

NNC = NODE_NETWORK_CONFIGS
Notification = tuple[str | None, str | None]


class RunningInformer:
    """An informer that runs, and the notifications of its cache."""

    def __init__(self, api: NamespaceClient, *, watch_seconds: int | None = None, **selectors: Any) -> None:  # noqa: ANN401  whatever
        self.api = api
        self.notifications: list[tuple[NodeNetworkConfig | None, NodeNetworkConfig | None]] = []
        rng = random.Random(1)  # noqa: S311  seeded
        self.informer = Informer(api.client, NNC, rng=rng, namespace=api.namespace, **selectors)
        self.restores: list[tuple[int, int]] = []
        self.informer.on_restored = lambda *versions: self.restores.append(versions)
        self.informer.watch_seconds = (watch_seconds, watch_seconds) if watch_seconds else self.informer.watch_seconds
        self.cache = self.informer.cache
        self.cache.subscribe(self._notify)
        self._changed = asyncio.Event()

    def _notify(self, old: NodeNetworkConfig | None, new: NodeNetworkConfig | None) -> None:
        self.notifications.append((old, new))
        self._changed.set()

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait until a condition holds, checked after each change."""
        async with asyncio.timeout(100):
            while not what():
                self._changed.clear()
                await self._changed.wait()

    async def has(self, name: str) -> None:
        await self.until(lambda: f"{self.api.namespace}/{name}" in self.cache)

    async def shows(self, *names: str) -> None:
        """Wait until the cache has exactly these objects, and compare it with a quorum read."""
        await self.until(lambda: sorted(names) == sorted(each.metadata.name for each in self.cache.values()))
        await self.equals_a_fresh_list()

    async def equals_a_fresh_list(self) -> None:
        """Wait until the cache equals a quorum read; nothing may write meanwhile."""
        wanted = await quorum_objects(self.api)
        await self.until(lambda: wanted == {each.key: each for each in self.cache.values()})

    def names(self) -> list[Notification]:
        return [
            (old.metadata.name if old else None, new.metadata.name if new else None) for old, new in self.notifications
        ]


@asynccontextmanager
async def running_informer(api: NamespaceClient, **selectors: Any) -> AsyncIterator[RunningInformer]:  # noqa: ANN401  same
    watching = RunningInformer(api, **selectors)
    running = asyncio.ensure_future(watching.informer.run())
    try:
        async with asyncio.timeout(100):
            await watching.cache.synced.wait()
        yield watching
    finally:
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled(), "an informer ends only when cancelled"


async def create(api: NamespaceClient, *names: str, **labels: str) -> None:
    for name in names:
        await api.client.create(NNC, {"metadata": {"name": name, "labels": labels}}, namespace=api.namespace)


async def set_request(api: NamespaceClient, name: str, requested: int) -> None:
    await api.client.merge_patch(NNC, name, {"spec": {"requestedIPCount": requested}}, namespace=api.namespace)


async def delete(api: NamespaceClient, name: str) -> None:
    await api.client.delete(NNC, name, namespace=api.namespace)


async def quorum_objects(api: NamespaceClient) -> dict[str, NodeNetworkConfig]:
    """Return a quorum read of all objects, by key."""
    request = Request(method="GET", path=NNC.path(namespace=api.namespace))
    answer = await api.transport.send(request)
    while answer.status == 429:  # a server that has just started may be overloaded
        await answer.read()
        await asyncio.sleep(0.1)
        answer = await api.transport.send(request)
    assert 200 == answer.status
    page = decoders_of(NNC).page.decode(await answer.read())
    return {each.key: each for each in page.items or ()}


async def wait_for_server_cache(api: NamespaceClient, count: int) -> None:
    """Wait until the server's watch cache has this many objects."""
    shown = -1
    while shown < count:
        shown = len((await api.client.list(NNC, namespace=api.namespace, cached=True)).items)

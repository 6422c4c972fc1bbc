"""Cost of a watch event and of a cached Pod: podpool's informer beside the official client, fed the same bytes.

Events arrive as fast as they are consumed. The cost of a watch is CPU time of its own process; the cost of a Pod is the
memory that Python allocates for it.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
import tracemalloc
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import uvloop
from kubernetes import client  # imports a class when it is first used: all of them take seconds
from kubernetes.watch import Watch

from podpool.api.builtin import PODS, Pod
from podpool.kube.client import KubeClient
from podpool.kube.informer import Informer, Replaced
from podpool.runtime.http_client import HttpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from bench.scenario import Run
    from podpool.kube.cache import ObjectCache

WATCH: Any = Watch  # it has no types


@contextmanager
def our_watch(address: str, events: int) -> Iterator[Run]:
    """Process events with an informer; microseconds per event."""

    async def follow() -> float:
        async with mirrored(address) as store:
            begun, received, enough = time.process_time(), 0, asyncio.Event()

            def count(_old: Pod | None, _new: Pod | None) -> None:
                nonlocal received
                received += 1
                if received == events:
                    enough.set()

            store.subscribe(count)
            await enough.wait()
            return (time.process_time() - begun) / events * 1e6

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield lambda _: runner.run(follow())


@contextmanager
def official_watch(address: str, events: int) -> Iterator[Run]:
    """Process events with the official client; microseconds per event."""

    def run(_repetition: int) -> float:
        with official(address) as api:
            listed = api.list_pod_for_all_namespaces()
            cache = {each.metadata.uid: each for each in listed.items}
            version, begun = listed.metadata.resource_version, time.process_time()
            stream = WATCH().stream(api.list_pod_for_all_namespaces, resource_version=version)
            for received, event in enumerate(stream, start=1):
                cache[event["object"].metadata.uid] = event["object"]
                if received == events:
                    break
            return (time.process_time() - begun) / events * 1e6

    yield run


@contextmanager
def our_memory(address: str, pods: int) -> Iterator[Run]:
    """List into an informer's cache; bytes per object."""

    async def fill() -> float:
        with traced() as used:
            store = await listed(address)
            return used() / pods if len(store) == pods else float("nan")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield lambda _: runner.run(fill())


async def listed(address: str) -> ObjectCache[Pod]:
    """List once, and keep only the cache."""
    async with following(address) as informer, aclosing(informer.stream()) as events:
        first = await anext(events)
        if isinstance(first, Replaced):
            informer.cache.replace(first.objects)
        return informer.cache


@contextmanager
def official_memory(address: str, pods: int) -> Iterator[Run]:
    """List into a dictionary; bytes per object."""

    def run(_repetition: int) -> float:
        with official(address) as api, traced() as used:
            cache = {each.metadata.uid: each for each in api.list_pod_for_all_namespaces().items}
            return used() / len(cache) if len(cache) == pods else float("nan")

    yield run


@asynccontextmanager
async def mirrored(address: str) -> AsyncIterator[ObjectCache[Pod]]:
    """Yield the cache of a running informer after its first list."""
    async with following(address) as informer:
        running = asyncio.ensure_future(informer.run())
        try:
            await informer.cache.synced.wait()
            yield informer.cache
        finally:
            running.cancel()
            await asyncio.wait([running])


@asynccontextmanager
async def following(address: str) -> AsyncIterator[Informer[Pod]]:
    """Yield an informer with its transport."""
    transport = HttpTransport(address)
    try:
        yield Informer(KubeClient(transport), PODS, rng=random.Random(1))  # noqa: S311  seeded
    finally:
        await transport.close()


@contextmanager
def official(address: str) -> Iterator[Any]:
    """Yield the official client."""
    with client.ApiClient(client.Configuration(host=address)) as connection:
        yield client.CoreV1Api(connection)


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the bytes allocated by Python since the start."""
    gc.collect()
    tracemalloc.start()

    def used() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield used
    finally:
        tracemalloc.stop()

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
from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.watch import Watch

from podpool.api.builtin import PODS, Pod
from podpool.kube.client import KubeClient
from podpool.kube.informer import Informer, Replaced
from podpool.runtime.http import HttpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from bench.scenario import Run
    from podpool.kube.cache import ObjectCache

WATCH: Any = Watch  # it has no types


@contextmanager
def our_watch(address: str, events: int) -> Iterator[Run]:
    """Take events into a reflector's store; microseconds for each."""

    async def follow() -> float:
        async with mirrored(address) as store:
            begun, heard, enough = time.process_time(), 0, asyncio.Event()

            def hear(_old: Pod | None, _new: Pod | None) -> None:
                nonlocal heard
                heard += 1
                if heard == events:
                    enough.set()

            store.subscribe(hear)
            await enough.wait()
            return (time.process_time() - begun) / events * 1e6

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield lambda _: runner.run(follow())


@contextmanager
def official_watch(address: str, events: int) -> Iterator[Run]:
    """Take events into a dictionary, as the official informer does; microseconds for each."""

    def run(_repetition: int) -> float:
        with official(address) as api:
            listed = api.list_pod_for_all_namespaces()
            cache = {each.metadata.uid: each for each in listed.items}
            version, begun = listed.metadata.resource_version, time.process_time()
            stream = WATCH().stream(api.list_pod_for_all_namespaces, resource_version=version)
            for heard, event in enumerate(stream, start=1):
                cache[event["object"].metadata.uid] = event["object"]
                if heard == events:
                    break
            return (time.process_time() - begun) / events * 1e6

    yield run


@contextmanager
def our_memory(address: str, pods: int) -> Iterator[Run]:
    """List into a reflector's store; bytes for each."""

    async def fill() -> float:
        with traced() as used:
            store = await listed(address)
            return used() / pods if len(store) == pods else float("nan")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield lambda _: runner.run(fill())


async def listed(address: str) -> ObjectCache[Pod]:
    """List once, and keep nothing but what was listed."""
    async with following(address) as mirror, aclosing(mirror.stream()) as events:
        first = await anext(events)
        if isinstance(first, Replaced):
            mirror.cache.replace(first.objects)
        return mirror.cache


@contextmanager
def official_memory(address: str, pods: int) -> Iterator[Run]:
    """List into a dictionary; bytes for each."""

    def run(_repetition: int) -> float:
        with official(address) as api, traced() as used:
            cache = {each.metadata.uid: each for each in api.list_pod_for_all_namespaces().items}
            return used() / len(cache) if len(cache) == pods else float("nan")

    yield run


@asynccontextmanager
async def mirrored(address: str) -> AsyncIterator[ObjectCache[Pod]]:
    """Have a reflector at work that has listed."""
    async with following(address) as mirror:
        running = asyncio.ensure_future(mirror.run())
        try:
            await mirror.cache.synced.wait()
            yield mirror.cache
        finally:
            running.cancel()
            await asyncio.wait([running])


@asynccontextmanager
async def following(address: str) -> AsyncIterator[Informer[Pod]]:
    """Have a reflector, and the road under it."""
    transport = HttpTransport(address)
    try:
        yield Informer(KubeClient(transport), PODS, rng=random.Random(1))  # noqa: S311  seeded
    finally:
        await transport.close()


@contextmanager
def official(address: str) -> Iterator[Any]:
    """Have the official client."""
    with ApiClient(Configuration(host=address)) as client:
        yield CoreV1Api(client)


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Count the bytes that Python's objects take more than in the beginning."""
    gc.collect()
    tracemalloc.start()

    def used() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield used
    finally:
        tracemalloc.stop()

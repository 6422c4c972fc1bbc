"""How fast pocket is: the API server that tests, the simulator and `podpool up` run on, called without HTTP."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvloop

from podpool.kube.client import KubeClient
from podpool.kube.install import install
from podpool.pocket.handler import PocketApi
from podpool.pocket.store import PocketStore
from podpool.resources.acn import NETWORK_CONFIGS
from podpool.resources.crds import manifests
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bench.scenario import Run

NAMESPACE, NAME = "kube-system", "node-1"


@contextmanager
def pocket_writes(writes: int) -> Iterator[Run]:
    """Patch one object, one request after the other; writes per second."""

    async def run(client: KubeClient, first: int) -> float:
        begun = time.perf_counter()
        for number in range(first, first + writes):
            await client.merge(NETWORK_CONFIGS, NAME, {"spec": {"requestedIPCount": number}}, namespace=NAMESPACE)
        return writes / (time.perf_counter() - begun)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        client = KubeClient(runner.run(served()))
        yield lambda repetition: runner.run(run(client, 1 + repetition * writes))


@contextmanager
def pocket_fanout(watches: int, writes: int) -> Iterator[Run]:
    """Tell writes to very many watches; events taken per second."""

    async def run(server: PocketApi, first: int) -> float:
        client = KubeClient(server)
        version = (await client.list(NETWORK_CONFIGS)).resource_version
        query = {"watch": "true", "resourceVersion": version}
        request = Request(method="GET", path=NETWORK_CONFIGS.path(namespace=NAMESPACE), query=query)
        opened = [await server.send(request) for _ in range(watches)]
        taking = [asyncio.ensure_future(take(each.stream, writes)) for each in opened]
        begun = time.perf_counter()
        for number in range(first, first + writes):
            await client.merge(NETWORK_CONFIGS, NAME, {"spec": {"requestedIPCount": number}}, namespace=NAMESPACE)
            await asyncio.sleep(0)  # the watches have their turn after each write
        await asyncio.gather(*taking)
        seconds = time.perf_counter() - begun
        for each in opened:
            await each.close()
        return watches * writes / seconds

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = runner.run(served())
        yield lambda repetition: runner.run(run(server, 1 + repetition * writes))


async def take(stream: AsyncIterator[bytes], events: int) -> None:
    """Read until so many events have come."""
    async for piece in stream:
        events -= piece.count(b"\n")
        if events <= 0:
            return


async def served() -> PocketApi:
    """Make one with our kinds and the object that is patched."""
    server = PocketApi(PocketStore(clock=SystemClock(), rng=random.Random(1)))  # noqa: S311  seeded
    client = KubeClient(server)
    await install(client, manifests())
    await client.create(NETWORK_CONFIGS, {"metadata": {"name": NAME}}, namespace=NAMESPACE)
    return server

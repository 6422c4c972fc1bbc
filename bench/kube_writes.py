"""Write throughput of podpool's client beside a bare loop, on one real API server.

Both patch the same objects, 16 at once, over 16 TLS connections. The bare side sends the recorded bytes of our client
and examines only the status of each response.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
import uvloop

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.crds import crd_manifests
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.transport import Request, Response

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from bench.scenario import Run
    from parts.control_plane import ControlPlane

NAMESPACE = "kube-system"
AT_ONCE = 16

_numbers = itertools.count(1)
"""Written values, new each time: a patch without a change is not a write."""


class Dictation:
    """A transport that records requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Response:
        """Record a request; return a minimal response."""
        self.requests.append(request)
        return Response(200, b"{}")


def prepare(plane: ControlPlane) -> None:
    """Create the CRDs and the patched objects."""

    async def make() -> None:
        transport = transport_to(plane)
        try:
            client = KubeClient(transport, timeout=60.0)
            await install_crds(client, crd_manifests())
            for each in range(AT_ONCE):
                await client.create(NODE_NETWORK_CONFIGS, {"metadata": {"name": f"node-{each}"}}, namespace=NAMESPACE)
        finally:
            await transport.close()

    asyncio.run(make())


@contextmanager
def our_writes(plane: ControlPlane, writes: int) -> Iterator[Run]:
    """Write with podpool's client; writes per second."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        transport = transport_to(plane)
        client = KubeClient(transport)

        def turn(_repetition: int) -> float:
            return runner.run(per_second([[patch(client, each) for _ in range(writes)] for each in range(AT_ONCE)]))

        try:
            yield turn
        finally:
            runner.run(transport.close())


@contextmanager
def bare_writes(plane: ControlPlane, writes: int) -> Iterator[Run]:
    """Send the recorded bytes of podpool's client; writes per second."""
    headers, base = {"authorization": f"Bearer {plane.admin.token}"}, f"https://127.0.0.1:{plane.port}"

    async def send(session: aiohttp.ClientSession, request: Request) -> None:
        url, sent = base + request.path, {**headers, **request.headers}
        async with session.request(request.method, url, data=request.body, headers=sent) as answer:
            await answer.read()
            answer.raise_for_status()

    async def opened() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE, ssl=tls(plane)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        session = runner.run(opened())

        def turn(_repetition: int) -> float:
            dictated = [runner.run(dictate(each, writes)) for each in range(AT_ONCE)]
            return runner.run(per_second([[send(session, each) for each in requests] for requests in dictated]))

        try:
            yield turn
        finally:
            runner.run(session.close())


def patch(client: KubeClient, node: int) -> Coroutine[Any, Any, object]:
    """Patch one object."""
    wanted = {"spec": {"requestedIPCount": next(_numbers)}}
    return client.merge_patch(NODE_NETWORK_CONFIGS, f"node-{node}", wanted, namespace=NAMESPACE)


async def dictate(node: int, writes: int) -> list[Request]:
    """Return the bytes that podpool's client sends."""
    transport = Dictation()
    for _ in range(writes):
        await patch(KubeClient(transport), node)
    return transport.requests


async def per_second(lanes: list[list[Coroutine[Any, Any, object]]]) -> float:
    """Run the writes of each connection in sequence, all connections concurrently."""

    async def follow(lane: list[Coroutine[Any, Any, object]]) -> None:
        for write in lane:
            await write

    begun = time.perf_counter()
    await asyncio.gather(*(follow(lane) for lane in lanes))
    return sum(len(lane) for lane in lanes) / (time.perf_counter() - begun)


def transport_to(plane: ControlPlane) -> HttpTransport:
    """Return the transport that the daemons use."""
    headers = {"authorization": f"Bearer {plane.admin.token}"}
    return HttpTransport(
        f"https://127.0.0.1:{plane.port}", tls=tls(plane), headers=lambda: headers, connections=AT_ONCE
    )


def tls(plane: ControlPlane) -> ssl.SSLContext:
    """Return a TLS context that trusts the API server's certificate."""
    return ssl.create_default_context(cafile=str(plane.ca))

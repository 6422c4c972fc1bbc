"""Throughput of the lite API server over HTTP: `podpool apiserver serve` in its own process, with objects in memory.

The watches of the fan-out only count events and decode nothing, so that the server is measured: it took three times the
CPU of its thousand clients.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from parts.daemon import Daemon
from parts.loopback import free_port
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.crds import crd_manifests
from podpool.kube.client import KubeClient
from podpool.kube.client_config import from_kubeconfig
from podpool.kube.crd_install import install_crds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bench.scenario import Run

NAMESPACE, NAME = "kube-system", "node-1"
CONCURRENCY = 16
FILES = 4096
"""File descriptors: a watch takes one on either side."""
OK, MODIFIED = b"HTTP/1.1 200", b'"type":"MODIFIED"'

_numbers = itertools.count(1)
"""Written values, new each time: a patch without a change is not a write."""


@contextmanager
def lite_api_writes(writes: int) -> Iterator[Run]:
    """Measure writes per second: patches of objects, 16 at once."""

    async def run(client: KubeClient, _: int) -> float:
        async def patch(name: str) -> None:
            for _ in range(writes // CONCURRENCY):
                await write(client, name)

        started = time.perf_counter()
        await asyncio.gather(*(patch(f"{NAME}-{each}") for each in range(CONCURRENCY)))
        return (writes // CONCURRENCY) * CONCURRENCY / (time.perf_counter() - started)

    with served(run) as measured:
        yield measured


@contextmanager
def lite_api_fanout(watches: int, writes: int) -> Iterator[Run]:
    """Measure events per second: writes sent to many watches, each with its own connection."""

    async def run(client: KubeClient, port: int) -> float:
        version = (await client.list(NODE_NETWORK_CONFIGS)).resource_version
        counter = EventCounter(watches * writes)
        loop = asyncio.get_running_loop()
        connections = [
            await loop.create_connection(lambda: WatchClient(version, counter), "127.0.0.1", port)
            for _ in range(watches)
        ]
        await asyncio.gather(*(client.started for _, client in connections))
        started = time.perf_counter()
        for _ in range(writes):
            await write(client, f"{NAME}-0")
        await counter.complete.wait()
        seconds = time.perf_counter() - started
        for transport, _ in connections:
            transport.abort()
        return watches * writes / seconds

    with served(run) as measured:
        yield measured


class EventCounter:
    """Counts the events of all watches."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self.complete = asyncio.Event()

    def add(self, events: int) -> None:
        """Count events."""
        self._missing -= events
        if self._missing <= 0:
            self.complete.set()


class WatchClient(asyncio.Protocol):
    """One watch."""

    def __init__(self, version: str, counter: EventCounter) -> None:
        path = f"{NODE_NETWORK_CONFIGS.path(namespace=NAMESPACE)}?watch=true&resourceVersion={version}"
        self._request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        self._counter = counter
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        transport.write(self._request)  # type: ignore[attr-defined]  # a stream's transport

    def data_received(self, data: bytes) -> None:
        """Count events; the response head comes first."""
        if not self.started.done():
            if data.startswith(OK):
                self.started.set_result(None)
            else:
                self.started.set_exception(RuntimeError(f"a watch was rejected: {data[:300]!r}"))
        self._counter.add(data.count(MODIFIED))


async def write(client: KubeClient, name: str) -> None:
    """Patch an object once."""
    patch = {"spec": {"requestedIPCount": next(_numbers)}}
    await client.merge_patch(NODE_NETWORK_CONFIGS, name, patch, namespace=NAMESPACE)


@contextmanager
def served(run: Callable[[KubeClient, int], Awaitable[float]]) -> Iterator[Run]:
    """Start a server with the CRDs and the patched objects, and run on it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    with tempfile.TemporaryDirectory() as scratch, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        home, port = Path(scratch), free_port()
        kubeconfig = home / "kubeconfig"
        args = ["apiserver", "serve", "--listen", f"127.0.0.1:{port}", "--write-kubeconfig", str(kubeconfig)]
        server = Daemon([sys.executable, "-m", "podpool", *args], log=home / "log", ready=kubeconfig.exists)
        server.start()
        transport = from_kubeconfig(kubeconfig)
        client = KubeClient(transport, timeout=60.0)
        try:
            runner.run(prepare(client))
            yield lambda _: runner.run(_awaited(run(client, port)))
        finally:
            runner.run(transport.close())
            server.stop()


async def _awaited(running: Awaitable[float]) -> float:
    return await running


async def prepare(client: KubeClient) -> None:
    """Create the CRDs and the patched objects."""
    await install_crds(client, crd_manifests())
    for each in range(CONCURRENCY):
        await client.create(NODE_NETWORK_CONFIGS, {"metadata": {"name": f"{NAME}-{each}"}}, namespace=NAMESPACE)

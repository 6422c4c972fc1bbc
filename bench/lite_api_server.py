"""How fast pocket is over HTTP: `podpool apiserver serve` in a process of its own, its objects in memory.

The watches of the fan-out only count what they are sent and decode nothing, so that the server is what is measured: it
took three times the CPU of its thousand clients.
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
from podpool.kube.config import from_kubeconfig
from podpool.kube.crd_install import install_crds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bench.scenario import Run

NAMESPACE, NAME = "kube-system", "node-1"
AT_ONCE = 16
FILES = 4096
"""Descriptors: a watch is one on either side."""
GOOD, TOLD = b"HTTP/1.1 200", b'"type":"MODIFIED"'

_numbers = itertools.count(1)
"""What is written, new each time: a patch that changes nothing is no write."""


@contextmanager
def lite_api_writes(writes: int) -> Iterator[Run]:
    """Patch objects, 16 at once; writes per second."""

    async def run(client: KubeClient, _: int) -> float:
        async def patch(name: str) -> None:
            for _ in range(writes // AT_ONCE):
                await write(client, name)

        begun = time.perf_counter()
        await asyncio.gather(*(patch(f"{NAME}-{each}") for each in range(AT_ONCE)))
        return (writes // AT_ONCE) * AT_ONCE / (time.perf_counter() - begun)

    with served(run) as measured:
        yield measured


@contextmanager
def lite_api_fanout(watches: int, writes: int) -> Iterator[Run]:
    """Tell writes to very many watches, each with a connection of its own; events that arrive per second."""

    async def run(client: KubeClient, port: int) -> float:
        version = (await client.list(NODE_NETWORK_CONFIGS)).resource_version
        count = Count(watches * writes)
        loop = asyncio.get_running_loop()
        made = [
            await loop.create_connection(lambda: Listener(version, count), "127.0.0.1", port) for _ in range(watches)
        ]
        await asyncio.gather(*(listener.begun for _, listener in made))
        begun = time.perf_counter()
        for _ in range(writes):
            await write(client, f"{NAME}-0")
        await count.reached.wait()
        seconds = time.perf_counter() - begun
        for transport, _ in made:
            transport.abort()
        return watches * writes / seconds

    with served(run) as measured:
        yield measured


class Count:
    """How many events have come, over all watches."""

    def __init__(self, wanted: int) -> None:
        self._missing = wanted
        self.reached = asyncio.Event()

    def add(self, events: int) -> None:
        """Count some."""
        self._missing -= events
        if self._missing <= 0:
            self.reached.set()


class Listener(asyncio.Protocol):
    """One watch."""

    def __init__(self, version: str, count: Count) -> None:
        path = f"{NODE_NETWORK_CONFIGS.path(namespace=NAMESPACE)}?watch=true&resourceVersion={version}"
        self._request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        self._count = count
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        transport.write(self._request)  # type: ignore[attr-defined]  # a stream's transport

    def data_received(self, data: bytes) -> None:
        """Count; the head of the answer comes first."""
        if not self.begun.done():
            if data.startswith(GOOD):
                self.begun.set_result(None)
            else:
                self.begun.set_exception(RuntimeError(f"a watch is refused: {data[:300]!r}"))
        self._count.add(data.count(TOLD))


async def write(client: KubeClient, name: str) -> None:
    """Make one write."""
    patch = {"spec": {"requestedIPCount": next(_numbers)}}
    await client.merge_patch(NODE_NETWORK_CONFIGS, name, patch, namespace=NAMESPACE)


@contextmanager
def served(run: Callable[[KubeClient, int], Awaitable[float]]) -> Iterator[Run]:
    """Have one with our kinds and the objects that are patched, and run on it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    with tempfile.TemporaryDirectory() as scratch, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        home, port = Path(scratch), free_port()
        kubeconfig = home / "kubeconfig"
        words = ["apiserver", "serve", "--listen", f"127.0.0.1:{port}", "--write-kubeconfig", str(kubeconfig)]
        pocket = Daemon([sys.executable, "-m", "podpool", *words], log=home / "log", ready=kubeconfig.exists)
        pocket.start()
        road = from_kubeconfig(kubeconfig)
        client = KubeClient(road, timeout=60.0)
        try:
            runner.run(prepare(client))
            yield lambda _: runner.run(_awaited(run(client, port)))
        finally:
            runner.run(road.close())
            pocket.stop()


async def _awaited(running: Awaitable[float]) -> float:
    return await running


async def prepare(client: KubeClient) -> None:
    """Define our kinds, and make the objects that are patched."""
    await install_crds(client, crd_manifests())
    for each in range(AT_ONCE):
        await client.create(NODE_NETWORK_CONFIGS, {"metadata": {"name": f"{NAME}-{each}"}}, namespace=NAMESPACE)

"""Load on an API server under measurement: kubelets that register, agents that request, and a bare loop.

Requests are sent as prepared bytes over sixteen TLS connections; only the status of a response is examined.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
import uvloop

from bench.kube_writes import tls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from parts.control_plane import ControlPlane

T = TypeVar("T")

AT_ONCE = 16
NODES = "/api/v1/nodes"
CONFIGS = "/apis/acn.azure.com/v1alpha/namespaces/kube-system/nodenetworkconfigs"
INFO = (
    "machineID",
    "systemUUID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


class Crowd:
    """An event loop with its own connections."""

    def __init__(self, plane: ControlPlane) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._base = f"https://127.0.0.1:{plane.port}"
        self._session = self.run(self._opened(plane))

    async def _opened(self, plane: ControlPlane) -> aiohttp.ClientSession:
        headers = {"authorization": f"Bearer {plane.admin.token}"}
        connector = aiohttp.TCPConnector(limit=AT_ONCE, ssl=tls(plane))
        return aiohttp.ClientSession(connector=connector, headers=headers)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to completion."""
        return self._runner.run(work)

    def close(self) -> None:
        """Close the connections."""
        self.run(self._session.close())
        self._runner.close()

    async def register(self, numbers: Iterable[int]) -> None:
        """Register Nodes as kubelets do."""
        await self._each(numbers, self._registered)

    async def _registered(self, number: int) -> None:
        name, address = node(number), f"192.168.{number >> 8}.{number & 255}"
        status = {
            "nodeInfo": dict.fromkeys(INFO, "") | {"bootID": f"boot-{number}"},
            "addresses": [{"type": "InternalIP", "address": address}],
        }
        await self.send("POST", NODES, {"metadata": {"name": name}})
        await self.send("PATCH", f"{NODES}/{name}/status", {"status": status})

    async def write_like(self, template: dict[str, Any], numbers: Sequence[int]) -> float:
        """Write the objects of a controller as fast as possible; writes per second."""
        begun = time.perf_counter()
        await self._each(numbers, lambda number: self._written(template, f"bare-{number}"))
        return 2 * len(numbers) / (time.perf_counter() - begun)

    async def _written(self, template: dict[str, Any], name: str) -> None:
        await self.send("POST", CONFIGS, template | {"metadata": template["metadata"] | {"name": name}, "status": {}})
        await self.send("PATCH", f"{CONFIGS}/{name}/status", {"status": template["status"]})

    async def ask(self, number: int, addresses: int) -> None:
        """Request addresses for a node as its agent does."""
        await self.send("PATCH", f"{CONFIGS}/{node(number)}", {"spec": {"requestedIPCount": addresses}})

    async def ask_at(self, rate: float, wanted: Mapping[int, int]) -> None:
        """Send requests of nodes at a fixed rate, whether responses keep up or not."""
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for place, (number, addresses) in enumerate(wanted.items()):
                await asyncio.sleep(max(0.0, begun + place / rate - time.perf_counter()))
                group.create_task(self.ask(number, addresses))

    async def send(self, method: str, path: str, body: object) -> None:
        """Send one request."""
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body)
        headers = {"content-type": media}
        async with self._session.request(method, self._base + path, data=data, headers=headers) as answer:
            said = await answer.read()
            if answer.status >= 400:
                raise AssertionError(f"{method} {path}: {said.decode()[:300]}")

    async def _each(self, numbers: Iterable[int], act: Callable[[int], Awaitable[None]]) -> None:
        left = iter(numbers)

        async def one_after_another() -> None:
            for number in left:
                await act(number)

        await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))


def node(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:04}"

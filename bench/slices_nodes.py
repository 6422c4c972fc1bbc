"""Many nodes with ten networks each on one real API server: a controller, and agents in this process.

Each agent has its own journal, account and socket. The first ones have their own connections; the others share watches
(`slices_transports`). Journals are in memory, because real nodes do not share a disk.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.kube_writes import tls
from bench.load_generator import AT_ONCE, Crowd, node
from bench.slices_cluster import ATTACHMENTS, begin_slices, defined
from bench.slices_transports import ADDING, NAMESPACE, CountingTransport, SharedWatches
from parts.installation import Installation
from parts.whereabouts import Whereabouts
from podpool.agent.agent import Agent
from podpool.agent.cni_socket import serve_cni
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.secondary.flat_file import FlatFileReader
from podpool.cni.protocol import PluginRequest as Frame
from podpool.cni.protocol import decode_response, encode_request
from podpool.core.settings import parse_settings
from podpool.kube.client import KubeClient
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.transport import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from parts.control_plane import ControlPlane
    from podpool.runtime.transport import Transport

NETWORKS = 10
RANGE, SLICE = "10.0.0.0/8", "/24"
"""The same range for all networks: their names keep them apart."""
SETTINGS = "cooldown=0,cooldown_exhausted=0"
OWN = 256
"""Nodes with their own connections: five watches each."""
TOKENS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/podpool-agent/token"
IN_MEMORY = Path("/dev/shm")  # noqa: S108  where it is, it is shared memory and no disk
DEADLINE = 120.0
"""Timeout of a response in seconds: all nodes share one machine."""
TIMEOUT = 3600.0
INTERVAL, QUIET = 0.2, 1.0


class ManyNodes(Installation):
    """One cluster that grows: `grow_to` adds nodes."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        super().__init__(plane, home, subnet="none.none", cidr="", gateway="", settings=SETTINGS)
        self.crowd = Crowd(plane)
        self.nodes: list[SimulatedNode] = []
        self.configs_home, self.doors = home / "networks", home / "doors"
        self.journals = tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        self._whereabouts = Whereabouts(plane, home)
        self._trust = tls(plane)
        self._admin = self._connect(2 * AT_ONCE, plane.admin.token)
        self._shared = SharedWatches(self._admin)
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start the controller, with ten networks and no nodes."""
        self.configs_home.mkdir()
        self.doors.mkdir()
        begin_slices(self)
        for number in range(NETWORKS):
            config = self._whereabouts.config(RANGE, network_name=f"net{number}", node_slice_size=SLICE)
            (self.configs_home / f"{number}.conf").write_bytes(config)
            self.plane.admin.post(ATTACHMENTS, defined(f"net{number}", config))
        self.crowd.run(self._follow())

    def stop(self) -> None:
        """Stop everything."""
        self.crowd.run(self._end())
        self.crowd.close()
        self.journals.cleanup()
        super().stop()

    async def grow_to(self, nodes: int, *, alone: bool = False) -> None:
        """Register nodes and start their agents, and wait until all have their slices; `alone` shares no watches."""
        numbers = range(len(self.nodes), nodes)
        await self.crowd.register(numbers)
        made = await self._made(numbers, alone=alone)
        self.nodes += made
        self._tasks += [asyncio.create_task(each.run()) for each in made]
        await self.until(
            lambda: all(each.serves() for each in made), f"{nodes} nodes have their slices", interval=QUIET
        )

    async def settle(self) -> None:
        """Wait until every IPPool lists the assignments of its node."""
        writes = -1
        while writes != (writes := sum(each.transport.writes for each in self.nodes)):
            await self.until(lambda: all(each.shown() for each in self.nodes), "the IPPools follow", interval=INTERVAL)
            await asyncio.sleep(QUIET)  # a write may be pending

    async def until(self, holds: Callable[[], bool], what: str, *, interval: float) -> None:
        """Wait while the agents run; raises the error of an agent that failed."""
        deadline = time.monotonic() + TIMEOUT
        while not holds():
            for task in self._tasks:
                if task.done():
                    task.result()
            if time.monotonic() > deadline:
                raise TimeoutError(f"timed out after {TIMEOUT:.0f} s waiting until {what}")
            await asyncio.sleep(interval)

    async def _made(self, numbers: Iterable[int], *, alone: bool) -> list[SimulatedNode]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> SimulatedNode:
            async with gate:
                token = await self._token(node(number))
            transport: Transport = self._connect(AT_ONCE, token) if alone or number < OWN else self._shared
            return SimulatedNode(number, transport, token, journals=Path(self.journals.name), doors=self.doors)

        return list(await asyncio.gather(*map(one, numbers)))

    async def _token(self, name: str) -> str:
        """Request a token that is bound to a Node."""
        found = await self._asked(Request(method="GET", path=f"/api/v1/nodes/{name}"))
        bound = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": found["metadata"]["uid"]}
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        headers = {"content-type": "application/json"}
        made = await self._asked(Request(method="POST", path=TOKENS, headers=headers, body=msgspec.json.encode(wanted)))
        return str(made["status"]["token"])

    async def _asked(self, request: Request) -> dict[str, Any]:
        response = await self._admin.send(request)
        said = await response.read()
        if response.status >= 400:
            raise AssertionError(f"{request.method} {request.path}: {said.decode()}")
        return dict(msgspec.json.decode(said))

    def _connect(self, connections: int, token: str) -> HttpTransport:
        headers = {"authorization": f"Bearer {token}"}
        base = f"https://127.0.0.1:{self.plane.port}"
        return HttpTransport(base, tls=self._trust, headers=lambda: headers, connections=connections)

    async def _follow(self) -> None:
        self._tasks.append(asyncio.create_task(self._shared.run()))
        await self._shared.listed()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._admin.close()


class SimulatedNode:
    """A node that consists only of its agent."""

    def __init__(self, number: int, transport: Transport, token: str, *, journals: Path, doors: Path) -> None:
        self.name = node(number)
        self.transport = CountingTransport(transport, token)
        self._transport = transport
        self._door = doors / f"{self.name}.sock"
        self._has_door = number < OWN
        self._disk = LocalDisk(journals / self.name)
        deps = AgentDeps(
            node=self.name,
            boot_id=f"boot-{number}",
            kube=KubeClient(self.transport, timeout=DEADLINE),
            disk=self._disk,
            clock=SystemClock(),
            rng=random.Random(number),  # noqa: S311  the same each time
            settings=parse_settings(SETTINGS),
            read_flat_file=FlatFileReader([str(doors.parent)]).read,
        )
        self._agent = Agent(deps, AgentOptions(whereabouts_namespace=NAMESPACE, third_party_plugins=False))

    async def run(self) -> None:
        """Run the agent until cancelled."""
        try:
            async with self._listening():
                await self._agent.run()
        finally:
            self._disk.close()
            if isinstance(self._transport, HttpTransport):
                await self._transport.close()

    async def handle(self, frame: bytes) -> bytes:
        """Handle a plugin's request; calls made for it are counted."""
        before = ADDING.set(True)
        try:
            return await self._agent.handle(frame)
        finally:
            ADDING.reset(before)

    async def call(self, command: str, pod: str, configs: list[bytes]) -> None:
        """Call the agent as a runtime does for a Pod: one network after the other."""
        for number, config in enumerate(configs):
            frame = Frame(
                command=command,
                container_id=f"{pod}-{self.name}",
                netns=f"/run/netns/{pod}",
                ifname=f"net{number}",
                args=f"IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME={pod}-{self.name}",
                stdin=config,
            )
            answer = decode_response(await self.handle(encode_request(frame)))
            if answer.exit_code:
                raise RuntimeError(f"{self.name} refused {command} of {pod}: {answer.stdout.decode()}")
            await asyncio.sleep(0)  # let other tasks run

    def serves(self) -> bool:
        """Return whether it has all its slices and may assign addresses."""
        return len(self._agent.metrics_snapshot().slices) == NETWORKS and self._agent.not_ready_reason() is None

    def shown(self) -> bool:
        """Return whether its IPPools list its assignments and no write is pending."""
        return not self.transport.open and not any(each.lag for each in self._agent.metrics_snapshot().slices)

    def given(self) -> int:
        """Return the number of assigned addresses."""
        return sum(each.assigned for each in self._agent.metrics_snapshot().slices)

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        if not self._has_door:
            yield
            return
        async with serve_cni(self._door, self.handle):
            yield

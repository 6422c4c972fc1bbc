"""Cluster of the yield benchmark: real API server, ledger on PostgreSQL and controller, and all agents in this process.

Each agent has its own account, connections and journal, and default settings. Journals are in memory, because real
nodes do not share a disk.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.controller_cluster import SUBNET, site
from bench.kube_writes import tls
from bench.load_generator import node as node_name
from bench.yield_load import Published
from bench.yield_pods import Pods, wait_until
from podpool.agent.agent import Agent
from podpool.agent.deps import NAMESPACE, AgentDeps
from podpool.api.azure import CLUSTER_SUBNETS
from podpool.cni.protocol import decode_response, encode_request
from podpool.kube.client import KubeClient
from podpool.kube.informer import ObjectInformer
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http_client import HttpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bench.controller_cluster import Site
    from bench.yield_load import Size
    from parts.postgres import Postgres
    from podpool.cni.protocol import PluginRequest, PluginResponse

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  shared memory, not a disk


class AgentNode:
    """A node that consists only of its agent."""

    def __init__(self, place: Site, number: int, journals: Path) -> None:
        self.name = node_name(number)
        token = place.plane.accounts.token("podpool-agent", namespace=NAMESPACE, node=self.name)
        self._transport = connect(place, token)
        self._disk = LocalDisk(journals / self.name)
        deps = AgentDeps(
            node=self.name,
            boot_id=f"boot-{number}",
            kube=KubeClient(self._transport),
            disk=self._disk,
            clock=SystemClock(),
            rng=random.Random(number),  # noqa: S311  the same each time
        )
        self._agent = Agent(deps)

    def ready(self) -> bool:
        """Return whether it has its first addresses and may assign them."""
        return self._agent.pool.granted > 0 and self._agent.not_ready_reason() is None

    async def run(self) -> None:
        """Run the agent until cancelled."""
        try:
            await self._agent.run()
        finally:
            self._disk.close()
            await self._transport.close()

    async def call(self, request: PluginRequest) -> PluginResponse:
        """Pass a plugin's request to the agent."""
        return decode_response(await self._agent.handle(encode_request(request)))


class PublishedStates:
    """What the ClusterSubnet has shown to agents, in order."""

    def __init__(self, kube: KubeClient) -> None:
        self.states: list[Published] = []
        name = SUBNET.partition(".")[2]
        rng = random.Random(0)  # noqa: S311  the same each time
        self._informer = ObjectInformer(
            kube, CLUSTER_SUBNETS, name, rng=rng, namespace=NAMESPACE, on_change=self._on_change
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._informer.run()

    def _on_change(self) -> None:
        status = self._informer.object.status if self._informer.object else None
        if status is None or not status.scaler.batch:
            return
        buffer, exhausted = float(status.scaler.buffer or 0), bool(status.exhausted)
        self.states.append(Published(batch=status.scaler.batch, buffer=buffer, exhausted=exhausted))


class YieldCluster(NamedTuple):
    """A running cluster: its Pods, and what its ClusterSubnet has shown."""

    pods: Pods
    published: list[Published]


@contextmanager
def yield_site(server: Postgres, size: Size, *, scarcity: str) -> Iterator[Site]:
    """Yield a site whose nodes have joined, with the controller's policy for a subnet that runs short."""
    logging.getLogger("podpool").setLevel(logging.ERROR)  # an ADD that fails is a result here, not a warning
    with site(server, size.nodes, cidr=size.cidr, scarcity=scarcity) as place:
        place.join(size.nodes)
        yield place


@asynccontextmanager
async def running_agents(place: Site, size: Size, *, seed: int) -> AsyncIterator[YieldCluster]:
    """Run an agent on each node, and wait until each has its first addresses."""
    rng = random.Random(seed)  # noqa: S311  the same each time
    transport = connect(place, place.plane.admin.token)
    kube = KubeClient(transport)
    published = PublishedStates(kube)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as journals:
        nodes = [AgentNode(place, number, Path(journals)) for number in range(size.nodes)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(published.run()), *(group.create_task(each.run()) for each in nodes)]
                if not await wait_until(lambda: all(each.ready() for each in nodes)):
                    raise TimeoutError("the agents have no addresses")
                pods = Pods(kube, nodes, group, rng)
                yield YieldCluster(pods, published.states)
                pods.cancel()
                for task in tasks:
                    task.cancel()
        finally:
            await transport.close()


def connect(place: Site, token: str) -> HttpTransport:
    """Return a connection to the API server with a token."""
    headers = {"authorization": f"Bearer {token}"}
    return HttpTransport(f"https://127.0.0.1:{place.plane.port}", tls=tls(place.plane), headers=lambda: headers)

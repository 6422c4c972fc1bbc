"""Growth with the number of nodes: bytes that a node reads, and API server CPU of a write.

The cluster grows from size to size; at each size the last nodes to join are measured, from their start until a Pod with
ten networks has come and gone. Sizes cannot be interleaved, because a cluster does not shrink.

The API server may match a write against every watch. That is measured with idle watches, as many as there would be
nodes, each of its own NodeSlices by name, on its own connection.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import aiohttp

from bench.controller_cluster import cpu_of
from bench.kube_writes import tls
from bench.load_generator import Crowd
from bench.slices_cluster import NODE
from bench.slices_nodes import NETWORKS
from parts.whereabouts import POOLS
from podpool.api.node_slices import NODE_SLICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.slices_nodes import ManyNodes
    from parts.control_plane import ControlPlane

PROBES = 3
"""Nodes that are measured at each size."""
POOL = "measured"
IP_POOL, OWN_SLICES = "IPPool", "NodeSlices"
"""The kinds whose writes are measured."""
SETTLED = 0.5


class Growth:
    """A cluster that grows through the sizes."""

    def __init__(self, cluster: ManyNodes, sizes: Sequence[int]) -> None:
        self._cluster = cluster
        self._sizes = sizes
        self._reads: dict[int, list[float]] = {}

    def reach(self, nodes: int) -> None:
        """Grow to a number of nodes, and measure the sizes on the way."""
        for size in self._sizes:
            if size <= nodes and size not in self._reads:
                self._grow(size - PROBES)
                self._reads[size] = [self._cluster.crowd.run(self._probe()) for _ in range(PROBES)]
        self._grow(nodes)

    def bytes_read(self, size: int, turn: int) -> float:
        """Return the bytes that one node read at a size."""
        self.reach(size)
        return self._reads[size][turn]

    def _grow(self, nodes: int) -> None:
        if nodes > len(self._cluster.nodes):
            self._cluster.crowd.run(self._cluster.grow_to(nodes))

    async def _probe(self) -> float:
        cluster = self._cluster
        await cluster.grow_to(len(cluster.nodes) + 1, alone=True)
        probe = cluster.nodes[-1]
        configs = [(cluster.configs_home / f"{number}.conf").read_bytes() for number in range(NETWORKS)]
        for command in ("ADD", "DEL"):
            await probe.call(command, "probe", configs)
            await cluster.settle()
        return float(probe.transport.received)


class Watchers:
    """Watches of the NodeSlices of nodes without one, and an IPPool and a NodeSlices that are written."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._crowd = Crowd(plane)
        self._open: list[aiohttp.ClientResponse] = []
        self._session = self._crowd.run(self._opened())
        self._writes = 0
        spec = {"range": "192.168.0.0/24", "allocations": {}}
        kind = {"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool"}
        plane.admin.post(POOLS, {**kind, "metadata": {"name": POOL}, "spec": spec})

    def close(self) -> None:
        """Close the watches."""
        self._crowd.run(self._session.close())
        self._crowd.close()

    def cpu_per_write(self, watches: int, *, writes: int, of: str) -> float:
        """CPU of the API server per write of a kind in microseconds, with the given number of watches."""
        self._crowd.run(self._have(watches))
        time.sleep(SETTLED)
        pid = self._plane.apiserver.pid
        before = cpu_of(pid)
        self._crowd.run(self._write(writes, of))
        time.sleep(SETTLED)  # watches receive an event after the response
        return 1e6 * (cpu_of(pid) - before) / writes

    async def _opened(self) -> aiohttp.ClientSession:
        headers = {"authorization": f"Bearer {self._plane.admin.token}"}
        connector = aiohttp.TCPConnector(limit=0, ssl=tls(self._plane))
        return aiohttp.ClientSession(connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(total=None))

    async def _have(self, watches: int) -> None:
        while len(self._open) > watches:
            self._open.pop().close()
        base = f"https://127.0.0.1:{self._plane.port}{NODE_SLICES.path()}"
        since = self._plane.admin.get(NODE_SLICES.path())["metadata"]["resourceVersion"]
        while len(self._open) < watches:
            query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": "3600"}
            query["fieldSelector"] = f"metadata.name=node-{len(self._open)}"
            answer = await self._session.get(base, params=query)
            answer.raise_for_status()
            self._open.append(answer)

    async def _write(self, writes: int, of: str) -> None:
        for _ in range(writes):
            self._writes += 1
            if of == IP_POOL:
                entry = {"id": f"sandbox-{self._writes}", "podref": "bench/pod", "ifname": "net1"}
                await self._crowd.send("PATCH", f"{POOLS}/{POOL}", {"spec": {"allocations": {"1": entry}}})
            else:
                note = {"metadata": {"annotations": {"bench.podpool.io/write": str(self._writes)}}}
                await self._crowd.send("PATCH", f"{NODE_SLICES.path()}/{NODE}", note)

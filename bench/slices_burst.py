"""A Pod with ten networks on each of many nodes at once: podpool, and Whereabouts beside it.

Plugins are processes, started by one program, ten per Pod in sequence, as Multus does. Whereabouts has its own
namespace, so that its lists do not include our objects, and is stopped after two minutes. All processes share one
machine's cores.
"""

from __future__ import annotations

import asyncio
import platform
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from bench.agent_adds import compiled
from bench.load_generator import node
from bench.slices_cluster import GROUP, slice_pool
from bench.slices_nodes import NETWORKS
from parts.recipes import program
from parts.whereabouts import Whereabouts
from podpool.cni.build import build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.slices_nodes import ManyNodes, SimulatedNode

STARTER = Path(__file__).with_name("pods.c")
THEIRS = "theirs"
ENOUGH = 600.0
"""Timeout of podpool's side in seconds, never reached."""


class Burst(Struct, frozen=True, kw_only=True):
    """Result of one burst."""

    addresses: int
    seconds: float
    """Seconds until every address was assigned."""
    calls_per_add: float
    bytes_per_node: float
    """Bytes from the API server, until the IPPools listed all addresses."""

    @property
    def per_second(self) -> float:
        """Addresses assigned per second."""
        return self.addresses / self.seconds


class Bursts:
    """Bursts by turn; each runs once for all figures taken from it."""

    def __init__(self, cluster: ManyNodes, *, nodes: int, seconds: float) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._seconds = seconds
        self.ours = cache(self._ours)
        self.simulated = cache(self._simulated)
        self.theirs = cache(self._theirs)

    def _ours(self, turn: int) -> Burst:
        """Run a burst with plugin processes, on nodes with a socket."""
        return self._cluster.crowd.run(self._burst(turn, self._cluster.nodes[: self._nodes], processes=True))

    def _simulated(self, turn: int) -> Burst:
        """Run a burst without plugin processes: requests are passed to the agents, all nodes at once."""
        return self._cluster.crowd.run(self._burst(turn, self._cluster.nodes, processes=False))

    async def _burst(self, turn: int, nodes: Sequence[SimulatedNode], *, processes: bool) -> Burst:
        await self._cluster.settle()
        before = [(each.transport.received, each.transport.during_adds) for each in nodes]
        seconds = await (self._started("ADD", turn) if processes else self._request("ADD", turn, nodes))
        given = sum(each.given() for each in nodes)
        if given != len(nodes) * NETWORKS:
            raise AssertionError(f"{given} addresses were given to {len(nodes)} Pods of {NETWORKS} networks")
        calls = sum(each.transport.during_adds - had for each, (_, had) in zip(nodes, before, strict=True))
        await self._cluster.settle()
        received = sum(each.transport.received - had for each, (had, _) in zip(nodes, before, strict=True))
        await (self._started("DEL", turn) if processes else self._request("DEL", turn, nodes))
        return Burst(
            addresses=given, seconds=seconds, calls_per_add=calls / given, bytes_per_node=received / len(nodes)
        )

    async def _request(self, command: str, turn: int, nodes: Sequence[SimulatedNode]) -> float:
        configs = [(self._cluster.configs_home / f"{number}.conf").read_bytes() for number in range(NETWORKS)]
        begun = time.perf_counter()
        await asyncio.gather(*(each.call(command, f"simulated-{turn}", configs) for each in nodes))
        return time.perf_counter() - begun

    async def _started(self, command: str, turn: int) -> float:
        """Return the seconds until the last plugin exited."""
        home, plugin = self._cluster.configs_home, build(platform.machine())
        ended = await self._start(command, f"ours-{turn}-", home, plugin, seconds=ENOUGH)
        if len(ended) != self._nodes * NETWORKS:
            raise AssertionError(f"{len(ended)} {command}s of {self._nodes * NETWORKS} succeeded")
        return max(ended)

    def _theirs(self, *, sliced: bool) -> float:
        """Addresses per second of Whereabouts within the timeout; run once, because it takes all of it."""
        theirs = Theirs(self._cluster, sliced=sliced, nodes=self._nodes)
        try:
            ended = self._cluster.crowd.run(
                self._start("ADD", f"theirs-{sliced}-", theirs.home, program("whereabouts"), seconds=self._seconds)
            )
        finally:
            theirs.clear()
        done = len(ended) == self._nodes * NETWORKS
        return len(ended) / (max(ended) if done else self._seconds)

    async def _start(self, command: str, prefix: str, configs: Path, plugin: Path, *, seconds: float) -> list[float]:
        """Start all Pods; return the end of each successful plugin."""
        words = [command, str(self._nodes), str(NETWORKS), str(int(seconds)), prefix]
        words += map(str, (configs, self._cluster.doors, plugin))
        process = await asyncio.create_subprocess_exec(
            compiled(STARTER, self._cluster.home),
            *words,
            env={"CNI_PATH": "/", "PATH": "/usr/bin:/bin"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"Pods could not be started: {process.returncode}")
        return [int(line) / 1e9 for line in output.split()]


class Theirs:
    """Create Whereabouts' ten networks, with slices as its controller would assign them."""

    def __init__(self, cluster: ManyNodes, *, sliced: bool, nodes: int) -> None:
        self._admin = cluster.plane.admin
        self.home = cluster.home / f"theirs-{sliced}"
        self.home.mkdir()
        if not any(each["metadata"]["name"] == THEIRS for each in self._admin.get("/api/v1/namespaces")["items"]):
            self._admin.post("/api/v1/namespaces", {"metadata": {"name": THEIRS}})
        whereabouts = Whereabouts(cluster.plane, self.home, namespace=THEIRS)
        for number in range(NETWORKS):
            name, base = f"theirs{number}", f"10.{(200 if sliced else 220) + number}"
            more = {"node_slice_size": "/24"} if sliced else {}
            config = whereabouts.config(f"{base}.0.0/16", network_name=name, **more)
            (self.home / f"{number}.conf").write_bytes(config)
            if sliced:
                slices = {node(each): f"{base}.{each}.0/24" for each in range(nodes)}
                self._admin.post(f"{GROUP}/{THEIRS}/nodeslicepools", slice_pool(name, f"{base}.0.0/16", "/24", slices))

    def clear(self) -> None:
        """Delete all objects: DELs would take as long as the ADDs."""
        patient = replace(self._admin, timeout=ENOUGH)  # one answer for all of a kind
        for kind in ("ippools", "overlappingrangeipreservations", "nodeslicepools"):
            patient.call("DELETE", f"{GROUP}/{THEIRS}/{kind}")

"""Transports of many nodes: over shared watches a node receives what it would receive over its own."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from bench.slices_transports import ADDING, CountingTransport, SharedWatches
from podpool.api.crds import crd_manifests
from podpool.api.node_slices import NODE_SLICES, NodeSlices
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.kube.informer import Informer
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.store import ObjectStore
from tests.agent.clocks import LoopClock
from tests.kube.event_loops import run_virtual

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from podpool.runtime.transport import Transport


class Nodes:
    """An API server in process, a transport that all share, and reflectors of single nodes."""

    def __init__(self) -> None:
        self.server = ResourceHandler(ObjectStore(clock=LoopClock(), rng=random.Random(1)))  # noqa: S311  seeded
        self.kube = KubeClient(self.server)
        self.shared = SharedWatches(self.server)
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        await install_crds(self.kube, crd_manifests())
        self._tasks.append(asyncio.create_task(self.shared.run()))
        await self.shared.listed()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def follow(self, node: str, transport: Transport) -> Informer[NodeSlices]:
        made = Informer(
            KubeClient(transport),
            NODE_SLICES,
            rng=random.Random(2),  # noqa: S311  seeded
            fields=f"metadata.name={node}",
        )
        self._tasks.append(asyncio.create_task(made.run()))
        return made

    async def make(self, node: str) -> None:
        await self.kube.create(NODE_SLICES, {"metadata": {"name": node}})

    async def assign(self, node: str, *numbers: int) -> None:
        slices = [{"id": str(each), "range": "10.0.0.0/16", "slice": f"10.0.{each}.0/24"} for each in numbers]
        await self.kube.merge_patch(NODE_SLICES, node, {"spec": {"assignments": slices}})


def with_nodes(test: Callable[[Nodes], Awaitable[None]]) -> None:
    async def scenario() -> None:
        nodes = Nodes()
        await nodes.begin()
        try:
            await test(nodes)
        finally:
            await nodes.end()

    run_virtual(scenario())


def test_a_node_receives_its_own_objects_and_no_others() -> None:
    async def scenario(nodes: Nodes) -> None:
        await nodes.make("a")
        first, second = nodes.follow("a", nodes.shared), nodes.follow("b", nodes.shared)
        await asyncio.sleep(1)
        await nodes.make("b")
        await nodes.assign("a", 1)
        await asyncio.sleep(1)
        assert ["b"] == [each.metadata.name for each in second.cache.values()]
        await nodes.kube.delete(NODE_SLICES, "b")
        await asyncio.sleep(1)
        shown = {each.metadata.name: [one.id for one in each.spec.assignments] for each in first.cache.values()}
        assert ({"a": ["1"]}, []) == (shown, [*second.cache.values()])

    with_nodes(scenario)


def test_it_receives_as_much_as_over_a_transport_of_its_own_but_for_the_heads_of_lists() -> None:
    async def scenario(nodes: Nodes) -> None:
        own, shared = CountingTransport(nodes.server, "token"), CountingTransport(nodes.shared, "token")
        nodes.follow("a", own)
        nodes.follow("a", shared)
        await asyncio.sleep(1)
        heads = own.received - shared.received
        for node in ("a", "b"):
            await nodes.make(node)
        for number in range(20):
            await nodes.assign("a", number)
            await nodes.assign("b", number)
        await asyncio.sleep(1)
        assert heads == own.received - shared.received
        assert 20 * 100 < shared.received

    with_nodes(scenario)


def test_watches_that_nothing_happens_on_last() -> None:
    """A client gives up a watch that says nothing for a minute and a half."""

    async def scenario(nodes: Nodes) -> None:
        transport = CountingTransport(nodes.shared, "token")
        follower = nodes.follow("a", transport)
        await asyncio.sleep(1)
        begun = transport.calls
        await asyncio.sleep(200)
        await nodes.make("a")
        await asyncio.sleep(1)
        assert begun == transport.calls
        assert 1 == len(list(follower.cache.values()))

    with_nodes(scenario)


def test_only_calls_of_an_add_count_as_during_adds() -> None:
    async def scenario(nodes: Nodes) -> None:
        transport = CountingTransport(nodes.shared, "token")
        kube = KubeClient(transport)
        await kube.list(NODE_SLICES)
        ADDING.set(True)
        await nodes.make("a")
        await kube.get(NODE_SLICES, "a")
        assert (1, 2, 0) == (transport.during_adds, transport.calls, transport.writes)

    with_nodes(scenario)

"""Pods of the yield benchmark on nodes that answer from a list of addresses."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from bench.yield_load import PodEvent
from bench.yield_pods import RETRY_SECONDS, SANDBOX_SECONDS, Pods, wait_until
from podpool.api.builtin import PODS
from podpool.cni.protocol import PluginResponse
from podpool.kube.client import KubeClient
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.store import ObjectStore
from tests.agent.clocks import LoopClock
from tests.kube.event_loops import run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from podpool.cni.protocol import PluginRequest

ADD_WAITS = 10.0


class FakeNode:
    """Answers ADDs from its addresses, waits for one as an agent does, and records all calls."""

    def __init__(self, name: str, *addresses: str) -> None:
        self.name = name
        self.free = list(addresses)
        self.calls: list[tuple[str, str]] = []
        self.deleted: set[str] = set()

    async def call(self, request: PluginRequest) -> PluginResponse:
        sandbox = request.container_id
        self.calls.append((request.command, sandbox))
        if request.command == "DEL":
            self.deleted.add(sandbox)
            return PluginResponse()
        await wait_until(lambda: bool(self.free) or sandbox in self.deleted, seconds=ADD_WAITS)
        if not self.free or sandbox in self.deleted:
            return PluginResponse(b"{}", 1)
        return PluginResponse(b'{"ips": [{"address": "%s/24"}]}' % self.free.pop(0).encode())


@asynccontextmanager
async def running(*nodes: FakeNode) -> AsyncIterator[tuple[Pods, KubeClient]]:
    server = ResourceHandler(ObjectStore(clock=LoopClock(), rng=random.Random(1)))  # noqa: S311  seeded
    kube = KubeClient(server)
    async with asyncio.TaskGroup() as group:
        pods = Pods(kube, nodes, group, random.Random(2))  # noqa: S311  seeded
        yield pods, kube
        pods.cancel()


def arrivals(*nodes: int) -> list[PodEvent]:
    return [PodEvent(at=2.0 * number, pod=number, node=node, arrives=True) for number, node in enumerate(nodes)]


@run_in_virtual_time
async def test_the_first_refusal_counts_the_addresses_that_pods_have_then() -> None:
    async with running(FakeNode("a", "10.0.0.1"), FakeNode("b", "10.0.0.2", "10.0.0.3")) as (pods, _):
        await pods.play(arrivals(0, 1, 0, 1, 1), closed=True)
        assert 2 == pods.held_at_first_refusal


@run_in_virtual_time
async def test_a_closed_loop_holds_back_events_while_an_add_waits_and_none_is_late() -> None:
    short = FakeNode("a")
    async with running(short, FakeNode("b", "10.0.0.2", "10.0.0.3")) as (pods, _):
        asyncio.get_running_loop().call_later(SANDBOX_SECONDS + 5, short.free.append, "10.0.0.1")
        begun = asyncio.get_running_loop().time()
        pace = await pods.play(arrivals(0, 1, 1), closed=True)
        assert SANDBOX_SECONDS + 5 + 2 == pytest.approx(asyncio.get_running_loop().time() - begun, abs=0.1)
        assert 3 == len(pace.lateness)
        assert 0.1 > max(pace.lateness)


@run_in_virtual_time
async def test_an_open_loop_holds_back_nothing() -> None:
    async with running(FakeNode("a")) as (pods, _):
        begun = asyncio.get_running_loop().time()
        await pods.play(arrivals(0, 0, 0), closed=False)
        assert 4.0 == pytest.approx(asyncio.get_running_loop().time() - begun, abs=0.1)


@run_in_virtual_time
async def test_a_pod_that_departs_while_its_add_waits_was_not_refused() -> None:
    async with running(FakeNode("a")) as (pods, _):
        pods.arrive(0, 0)
        await asyncio.sleep(SANDBOX_SECONDS + 1)
        pods.depart(0)
        await asyncio.sleep(ADD_WAITS)
        assert pods.held_at_first_refusal is None
        assert [] == pods.waiting([0])


@run_in_virtual_time
async def test_a_refused_pod_gets_a_new_sandbox_after_the_time_that_kubelet_takes() -> None:
    node = FakeNode("a")
    async with running(node) as (pods, _):
        pods.arrive(0, 0)
        await asyncio.sleep(SANDBOX_SECONDS + ADD_WAITS + RETRY_SECONDS[0] - 1)
        assert [("ADD", "pod-0-0"), ("DEL", "pod-0-0")] == node.calls
        node.free.append("10.0.0.1")
        await asyncio.sleep(RETRY_SECONDS[1] - RETRY_SECONDS[0] + 2)
        assert ("ADD", "pod-0-1") == node.calls[-1]
        assert (1, 0) == (pods.held, pods.held_at_first_refusal)


@run_in_virtual_time
async def test_the_times_of_assignments_and_of_dels_that_free_an_address_are_kept() -> None:
    async with running(FakeNode("a", "10.0.0.1"), FakeNode("b")) as (pods, _):
        begun = asyncio.get_running_loop().time()
        pods.arrive(0, 0)
        pods.arrive(1, 1)
        await asyncio.sleep(3)
        pods.depart(0)
        pods.depart(1)
        await asyncio.sleep(1)
        assert [pytest.approx(begun + SANDBOX_SECONDS, abs=0.1)] == pods.served_at
        assert [pytest.approx(begun + 3, abs=0.1)] == pods.freed_at
        assert 0 == pods.held


def test_an_address_of_two_pods_ends_the_run() -> None:
    @run_in_virtual_time
    async def run() -> None:
        async with running(FakeNode("a", "10.0.0.1"), FakeNode("b", "10.0.0.1")) as (pods, _):
            await pods.play(arrivals(0, 1), closed=True)
            await asyncio.sleep(5)

    with pytest.raises(ExceptionGroup) as failed:
        run()
    assert "10.0.0.1 is assigned to pod-1 and pod-0" == str(failed.value.exceptions[0])


@run_in_virtual_time
async def test_a_pod_is_an_object_bound_to_its_node_until_its_sandbox_is_deleted() -> None:
    node = FakeNode("a", "10.0.0.1")
    async with running(node) as (pods, kube):
        pods.arrive(0, 0)
        await asyncio.sleep(1)
        listed = await kube.list(PODS, namespace="default")
        assert [("pod-0", "a")] == [(pod.metadata.name, pod.spec.node_name) for pod in listed.items]
        pods.depart(0)
        await asyncio.sleep(1)
        assert ("DEL", "pod-0-0") == node.calls[-1]
        assert [] == [*(await kube.list(PODS, namespace="default")).items]

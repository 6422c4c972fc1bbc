"""Which nodes have Pods: one list for all who ask, sent after they asked."""

import asyncio

import pytest

from podpool.api.builtin import PODS
from podpool.controller.bound_pods import BoundPods
from podpool.kube.client import KubeClient
from podpool.runtime.transport import Request, Response, Transport, Unreachable
from tests.kube.api_servers import lite_api_server
from tests.kube.event_loops import run_in_virtual_time

LATENCY = 1.0


class SlowTransport:
    """Answers lists of Pods late, as they were when they were sent, and may fail them."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.lists = 0
        self.reachable = True

    async def send(self, request: Request) -> Response:
        if request.method != "GET" or not request.path.endswith("/pods"):
            return await self._inner.send(request)
        self.lists += 1
        response = await self._inner.send(request)
        await asyncio.sleep(LATENCY)
        if not self.reachable:
            raise Unreachable("api", "the connection was reset")
        return response


async def bind(kube: KubeClient, name: str, node: str, *, phase: str = "Running") -> None:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
    await kube.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    await kube.merge_patch(PODS, name, {"status": {"phase": phase}}, namespace="default", subresource="status")


@run_in_virtual_time
async def test_finished_and_unbound_pods_do_not_count() -> None:
    kube = KubeClient(lite_api_server())
    await bind(kube, "a", "n1")
    await bind(kube, "b", "n2", phase="Succeeded")
    await bind(kube, "c", "n3", phase="Failed")
    await bind(kube, "d", "", phase="Pending")
    bound = BoundPods(kube)
    assert {"n1"} == await bound.nodes()
    assert [False, True, True] == [await bound.none_on(node) for node in ("n1", "n2", "n3")]


@run_in_virtual_time
async def test_nodes_that_are_missing_at_once_share_a_list() -> None:
    """An API server reads every Pod for each list of the Pods of one node."""
    transport = SlowTransport(lite_api_server())
    bound = BoundPods(KubeClient(transport))
    assert all(await asyncio.gather(*(bound.none_on(f"n{number}") for number in range(200))))
    assert 2 == transport.lists, "the first question, and those that came while it was answered"


@run_in_virtual_time
async def test_an_answer_comes_from_a_list_that_was_sent_after_the_question() -> None:
    transport = SlowTransport(lite_api_server())
    kube, bound = KubeClient(transport), BoundPods(KubeClient(transport))
    first = asyncio.create_task(bound.none_on("n1"))
    await asyncio.sleep(LATENCY / 2)
    await bind(kube, "a", "n1")
    second = [asyncio.create_task(bound.none_on("n1")) for _ in range(3)]
    assert [True, False, False, False] == [await each for each in (first, *second)]
    assert 2 == transport.lists


@run_in_virtual_time
async def test_a_failed_list_fails_for_all_who_waited_for_it_and_is_not_repeated_for_each() -> None:
    transport = SlowTransport(lite_api_server())
    bound = BoundPods(KubeClient(transport))
    transport.reachable = False
    failed = await asyncio.gather(*(bound.none_on("n1") for _ in range(5)), return_exceptions=True)
    assert all(isinstance(each, Unreachable) for each in failed)
    assert 2 == transport.lists
    transport.reachable = True
    assert await bound.none_on("n1")


@run_in_virtual_time
async def test_a_cancelled_list_is_sent_again_for_those_who_wait() -> None:
    bound = BoundPods(KubeClient(SlowTransport(lite_api_server())))
    first, second = asyncio.create_task(bound.none_on("n1")), asyncio.create_task(bound.none_on("n1"))
    await asyncio.sleep(LATENCY / 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second

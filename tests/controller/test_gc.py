"""Node GC and orphan GC of NNCs."""

import asyncio

import pytest

from podpool.api.azure import FINALIZER, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, PODS, Node
from podpool.api.meta import ObjectMeta
from podpool.controller.node_gc import run_node_gc
from podpool.kube.cache import ObjectCache
from tests.controller.controller_env import ControllerEnv, ControllerEnvs, until
from tests.kube.event_loops import run_in_loop, run_in_virtual_time


async def held(env: ControllerEnv) -> int:
    """Return how many addresses all NCs hold."""
    return sum(each.held for each in (await env.details()).clusters)


async def nothing_held(env: ControllerEnv) -> bool:
    return not await held(env)


async def no_nnc(env: ControllerEnv) -> bool:
    return await env.nnc("n1") is None


@pytest.mark.integration
class TestNodeGC:
    @run_in_loop
    async def test_the_nc_of_a_deleted_node_is_released_and_its_nnc_deleted(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            controller = env.start()
            await env.join("n1")
            await env.request_and_wait("n1", 15)
            await env.client.delete(NODES, "n1")
            await until(lambda: nothing_held(env), "its addresses are released")
            await until(lambda: no_nnc(env), "its NNC is deleted")
            (event,) = await until(lambda: env.events("NetworkContainerReleased"), "the Event is recorded")
            assert ("Node", "n1") == (event.regarding.kind, event.regarding.name)
            assert "with 15 addresses is released to subnet vnet.pods" in event.note
            assert (
                b'podpool_controller_orphans_released_total{kind="network_container"} 1.0'
                in controller.render_metrics()
            )

    @run_in_loop
    async def test_bound_pods_keep_the_nc(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            await env.request_and_wait("n1", 15)
            spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}
            pod = {"metadata": {"name": "p", "namespace": env.namespace}, "spec": spec}
            await env.client.create(PODS, pod)
            await env.client.delete(NODES, "n1")
            await asyncio.sleep(2.5)  # more than twice node_gc_delay
            assert 16 == await held(env)
            await env.client.delete(PODS, "p", namespace=env.namespace, grace_seconds=0)
            await until(lambda: nothing_held(env), "its addresses are released")

    @run_in_loop
    async def test_the_circuit_breaker_stops_node_gc_until_the_loss_is_confirmed(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            controller = env.start()
            names = [f"n{number}" for number in range(8)]
            await env.join(*names)
            for name in names[:6]:
                await env.client.delete(NODES, name)
            (event,) = await until(lambda: env.events("NodeGCPaused", env.namespace), "the Event is recorded")
            cluster = await env.cluster_id()
            assert f"podpool ledger cluster confirm-loss {cluster}" in event.note
            assert b"podpool_controller_node_gc_paused 1.0" in controller.render_metrics()
            assert 8 == await held(env)
            env.transport.sent.clear()
            reads = await until(lambda: node_reads(env), "two more scans")
            assert 1 == len(set(reads)), "each scan asks the ledger about one of the missing nodes"
            await env.ledger.confirm_loss(cluster)

            async def two_left() -> bool:
                return 2 == await held(env)

            await until(two_left, "their NCs are released")

            async def resumed() -> bool:
                return b"podpool_controller_node_gc_paused 0.0" in controller.render_metrics()

            await until(resumed, "node GC is resumed")


async def node_reads(env: ControllerEnv) -> list[str]:
    """Return the paths of the Nodes that were read, if at least two were."""
    reads = [each.path for each in env.transport.sent if each.method == "GET" and "/nodes/" in each.path]
    return reads if len(reads) > 1 else []


async def create_orphan(env: ControllerEnv) -> None:
    """Create an NNC without a Node and an NC."""
    body = {"metadata": {"name": "n1", "namespace": env.namespace, "finalizers": [FINALIZER]}}
    await env.client.create(NODE_NETWORK_CONFIGS, body)


@pytest.mark.integration
class TestOrphanNNCGC:
    @run_in_loop
    async def test_an_nnc_without_node_and_nc_is_deleted_after_two_observations(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            env.start()
            await until(env.cluster_subnet, "the controller runs")
            await create_orphan(env)
            await until(lambda: no_nnc(env), "it is deleted")
            (event,) = await until(lambda: env.events("Repaired", env.namespace), "the Event is recorded")
            assert "n1" == event.regarding.name

    @run_in_loop
    async def test_the_finalizer_of_an_orphan_is_removed(self, envs: ControllerEnvs) -> None:
        """It was deleted while no controller ran, and its Node and NC no longer exist."""
        async with envs.create() as env:
            await env.create_subnet()
            await create_orphan(env)
            await env.client.delete(NODE_NETWORK_CONFIGS, "n1", namespace=env.namespace)
            assert await env.nnc("n1")
            env.start()
            await until(lambda: no_nnc(env), "it is deleted")

    @run_in_loop
    async def test_an_nnc_whose_node_joins_in_time_is_kept(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            env.start()
            await until(env.cluster_subnet, "the controller runs")
            await create_orphan(env)
            await env.create_node("n1")
            await env.wait_nc("n1")
            before = await env.nnc("n1")
            assert before
            await asyncio.sleep(2.5)
            after = await env.nnc("n1")
            assert after
            assert before.metadata.uid == after.metadata.uid


@run_in_virtual_time
async def test_a_node_that_appears_between_two_scans_is_seen() -> None:
    nodes: ObjectCache[Node] = ObjectCache()
    scans: list[int] = []
    seen: list[Node] = []
    node = Node(metadata=ObjectMeta(name="n1", uid="u"))

    async def scan() -> None:
        scans.append(len(nodes))

    running = asyncio.create_task(run_node_gc(nodes, scan, on_node=seen.append, delay=40.0))
    await asyncio.sleep(1.0)
    nodes.apply(node)
    nodes.discard(node.key)
    await asyncio.sleep(10.0)
    assert ([0, 0], [node]) == (scans, seen)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    nodes.apply(node)
    assert [node] == seen

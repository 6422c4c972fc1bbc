"""Replicas, one leader; health and metrics."""

import asyncio

import pytest

from podpool.api.builtin import LEASES
from podpool.controller.metrics import with_metrics
from podpool.kube.client import KubeClient
from podpool.kube.leader_election import LeadershipLost
from podpool.runtime import process
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Request
from tests.controller.controller_env import ControllerEnv, ControllerEnvs
from tests.kube.api_servers import lite_api_server
from tests.kube.event_loops import run_in_loop


async def holder(env: ControllerEnv) -> str:
    lease = await env.client.get(LEASES, "podpool-controller", namespace=env.namespace)
    return lease.spec.holder_identity or ""


class TestReplicas:
    @pytest.mark.integration
    @run_in_loop
    async def test_one_replica_leads_and_the_next_takes_over(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            first = env.start()
            await env.join("n1")
            before = await env.request_and_wait("n1", 15)
            leader = await holder(env)
            env.start()
            await asyncio.sleep(0.3)
            assert leader == await holder(env)
            await env.stop(first)  # it releases the Lease
            await env.create_node("n2")
            await env.wait_nc("n2")
            assert leader != await holder(env)
            assert before == await env.nc("n1")
            after = await env.request_and_wait("n1", 31)
            assert after.version > before.version

    @run_in_loop
    async def test_the_next_leader_completes_what_a_killed_one_began(self, envs: ControllerEnvs) -> None:
        """Killed after each of its first writes: an NNC without a status, an NC without an NNC."""
        async with envs.create() as env:
            await env.create_subnet()
            for writes in range(1, 7):
                name = f"n{writes}"
                await env.create_node(name)
                left = writes
                stopped = asyncio.Event()

                async def count(request: Request, stopped: asyncio.Event = stopped) -> None:
                    nonlocal left
                    if request.method != "GET" and "leases" not in request.path:
                        left -= 1
                        if left <= 0:
                            stopped.set()
                            await asyncio.Event().wait()

                env.transport.before = count
                controller = env.start()
                await asyncio.wait_for(stopped.wait(), 30)
                env.transport.before = _no_delay
                await env.stop(controller)
            env.start()
            for writes in range(1, 7):
                await env.wait_nc(f"n{writes}")
            held = [each.network_containers for each in (await env.details()).clusters]
            assert [6] == held


async def _no_delay(_: Request) -> None:
    return


@run_in_loop
async def test_a_replica_that_is_not_the_leader_cannot_write() -> None:
    """A paused leader resumes its work before it learns that another replica leads."""
    api = lite_api_server()

    def refuse() -> None:
        raise LeadershipLost("the lease")

    client = KubeClient(api).with_write_guard(refuse)
    with pytest.raises(LeadershipLost):
        await client.create(LEASES, {"metadata": {"name": "l", "namespace": "default"}})
    assert [] == list((await client.list(LEASES)).items)


class TestHealth:
    @run_in_loop
    async def test_readiness_and_metrics(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            controller = env.start()
            handler = with_metrics(process.health_handler(controller.health_checks), controller.render_metrics)
            assert any(each.failure for each in controller.health_checks())
            async with serving(handler, host="127.0.0.1", port=0) as port:
                transport = HttpTransport(f"http://127.0.0.1:{port}")
                try:
                    await env.join("n1")
                    responses = [
                        await transport.send(Request(method="GET", path=path))
                        for path in ("/healthz", "/readyz", "/metrics")
                    ]
                    assert [200, 200, 200] == [each.status for each in responses]
                    page = (await responses[2].read()).decode()
                finally:
                    await transport.close()
            for line in (
                'podpool_controller_reconcile_seconds_count{controller="nodes"}',
                'podpool_controller_reconcile_errors_total{controller="nodes"}',
                'podpool_controller_queue_depth{controller="nodes"} 0.0',
                'podpool_controller_subnet_batch{subnet="pods"} 16.0',
                'podpool_controller_subnet_exhausted{subnet="pods"} 0.0',
                'podpool_controller_subnet_nodes_waiting{subnet="pods"} 0.0',
                "podpool_controller_leader 1.0",
                "podpool_controller_ledger_unreachable_seconds 0.0",
            ):
                assert line in page

    @run_in_loop
    async def test_waiting_nodes_are_counted(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/28", reserved_for_primaries=0)
            controller = env.start()
            await env.join("n1", "n2")
            await env.request("n1", 50)
            await env.wait_assigned("n1", 12)
            page = controller.render_metrics().decode()
            assert 'podpool_controller_subnet_nodes_waiting{subnet="pods"} 1.0' in page
            (longest,) = [
                line for line in page.splitlines() if line.startswith("podpool_controller_subnet_longest_wait_seconds{")
            ]
            assert float(longest.rpartition(" ")[2]) > 0

"""Several controllers, one leader; and what each tells of itself."""

import asyncio

import pytest

from podpool.api.builtin import LEASES
from podpool.controller.metrics import with_metrics
from podpool.kube.client import KubeClient
from podpool.kube.leader_election import LeadershipLost
from podpool.runtime import process
from podpool.runtime.http import HttpTransport, serving
from podpool.runtime.transport import Request
from tests.controller.harness import Place, Site
from tests.kube.clusters import pocket
from tests.kube.loops import in_loop


async def holder(site: Site) -> str:
    lease = await site.client.get(LEASES, "podpool-controller", namespace=site.namespace)
    return lease.spec.holder_identity or ""


class TestReplicas:
    @in_loop
    async def test_one_leads_and_the_next_goes_on(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            first = site.start()
            await site.joined("n1")
            before = await site.granted("n1", 15)
            leader = await holder(site)
            site.start()
            await asyncio.sleep(0.3)
            assert leader == await holder(site)
            await site.stop(first)  # it gives the Lease back
            await site.join("n2")
            await site.served("n2")
            assert leader != await holder(site)
            assert before == await site.container("n1")
            after = await site.granted("n1", 31)
            assert after.version > before.version

    @in_loop
    async def test_a_restart_in_the_middle_is_finished(self, place: Place) -> None:
        """Killed after each of its first writes: an NNC without status, a container without an NNC."""
        async with place.site() as site:
            await site.subnet()
            for writes in range(1, 7):
                name = f"n{writes}"
                await site.join(name)
                left = writes
                stopped = asyncio.Event()

                async def count(request: Request, stopped: asyncio.Event = stopped) -> None:
                    nonlocal left
                    if request.method != "GET" and "leases" not in request.path:
                        left -= 1
                        if left <= 0:
                            stopped.set()
                            await asyncio.Event().wait()

                site.road.before = count
                controller = site.start()
                await asyncio.wait_for(stopped.wait(), 30)
                site.road.before = _at_once
                await site.stop(controller)
            site.start()
            for writes in range(1, 7):
                await site.served(f"n{writes}")
            held = [each.containers for each in (await site.details()).holders]
            assert [6] == held


async def _at_once(_: Request) -> None:
    return


@in_loop
async def test_who_does_not_lead_writes_nothing() -> None:
    """A leader that was paused goes on with what it was doing, before it hears that another leads."""
    api = pocket()

    def refuse() -> None:
        raise LeadershipLost("the lease")

    client = KubeClient(api).with_write_guard(refuse)
    with pytest.raises(LeadershipLost):
        await client.create(LEASES, {"metadata": {"name": "l", "namespace": "default"}})
    assert [] == list((await client.list(LEASES)).items)


class TestHealth:
    @in_loop
    async def test_it_is_ready_when_it_has_seen_the_cluster_and_counts_its_work(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            controller = site.start()
            handler = with_metrics(process.health_handler(controller.not_ready), controller.render_metrics)
            assert controller.not_ready()
            async with serving(handler, host="127.0.0.1", port=0) as port:
                transport = HttpTransport(f"http://127.0.0.1:{port}")
                try:
                    await site.joined("n1")
                    answers = [
                        await transport.send(Request(method="GET", path=path))
                        for path in ("/healthz", "/readyz", "/metrics")
                    ]
                    assert [200, 200, 200] == [each.status for each in answers]
                    page = (await answers[2].read()).decode()
                finally:
                    await transport.close()
            for line in (
                'podpool_controller_reconcile_seconds_count{controller="nodes"}',
                'podpool_controller_reconcile_errors_total{controller="nodes"}',
                'podpool_controller_queue_waiting{controller="nodes"} 0.0',
                'podpool_controller_subnet_batch{subnet="pods"} 16.0',
                'podpool_controller_subnet_exhausted{subnet="pods"} 0.0',
                'podpool_controller_subnet_nodes_waiting{subnet="pods"} 0.0',
                "podpool_controller_leading 1.0",
                "podpool_controller_ledger_away_seconds 0.0",
            ):
                assert line in page

    @in_loop
    async def test_who_waits_is_counted(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/28", reserved_for_primaries=0)
            controller = site.start()
            await site.joined("n1", "n2")
            await site.request("n1", 50)
            await site.holding("n1", 12)
            page = controller.render_metrics().decode()
            assert 'podpool_controller_subnet_nodes_waiting{subnet="pods"} 1.0' in page
            (longest,) = [
                line for line in page.splitlines() if line.startswith("podpool_controller_subnet_longest_wait{")
            ]
            assert float(longest.rpartition(" ")[2]) > 0

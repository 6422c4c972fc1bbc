"""What is left behind by Nodes that are gone, and what only seems to be."""

import asyncio

from podpool.api.azure import FINALIZER, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, PODS
from tests.controller.harness import Place, Site, until
from tests.kube.loops import in_loop


async def held(site: Site) -> int:
    """How many addresses all containers have."""
    return sum(each.held for each in (await site.details()).holders)


async def nothing_held(site: Site) -> bool:
    return not await held(site)


async def no_config(site: Site) -> bool:
    return await site.config("n1") is None


class TestGone:
    @in_loop
    async def test_a_container_whose_node_is_gone_is_closed_and_its_nnc_goes(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            controller = site.start()
            await site.joined("n1")
            await site.granted("n1", 15)
            await site.client.delete(NODES, "n1")
            await until(lambda: nothing_held(site), "its addresses are back")
            await until(lambda: no_config(site), "its NNC is gone")
            (told,) = await until(lambda: site.events("NodeGone"), "it is told")
            assert ("Node", "n1") == (told.regarding.kind, told.regarding.name)
            assert "with 15 addresses goes back to subnet vnet.pods" in told.note
            assert b'podpool_controller_garbage_mended_total{kind="container"} 1.0' in controller.render_metrics()

    @in_loop
    async def test_pods_that_are_bound_to_it_keep_it(self, place: Place) -> None:
        async with place.running("n1") as site:
            await site.granted("n1", 15)
            spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}
            pod = {"metadata": {"name": "p", "namespace": site.namespace}, "spec": spec}
            await site.client.create(PODS, pod)
            await site.client.delete(NODES, "n1")
            await asyncio.sleep(2.5)  # more than twice the gone time
            assert 16 == await held(site)
            await site.client.delete(PODS, "p", namespace=site.namespace, grace_seconds=0)
            await until(lambda: nothing_held(site), "its addresses are back")

    @in_loop
    async def test_when_many_are_lost_at_once_nothing_is_given_up_before_a_person_agrees(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            controller = site.start()
            names = [f"n{number}" for number in range(8)]
            await site.joined(*names)
            for name in names[:6]:
                await site.client.delete(NODES, name)
            (told,) = await until(lambda: site.events("NodesLost", site.namespace), "it is told")
            cluster = await site.cluster()
            assert f"podpool ledger cluster confirm-loss {cluster}" in told.note
            assert b"podpool_controller_braked 1.0" in controller.render_metrics()
            assert 8 == await held(site)
            await site.ledger.confirm_loss(cluster)

            async def two_left() -> bool:
                return 2 == await held(site)

            await until(two_left, "they are given up")

            async def released() -> bool:
                return b"podpool_controller_braked 0.0" in controller.render_metrics()

            await until(released, "the brake is off")


async def leave_behind(site: Site) -> None:
    """Make an NNC that no Node and no container stand behind."""
    body = {"metadata": {"name": "n1", "namespace": site.namespace, "finalizers": [FINALIZER]}}
    await site.client.create(NODE_NETWORK_CONFIGS, body)


class TestLeftBehind:
    @in_loop
    async def test_an_nnc_without_node_and_container_is_found_twice_and_removed(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            site.start()
            await until(site.shown, "the controller works")
            await leave_behind(site)
            await until(lambda: no_config(site), "it is removed")
            (told,) = await until(lambda: site.events("Mended", site.namespace), "it is told")
            assert "n1" == told.regarding.name

    @in_loop
    async def test_our_finalizer_does_not_keep_what_nobody_needs(self, place: Place) -> None:
        """Marked for deletion while no controller ran, its Node and container long gone."""
        async with place.site() as site:
            await site.subnet()
            await leave_behind(site)
            await site.client.delete(NODE_NETWORK_CONFIGS, "n1", namespace=site.namespace)
            assert await site.config("n1")
            site.start()
            await until(lambda: no_config(site), "it is gone")

    @in_loop
    async def test_one_whose_node_comes_in_time_stays(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            site.start()
            await until(site.shown, "the controller works")
            await leave_behind(site)
            await site.join("n1")
            await site.served("n1")
            before = await site.config("n1")
            assert before
            await asyncio.sleep(2.5)
            after = await site.config("n1")
            assert after
            assert before.metadata.uid == after.metadata.uid

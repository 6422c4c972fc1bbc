"""Failures of server and connection: afterwards the cache equals a fresh list."""

import asyncio
import random
from contextlib import aclosing
from pathlib import Path

import pytest

from podpool.api.azure import NodeNetworkConfig
from podpool.kube.cache import ObjectCache
from podpool.kube.informer import Applied, Deleted, Informer, InformerEvent, Replaced
from podpool.runtime.transport import Request
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient
from tests.kube.event_loops import run_in_loop
from tests.kube.running_informer import (
    NNC,
    create,
    delete,
    quorum_objects,
    running_informer,
    set_request,
    wait_for_server_cache,
)

IMPATIENT = 1.0
"""Seconds for a request; a watch may be silent for three times as long."""
MANY = 20_000


async def change_all(api: NamespaceClient) -> None:
    """Do all that can be missed: come, change, go, and go and come again."""
    await create(api, "comes")
    await set_request(api, "changes", 5)
    await delete(api, "goes")
    await delete(api, "returns")
    await create(api, "returns")


BEFORE, AFTER = ("changes", "goes", "returns"), ("changes", "comes", "returns")


class TestServer:
    @run_in_loop
    async def test_a_restart(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, *BEFORE)
            async with running_informer(api) as seen:
                await api.restart()
                await change_all(api)
                await seen.shows(*AFTER)
                await set_request(api, "comes", 7)
                await seen.equals_a_fresh_list()

    @pytest.mark.integration
    @run_in_loop
    async def test_what_etcd_has_compacted_is_listed_again(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, *BEFORE)
            held, go_on = asyncio.Event(), asyncio.Event()

            async def hold(request: Request) -> None:
                if request.query.get("watch"):
                    held.set()
                    await go_on.wait()

            async with running_informer(api, watch_seconds=2) as seen:
                api.transport.before = hold  # the next watch goes on from where this one ends
                await held.wait()
                assert 1 == api.transport.listed.count("0")
                await change_all(api)
                await api.compact()
                go_on.set()
                await seen.shows(*AFTER)
                assert 2 == api.transport.listed.count("0"), "the version was refused, and all was listed again"
                await set_request(api, "comes", 7)
                await seen.equals_a_fresh_list()

    @run_in_loop
    async def test_a_change_between_list_and_watch(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, *BEFORE)
            changed = False

            async def change(request: Request) -> None:
                nonlocal changed
                if request.query.get("watch") and not changed:
                    changed = True
                    await change_all(api)

            api.transport.before = change
            async with running_informer(api) as seen:
                await seen.shows(*AFTER)
                assert 1 == api.transport.listed.count("0")

    @run_in_loop
    async def test_a_server_restored_from_a_backup(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, *BEFORE)
            async with running_informer(api) as seen:
                async with api.restoring():
                    for each in range(50):  # more than a server writes by itself when it starts
                        await set_request(api, "changes", each)
                    await change_all(api)
                    await seen.shows(*AFTER)
                await seen.shows(*BEFORE)
                assert 1 == len(seen.restores)
                was, found = seen.restores[0]
                assert found < was


class TestConnection:
    @run_in_loop
    async def test_a_connection_that_is_reset(self, cluster: ApiServerUnderTest, tmp_path: Path) -> None:
        async with (
            cluster.open_namespace() as api,
            cluster.through_proxy(api, tmp_path, request_timeout=30) as (far, proxy),
        ):
            await create(api, *BEFORE)
            async with running_informer(far) as seen:
                await create(api, "x")
                await seen.has("x")
                await delete(api, "x")
                proxy.reset()
                await change_all(api)
                await seen.shows(*AFTER)

    @pytest.mark.integration
    @run_in_loop
    async def test_a_connection_that_stalls(self, cluster: ApiServerUnderTest, tmp_path: Path) -> None:
        async with (
            cluster.open_namespace() as api,
            cluster.through_proxy(api, tmp_path, request_timeout=IMPATIENT) as (far, proxy),
        ):
            await create(api, *BEFORE)
            async with running_informer(far) as seen:
                await create(api, "x")
                await seen.has("x")
                await delete(api, "x")
                proxy.stall()
                await change_all(api)
                await seen.shows(*AFTER)


@pytest.mark.integration
class TestLoad:
    @run_in_loop
    async def test_a_slow_consumer(self, cluster: ApiServerUnderTest, tmp_path: Path) -> None:
        """While it sleeps, more is written than all buffers on the way can hold."""
        async with (
            cluster.open_namespace() as api,
            cluster.through_proxy(api, tmp_path, request_timeout=30) as (far, _),
        ):
            await create(api, *BEFORE)
            cache: ObjectCache[NodeNetworkConfig] = ObjectCache()
            rng = random.Random(1)  # noqa: S311  seeded
            follower = Informer(far.client, NNC, rng=rng, namespace=far.namespace)
            async with aclosing(follower.stream()) as events, asyncio.timeout(300):
                take(cache, await anext(events))
                next_one = asyncio.ensure_future(anext(events))
                await write_much(api)
                take(cache, await next_one)
                wanted = await quorum_objects(api)
                while wanted != {each.key: each for each in cache.values()}:
                    take(cache, await anext(events))

    @run_in_loop
    async def test_very_many_objects(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await api.fill(MANY)
            await wait_for_server_cache(api, MANY)
            async with running_informer(api) as seen:
                assert MANY == len(seen.cache)
                await api.transport.cut()
                for number in range(0, MANY, MANY // 20):
                    await delete(api, f"n-{number}")
                    await set_request(api, f"n-{number + 1}", 5)
                await seen.until(lambda: MANY - 20 == len(seen.cache))
                await seen.equals_a_fresh_list()
            await api.empty()


def take(cache: ObjectCache[NodeNetworkConfig], event: InformerEvent[NodeNetworkConfig]) -> None:
    match event:
        case Replaced():
            cache.replace(event.objects)
        case Applied():
            cache.apply(event.object)
        case Deleted():
            cache.discard(event.object.key)


async def write_much(api: NamespaceClient) -> None:
    for turn in range(200):
        patch = {"metadata": {"annotations": {"much": f"{turn}" * 60_000}}}
        await api.client.merge_patch(NNC, "changes", patch, namespace=api.namespace)
    await change_all(api)

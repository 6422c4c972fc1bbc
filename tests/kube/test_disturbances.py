"""The reflector through all that happens to servers and connections: afterwards its store equals a fresh list."""

import asyncio
import random
from contextlib import aclosing
from pathlib import Path

from podpool.api.azure import NodeNetworkConfig
from podpool.kube.cache import ObjectCache
from podpool.kube.informer import Applied, Deleted, Informer, InformerEvent, Replaced
from podpool.runtime.transport import Request
from tests.kube.clusters import Cluster, Guest
from tests.kube.loops import in_loop
from tests.kube.mirrors import NNC, ask, cached, drop, fresh, make, mirror

IMPATIENT = 1.0
"""Seconds for a request; a watch may be silent for three times as long."""
MANY = 50_000


async def change_all(guest: Guest) -> None:
    """Do all that can be missed: come, change, go, and go and come again."""
    await make(guest, "comes")
    await ask(guest, "changes", 5)
    await drop(guest, "goes")
    await drop(guest, "returns")
    await make(guest, "returns")


BEFORE, AFTER = ("changes", "goes", "returns"), ("changes", "comes", "returns")


class TestServer:
    @in_loop
    async def test_a_restart(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, *BEFORE)
            async with mirror(guest) as seen:
                await guest.restart()
                await change_all(guest)
                await seen.shows(*AFTER)
                await ask(guest, "comes", 7)
                await seen.equals_a_fresh_list()

    @in_loop
    async def test_what_etcd_has_compacted_is_listed_again(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, *BEFORE)
            held, go_on = asyncio.Event(), asyncio.Event()

            async def hold(request: Request) -> None:
                if request.query.get("watch"):
                    held.set()
                    await go_on.wait()

            async with mirror(guest, lasting=2) as seen:
                guest.road.before = hold  # the next watch goes on from where this one ends
                await held.wait()
                assert 1 == guest.road.listed.count("0")
                await change_all(guest)
                await guest.compact()
                go_on.set()
                await seen.shows(*AFTER)
                assert 2 == guest.road.listed.count("0"), "the version was refused, and all was listed again"
                await ask(guest, "comes", 7)
                await seen.equals_a_fresh_list()

    @in_loop
    async def test_a_change_between_list_and_watch(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, *BEFORE)
            changed = False

            async def change(request: Request) -> None:
                nonlocal changed
                if request.query.get("watch") and not changed:
                    changed = True
                    await change_all(guest)

            guest.road.before = change
            async with mirror(guest) as seen:
                await seen.shows(*AFTER)
                assert 1 == guest.road.listed.count("0")

    @in_loop
    async def test_one_that_was_restored_from_a_copy(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, *BEFORE)
            restores: list[tuple[int, int]] = []
            async with mirror(guest, restored=lambda *versions: restores.append(versions)) as seen:
                async with guest.restoring():
                    for each in range(50):  # more than a server writes by itself when it starts
                        await ask(guest, "changes", each)
                    await change_all(guest)
                    await seen.shows(*AFTER)
                await seen.shows(*BEFORE)
                assert 1 == len(restores)
                was, found = restores[0]
                assert found < was


class TestConnection:
    @in_loop
    async def test_one_that_is_reset(self, cluster: Cluster, tmp_path: Path) -> None:
        async with cluster.guest() as guest, cluster.afar(guest, tmp_path, patience=30) as (far, wire):
            await make(guest, *BEFORE)
            async with mirror(far) as seen:
                await make(guest, "x")
                await seen.has("x")
                await drop(guest, "x")
                wire.cut()
                await change_all(guest)
                await seen.shows(*AFTER)

    @in_loop
    async def test_one_that_stands_still(self, cluster: Cluster, tmp_path: Path) -> None:
        async with cluster.guest() as guest, cluster.afar(guest, tmp_path, patience=IMPATIENT) as (far, wire):
            await make(guest, *BEFORE)
            async with mirror(far) as seen:
                await make(guest, "x")
                await seen.has("x")
                await drop(guest, "x")
                wire.stall()
                await change_all(guest)
                await seen.shows(*AFTER)


class TestLoad:
    @in_loop
    async def test_a_consumer_that_is_far_too_slow(self, cluster: Cluster, tmp_path: Path) -> None:
        """While it sleeps, more is written than all buffers on the way can hold."""
        async with cluster.guest() as guest, cluster.afar(guest, tmp_path, patience=30) as (far, _):
            await make(guest, *BEFORE)
            store: ObjectCache[NodeNetworkConfig] = ObjectCache()
            rng = random.Random(1)  # noqa: S311  seeded
            follower = Informer(far.client, NNC, rng=rng, namespace=far.namespace)
            async with aclosing(follower.stream()) as events, asyncio.timeout(300):
                take(store, await anext(events))
                next_one = asyncio.ensure_future(anext(events))
                await write_much(guest)
                take(store, await next_one)
                wanted = await fresh(guest)
                while wanted != {each.key: each for each in store.values()}:
                    take(store, await anext(events))

    @in_loop
    async def test_very_many_objects(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await guest.fill(MANY)
            await cached(guest, MANY)
            async with mirror(guest) as seen:
                assert MANY == len(seen.cache)
                await guest.road.cut()
                for number in range(0, MANY, MANY // 20):
                    await drop(guest, f"n-{number}")
                    await ask(guest, f"n-{number + 1}", 5)
                await seen.until(lambda: MANY - 20 == len(seen.cache))
                await seen.equals_a_fresh_list()
            await guest.empty()


def take(store: ObjectCache[NodeNetworkConfig], event: InformerEvent[NodeNetworkConfig]) -> None:
    match event:
        case Replaced():
            store.replace(event.objects)
        case Applied():
            store.apply(event.object)
        case Deleted():
            store.discard(event.object.key)


async def write_much(guest: Guest) -> None:
    for turn in range(200):
        patch = {"metadata": {"annotations": {"much": f"{turn}" * 60_000}}}
        await guest.client.merge_patch(NNC, "changes", patch, namespace=guest.namespace)
    await change_all(guest)

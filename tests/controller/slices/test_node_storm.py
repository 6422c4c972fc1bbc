"""Many nodes at once, a leader that dies at any write, and how much all of it costs the API server."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from podpool.api.builtin import LEASES
from podpool.api.whereabouts import BOOT_ANNOTATION, IP_POOLS, NODE_ANNOTATION, NODE_UID_LABEL
from podpool.controller.controller import Controller
from podpool.core.settings import Settings
from podpool.runtime.transport import Request
from tests.controller.slices.harness import SliceSite

Tell = Callable[[Callable[[SliceSite], Coroutine[Any, Any, None]]], None]

NODES, NETWORKS = 64, 10


async def at_once(_: Request) -> None:
    """Hold up nothing."""


async def owners(site: SliceSite) -> dict[str, str]:
    """Tell who has which slice by the IPPools; none may be two nodes'."""
    found: dict[str, str] = {}
    for pool in (await site.client.list(IP_POOLS, namespace=site.namespace, labels=NODE_UID_LABEL)).items:
        network = pool.metadata.annotations["podpool.io/network"]
        key, node = f"{network} {pool.spec.range}", pool.metadata.annotations[NODE_ANNOTATION]
        assert found.setdefault(key, node) == node
    return found


def decisions(controller: Controller) -> int:
    """Count how often a network's table was made."""
    told = re.search(rb'reconcile_seconds_count\{controller="networks"\} ([0-9.]+)', controller.render_metrics())
    assert told
    return int(float(told[1]))


class TestStorms:
    def test_a_few_writes_for_each_node_and_network(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            for number in range(NETWORKS):
                size = {"range": f"10.{number}.0.0/16", "node_slice_size": "/24"}
                await site.attach(f"net-{number}", network_name=f"net-{number}", **size)
            controller = site.start(common=Settings())
            await site.until(lambda: site.table(f"net-{NETWORKS - 1}"), "the tables are there")
            site.road.sent.clear()
            await asyncio.gather(*(site.join(f"n{number:02}") for number in range(NODES)))

            async def offered() -> bool:
                return len(await site.leases()) == NODES * NETWORKS

            await site.until(offered, "all is offered")
            self._few(site, {"POST ippools", "POST leases", "PATCH nodeslicepools"})
            assert NODES * NETWORKS == len(await owners(site))
            await self._quiet(site)
            site.road.sent.clear()
            await asyncio.gather(*(site.leave(f"n{number:02}") for number in range(NODES)))
            await site.comes()
            self._few(site, {"DELETE ippools", "DELETE leases", "PATCH nodeslicepools"})
            await site.stop(controller)

        tell(story)

    def test_what_a_table_foresaw_has_it_not_made_anew(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            controller = site.start()
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            for number in range(3):
                await site.join(f"n{number}")
            names = [f"red-n{number}-10.1.0.{64 * number}-26" for number in range(3)]
            await site.comes(*names)
            await self._quiet(site)
            before = decisions(controller)
            for name in names:
                await site.take(name)
            await self._quiet(site)
            assert before == decisions(controller)
            await site.leave("n1")
            await site.comes(names[0], names[2])
            assert before < decisions(controller)

        tell(story)

    def _few(self, site: SliceSite, expected: set[str]) -> None:
        """See that it took two writes for each node and network, and a few more for tables and what was tried again."""
        assert site.written.keys() <= expected
        assert 2 * NODES * NETWORKS <= sum(site.written.values()) <= 2.5 * NODES * NETWORKS

    async def _quiet(self, site: SliceSite) -> None:
        """See that nothing is written when nothing happens."""
        await asyncio.sleep(2.0)
        site.road.sent.clear()
        await asyncio.sleep(2.0)
        assert {} == site.written


class TestCrashes:
    @pytest.mark.parametrize("taken", [True, False], ids=["taken", "offered"])
    def test_a_leader_may_die_at_every_write(self, tell: Tell, taken: bool) -> None:
        """It is killed before its first write, before its second, and so on; whoever leads next goes on."""

        async def story(site: SliceSite) -> None:
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/28")
            for writes in range(1, 8):
                await site.join(f"n{writes}")
                await self._killed_after(site, writes)
                if taken:
                    await self._take_all(site)
                before = await owners(site)
                if writes == 4:
                    await site.leave("n2")
                assert before.items() <= (await owners(site)).items()
            site.start()

            async def settled() -> bool:
                living = {f"n{writes}" for writes in range(1, 8)} - {"n2"}
                found = await owners(site)
                one_each = living == set(found.values()) and len(found) == len(living) == len(await site.leases())
                return one_each and await site.slices("red") == {
                    node: key.partition(" ")[2] for key, node in found.items()
                }

            await site.until(settled, "everybody has one slice, and the table says which")

        tell(story)

    async def _killed_after(self, site: SliceSite, writes: int) -> None:
        left, stopped = writes, asyncio.Event()

        async def count(request: Request) -> None:
            nonlocal left
            if request.method != "GET" and "podpool-controller" not in request.path:
                left -= "events" not in request.path
                if left <= 0:
                    stopped.set()
                    await asyncio.Event().wait()

        site.road.before = count
        controller = site.start()
        with suppress(TimeoutError):  # then it has nothing more to write
            await asyncio.wait_for(stopped.wait(), 2.0)
        site.road.before = at_once
        await site.stop(controller)

    async def _take_all(self, site: SliceSite) -> None:
        for lease in (await site.client.list(LEASES, namespace=site.namespace, labels=NODE_UID_LABEL)).items:
            meta = lease.metadata
            node = meta.annotations[NODE_ANNOTATION]
            await site.client.merge_patch(
                LEASES,
                meta.name,
                {
                    "spec": {"holderIdentity": f"{node}/{meta.labels[NODE_UID_LABEL]}"},
                    "metadata": {"annotations": {BOOT_ANNOTATION: f"boot-of-{node}"}},
                },
                namespace=site.namespace,
            )

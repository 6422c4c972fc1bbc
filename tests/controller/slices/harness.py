"""A cluster with Whereabouts' kinds and a controller that has no ledger; kubelets, agents and people are played.

On pocket time is virtual; on a real API server it is real, and the durations are short.
"""

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from podpool.api.builtin import EVENTS, LEASES, NODES, PODS, Event, Lease, Node
from podpool.api.crds import multus_crd_manifest
from podpool.api.meta import Kind, T
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.whereabouts import (
    BOOT_ANNOTATION,
    IP_POOLS,
    IP_RESERVATIONS,
    NODE_ANNOTATION,
    NODE_SLICE_POOLS,
    NODE_UID_LABEL,
    SEALED_ANNOTATION,
    IPPool,
    NodeSlicePool,
)
from podpool.controller.controller import Controller
from podpool.controller.settings import ControllerSettings
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.kube.errors import ApiNotFound
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.machine import MachineClock
from podpool.runtime.clock import Clock, SystemClock
from tests.controller.harness import BRISK, NODE_INFO, clear, ended
from tests.kube.clusters import Cluster, Guest
from tests.kube.loops import play

PATIENCE = 120.0
"""Seconds with a broken program; a good one on a busy machine needs a part of that."""
R = TypeVar("R")

_seeds = itertools.count(1)


class SlicePlace:
    """An API server."""

    def __init__(self, cluster: Cluster, *, real: bool) -> None:
        self._cluster = cluster
        self._real = real

    def play(self, story: Callable[["SliceSite"], Coroutine[Any, Any, None]]) -> None:
        """Tell a story in a cluster that is empty in the beginning."""
        if self._real:
            asyncio.run(self._told(story, SystemClock()))
            return
        loop = VirtualLoop()
        play(self._told(story, MachineClock(loop)), loop)

    async def _told(self, story: Callable[["SliceSite"], Coroutine[Any, Any, None]], clock: Clock) -> None:
        async with self._site(clock) as site:
            await story(site)

    @asynccontextmanager
    async def _site(self, clock: Clock) -> AsyncIterator["SliceSite"]:
        async with self._cluster.guest() as guest:
            await install_crds(guest.client, [multus_crd_manifest()])
            site = SliceSite(guest, clock)
            await clear(guest.client)
            try:
                yield site
            finally:
                await site.close()


class SliceSite:
    """Who stands in for kubelets, agents and people."""

    def __init__(self, guest: Guest, clock: Clock) -> None:
        self.client = guest.client
        self.road = guest.road
        self.namespace = guest.namespace
        self._clock = clock
        self._running: dict[Controller, asyncio.Task[None]] = {}

    async def close(self) -> None:
        for controller in tuple(self._running):
            await self.stop(controller)

    def start(self, *, common: Settings = BRISK, flat_file: bytes | None = None) -> Controller:
        """Start a controller."""
        controller = Controller(
            KubeClient(self.road),
            None,
            settings=ControllerSettings(
                namespace=self.namespace,
                whereabouts_namespace=self.namespace,
                flat_file=flat_file,
                common=common,
            ),
            clock=self._clock,
            rng=random.Random(next(_seeds)),  # noqa: S311  the same each time
        )
        self._running[controller] = asyncio.ensure_future(controller.run())
        return controller

    async def stop(self, controller: Controller) -> None:
        """End a controller as a signal does."""
        await ended(self._running.pop(controller))

    @property
    def written(self) -> dict[str, int]:
        """Count the writes so far by method and kind, but for the leader's Lease and Events."""
        counted: dict[str, int] = {}
        for request in self.road.sent:
            words = request.path.split("/")
            if request.method == "GET" or "podpool-controller" in words or "events" in words:
                continue
            for kind in _KINDS.keys() & set(words):
                key = f"{request.method} {kind}"
                counted[key] = counted.get(key, 0) + 1
        return counted

    # People

    async def attach(self, name: str, *, namespace: str = "", top: str = "mynet", **ipam: object) -> None:
        """Have somebody define a network, or define it anew."""
        text = json.dumps(
            {"cniVersion": "0.3.1", "name": top, "type": "macvlan", "ipam": {"type": "whereabouts", **ipam}}
        )
        namespace = namespace or self.namespace
        try:
            await self.client.merge_patch(NETWORK_ATTACHMENTS, name, {"spec": {"config": text}}, namespace=namespace)
        except ApiNotFound:
            meta = {"name": name, "namespace": namespace}
            await self.client.create(NETWORK_ATTACHMENTS, {"metadata": meta, "spec": {"config": text}})

    async def detach(self, name: str) -> None:
        """Have somebody delete a network."""
        await self.client.delete(NETWORK_ATTACHMENTS, name, namespace=self.namespace)

    # Kubelets and agents

    async def join(self, name: str, *, boot: str = "") -> Node:
        """Have a kubelet register its Node."""
        status = {"nodeInfo": dict.fromkeys(NODE_INFO, "none") | {"bootID": boot or f"boot-of-{name}"}}
        return await self.client.create(NODES, {"metadata": {"name": name}, "status": status})

    async def leave(self, name: str) -> None:
        """Have somebody delete a Node."""
        await self.client.delete(NODES, name)

    async def bind(self, name: str, node: str) -> None:
        """Have a Pod run on a node."""
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        await self.client.create(PODS, {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec})

    async def unbind(self, name: str) -> None:
        """Have a Pod be gone."""
        await self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=0)

    async def take(self, name: str, *, boot: str = "") -> IPPool:
        """Have a node's agent take the slice that it is offered; gives the IPPool."""
        await self.until(lambda: self.lease(name), f"{name} is offered")
        lease, pool = await self.lease(name), await self.pool(name)
        assert lease is not None
        assert pool is not None
        meta = lease.metadata
        node, uid = meta.annotations[NODE_ANNOTATION], meta.labels[NODE_UID_LABEL]
        await self.client.merge_patch(
            LEASES,
            name,
            {
                "spec": {"holderIdentity": f"{node}/{uid}"},
                "metadata": {"annotations": {BOOT_ANNOTATION: boot or f"boot-of-{node}"}},
            },
            namespace=self.namespace,
            precondition=meta.resource_version,
        )
        return pool

    async def taken(self, range_: str = "10.1.0.0/24") -> str:
        """Start a controller, define the network red, have n1 join and take its slice, a /26; gives its name."""
        self.start()
        await self.attach("red", network_name="red", range=range_, node_slice_size="/26")
        await self.join("n1")
        await self.take("red-n1-10.1.0.0-26")
        return "red-n1-10.1.0.0-26"

    async def use(self, name: str, key: str, pod: str) -> None:
        """Have an agent write who has an address."""
        entry = {"id": f"cid-{pod}", "podref": f"{self.namespace}/{pod}", "ifname": "net1"}
        await self.client.merge_patch(IP_POOLS, name, {"spec": {"allocations": {key: entry}}}, namespace=self.namespace)

    async def hand_back(self, name: str) -> None:
        """Have an agent hand a slice back."""
        pool = await self.pool(name)
        assert pool is not None
        empty: dict[str, None] = dict.fromkeys(pool.spec.allocations)
        await self.client.merge_patch(IP_POOLS, name, {"spec": {"allocations": empty}}, namespace=self.namespace)
        await self.client.merge_patch(LEASES, name, {"spec": {"holderIdentity": None}}, namespace=self.namespace)

    async def pool_of_all(self, range_: str, *, name: str, **others: object) -> None:
        """Have plugins without slices share a range, or somebody write a pool with whatever metadata."""
        meta = {"name": name, "namespace": self.namespace, **others}
        await self.client.create(IP_POOLS, {"metadata": meta, "spec": {"range": range_, "allocations": {}}})

    async def remove(self, plural: str, name: str) -> None:
        """Have somebody delete an object."""
        await self.client.delete(_KINDS[plural], name, namespace=self.namespace)

    async def reserve(self, name: str, pod: str) -> None:
        """Have a plugin reserve an address in all ranges."""
        spec = {"podref": f"{self.namespace}/{pod}", "ifname": "net1"}
        await self.client.create(IP_RESERVATIONS, {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec})

    # What is there

    async def pool(self, name: str) -> IPPool | None:
        return await self._find(IP_POOLS, name)

    async def lease(self, name: str) -> Lease | None:
        return await self._find(LEASES, name)

    async def table(self, name: str) -> NodeSlicePool | None:
        return await self._find(NODE_SLICE_POOLS, name)

    async def slices(self, name: str) -> dict[str, str]:
        """Who has which slice, as a NodeSlicePool shows it."""
        table = await self.table(name)
        return (
            {each.node_name: each.slice_range for each in table.status.allocations if each.node_name} if table else {}
        )

    async def pools(self) -> list[str]:
        """The names of all IPPools that give addresses, of which each that is a node's must have a Lease."""
        found = (await self.client.list(IP_POOLS, namespace=self.namespace)).items
        return sorted(each.metadata.name for each in found if SEALED_ANNOTATION not in each.metadata.annotations)

    async def shut(self) -> list[str]:
        """The names of the IPPools of whole ranges that give none, because those are cut."""
        found = (await self.client.list(IP_POOLS, namespace=self.namespace)).items
        return sorted(each.metadata.name for each in found if SEALED_ANNOTATION in each.metadata.annotations)

    async def leases(self) -> list[str]:
        found = (await self.client.list(LEASES, namespace=self.namespace, labels=NODE_UID_LABEL)).items
        return sorted(each.metadata.name for each in found)

    async def reservations(self) -> list[str]:
        found = (await self.client.list(IP_RESERVATIONS, namespace=self.namespace)).items
        return sorted(each.metadata.name for each in found)

    async def events(self, reason: str) -> list[Event]:
        return [event for event in (await self.client.list(EVENTS)).items if event.reason == reason]

    async def comes(self, *names: str) -> None:
        """Wait until these slices and no others are offered."""

        async def there() -> bool:
            return sorted(names) == await self.pools() == await self.leases()

        await self.until(there, f"{', '.join(names)} are what there is")

    async def asked_back(self, name: str) -> str:
        """Wait until a slice is asked back; gives why."""

        async def why() -> str:
            pool = await self.pool(name)
            return pool.metadata.annotations.get("podpool.io/return", "") if pool else ""

        return await self.until(why, f"{name} is asked back")

    async def told(self, reason: str, count: int = 1) -> list[Event]:
        """Wait for Events."""

        async def enough() -> list[Event]:
            found = await self.events(reason)
            return found if len(found) >= count else []

        return await self.until(enough, f"{reason} is told")

    async def until(self, holds: Callable[[], Awaitable[R | None]], what: str) -> R:
        """Wait until something is so; gives it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while not (found := await holds()):
            assert loop.time() < end, f"waited {PATIENCE:g} s in vain until {what}: {await self.pools()}"
            await asyncio.sleep(0.05)
        return found

    async def _find(self, kind: Kind[T], name: str) -> T | None:
        try:
            return await self.client.get(kind, name, namespace=self.namespace)
        except ApiNotFound:
            return None


_KINDS: dict[str, Kind[Any]] = {each.plural: each for each in (IP_POOLS, NODE_SLICE_POOLS, LEASES, IP_RESERVATIONS)}

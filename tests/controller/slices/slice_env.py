"""The slice controller's test environment: an API server with Whereabouts' CRDs, and a controller without a ledger.

On the lite API server time is virtual; on a real one it is real, and the settings are short.
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
from tests.controller.controller_env import FAST_SETTINGS, NODE_INFO, cancel, clear
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient
from tests.kube.event_loops import run_virtual

TIMEOUT = 120.0
"""Seconds until a wait fails."""
R = TypeVar("R")

_seeds = itertools.count(1)


class SliceEnvs:
    """Creates environments on one API server."""

    def __init__(self, cluster: ApiServerUnderTest, *, real: bool) -> None:
        self._cluster = cluster
        self._real = real

    def run(self, scenario: Callable[["SliceEnv"], Coroutine[Any, Any, None]]) -> None:
        """Run a scenario in an empty cluster."""
        if self._real:
            asyncio.run(self._run(scenario, SystemClock()))
            return
        loop = VirtualLoop()
        run_virtual(self._run(scenario, MachineClock(loop)), loop)

    async def _run(self, scenario: Callable[["SliceEnv"], Coroutine[Any, Any, None]], clock: Clock) -> None:
        async with self._create(clock) as env:
            await scenario(env)

    @asynccontextmanager
    async def _create(self, clock: Clock) -> AsyncIterator["SliceEnv"]:
        async with self._cluster.open_namespace() as guest:
            await install_crds(guest.client, [multus_crd_manifest()])
            env = SliceEnv(guest, clock)
            await clear(guest.client)
            try:
                yield env
            finally:
                await env.close()


class SliceEnv:
    """Plays the parts of kubelets, agents and operators."""

    def __init__(self, guest: NamespaceClient, clock: Clock) -> None:
        self.client = guest.client
        self.transport = guest.transport
        self.namespace = guest.namespace
        self._clock = clock
        self._running: dict[Controller, asyncio.Task[None]] = {}

    async def close(self) -> None:
        for controller in tuple(self._running):
            await self.stop(controller)

    def start(self, *, common: Settings = FAST_SETTINGS, flat_file: bytes | None = None) -> Controller:
        """Start a controller."""
        controller = Controller(
            KubeClient(self.transport),
            None,
            settings=ControllerSettings(
                namespace=self.namespace,
                whereabouts_namespace=self.namespace,
                flat_file=flat_file,
                common=common,
            ),
            clock=self._clock,
            rng=random.Random(next(_seeds)),  # noqa: S311  seeded
        )
        self._running[controller] = asyncio.ensure_future(controller.run())
        return controller

    async def stop(self, controller: Controller) -> None:
        """Stop a controller as a signal does."""
        await cancel(self._running.pop(controller))

    @property
    def writes(self) -> dict[str, int]:
        """Return the number of writes by method and kind, without the leader's Lease and Events."""
        counted: dict[str, int] = {}
        for request in self.transport.sent:
            words = request.path.split("/")
            if request.method == "GET" or "podpool-controller" in words or "events" in words:
                continue
            for kind in _KINDS.keys() & set(words):
                key = f"{request.method} {kind}"
                counted[key] = counted.get(key, 0) + 1
        return counted

    # Operators

    async def create_nad(self, name: str, *, namespace: str = "", top: str = "mynet", **ipam: object) -> None:
        """Create or replace a NAD."""
        text = json.dumps(
            {"cniVersion": "0.3.1", "name": top, "type": "macvlan", "ipam": {"type": "whereabouts", **ipam}}
        )
        namespace = namespace or self.namespace
        try:
            await self.client.merge_patch(NETWORK_ATTACHMENTS, name, {"spec": {"config": text}}, namespace=namespace)
        except ApiNotFound:
            meta = {"name": name, "namespace": namespace}
            await self.client.create(NETWORK_ATTACHMENTS, {"metadata": meta, "spec": {"config": text}})

    async def delete_nad(self, name: str) -> None:
        """Delete a NAD."""
        await self.client.delete(NETWORK_ATTACHMENTS, name, namespace=self.namespace)

    # Kubelets and agents

    async def create_node(self, name: str, *, boot: str = "") -> Node:
        """Register a Node as a kubelet does."""
        status = {"nodeInfo": dict.fromkeys(NODE_INFO, "none") | {"bootID": boot or f"boot-of-{name}"}}
        return await self.client.create(NODES, {"metadata": {"name": name}, "status": status})

    async def delete_node(self, name: str) -> None:
        """Delete a Node."""
        await self.client.delete(NODES, name)

    async def create_pod(self, name: str, node: str) -> None:
        """Create a Pod that is bound to a node."""
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        await self.client.create(PODS, {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec})

    async def delete_pod(self, name: str) -> None:
        """Delete a Pod."""
        await self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=0)

    async def take(self, name: str, *, boot: str = "") -> IPPool:
        """Take an assigned slice as the node's agent does, and return the IPPool."""
        await self.until(lambda: self.lease(name), f"{name} is assigned")
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

    async def take_first_slice(self, range_: str = "10.1.0.0/24") -> str:
        """Start a controller, create the NAD red and the node n1, take its slice, a /26, and return its name."""
        self.start()
        await self.create_nad("red", network_name="red", range=range_, node_slice_size="/26")
        await self.create_node("n1")
        await self.take("red-n1-10.1.0.0-26")
        return "red-n1-10.1.0.0-26"

    async def allocate(self, name: str, key: str, pod: str) -> None:
        """Write an allocation as an agent does."""
        entry = {"id": f"cid-{pod}", "podref": f"{self.namespace}/{pod}", "ifname": "net1"}
        await self.client.merge_patch(IP_POOLS, name, {"spec": {"allocations": {key: entry}}}, namespace=self.namespace)

    async def return_slice(self, name: str) -> None:
        """Return a slice as an agent does."""
        pool = await self.pool(name)
        assert pool is not None
        empty: dict[str, None] = dict.fromkeys(pool.spec.allocations)
        await self.client.merge_patch(IP_POOLS, name, {"spec": {"allocations": empty}}, namespace=self.namespace)
        await self.client.merge_patch(LEASES, name, {"spec": {"holderIdentity": None}}, namespace=self.namespace)

    async def create_pool(self, range_: str, *, name: str, **others: object) -> None:
        """Create an IPPool as a plugin without slices does, or with any metadata."""
        meta = {"name": name, "namespace": self.namespace, **others}
        await self.client.create(IP_POOLS, {"metadata": meta, "spec": {"range": range_, "allocations": {}}})

    async def delete(self, plural: str, name: str) -> None:
        """Delete an object."""
        await self.client.delete(_KINDS[plural], name, namespace=self.namespace)

    async def create_reservation(self, name: str, pod: str) -> None:
        """Create a reservation as a plugin does."""
        spec = {"podref": f"{self.namespace}/{pod}", "ifname": "net1"}
        await self.client.create(
            IP_RESERVATIONS, {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec}
        )

    # Objects

    async def pool(self, name: str) -> IPPool | None:
        return await self._find(IP_POOLS, name)

    async def lease(self, name: str) -> Lease | None:
        return await self._find(LEASES, name)

    async def slice_pool(self, name: str) -> NodeSlicePool | None:
        return await self._find(NODE_SLICE_POOLS, name)

    async def slices(self, name: str) -> dict[str, str]:
        """Return the slices by node as a NodeSlicePool shows them."""
        table = await self.slice_pool(name)
        return (
            {each.node_name: each.slice_range for each in table.status.allocations if each.node_name} if table else {}
        )

    async def pools(self) -> list[str]:
        """Return the names of all IPPools that are not sealed."""
        found = (await self.client.list(IP_POOLS, namespace=self.namespace)).items
        return sorted(each.metadata.name for each in found if SEALED_ANNOTATION not in each.metadata.annotations)

    async def sealed_pools(self) -> list[str]:
        """Return the names of sealed IPPools."""
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

    async def wait_slices(self, *names: str) -> None:
        """Wait until exactly these slices have an IPPool and a Lease."""

        async def there() -> bool:
            return sorted(names) == await self.pools() == await self.leases()

        await self.until(there, f"{', '.join(names)} are the only slices")

    async def wait_return_requested(self, name: str) -> str:
        """Wait until a node is asked to return a slice, and return the reason."""

        async def why() -> str:
            pool = await self.pool(name)
            return pool.metadata.annotations.get("podpool.io/return", "") if pool else ""

        return await self.until(why, f"the return of {name} is requested")

    async def wait_events(self, reason: str, count: int = 1) -> list[Event]:
        """Wait for Events of a reason."""

        async def enough() -> list[Event]:
            found = await self.events(reason)
            return found if len(found) >= count else []

        return await self.until(enough, f"an Event {reason} is recorded")

    async def until(self, condition: Callable[[], Awaitable[R | None]], what: str) -> R:
        """Poll until the condition returns something, and return that."""
        loop = asyncio.get_running_loop()
        end = loop.time() + TIMEOUT
        while not (found := await condition()):
            assert loop.time() < end, f"waited {TIMEOUT:g} s until {what}: {await self.pools()}"
            await asyncio.sleep(0.05)
        return found

    async def _find(self, kind: Kind[T], name: str) -> T | None:
        try:
            return await self.client.get(kind, name, namespace=self.namespace)
        except ApiNotFound:
            return None


_KINDS: dict[str, Kind[Any]] = {each.plural: each for each in (IP_POOLS, NODE_SLICE_POOLS, LEASES, IP_RESERVATIONS)}

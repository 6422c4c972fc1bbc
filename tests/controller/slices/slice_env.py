"""The slice controller's test environment: an API server with Whereabouts' CRDs, and a controller without a ledger.

On the lite API server time is virtual; on a real one it is real, and the settings are short.
"""

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from podpool.api.builtin import CONFIG_MAPS, EVENTS, LEASES, NODES, PODS, Event, Lease, Node
from podpool.api.crds import multus_crd_manifest
from podpool.api.meta import Kind, T
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import (
    INVENTORY_CONFIG_MAP,
    NODE_SLICES,
    PROTOCOL,
    Assignment,
    NodeSlices,
    NodeSlicesStatus,
    SliceStatus,
)
from podpool.api.whereabouts import (
    IP_POOLS,
    IP_RESERVATIONS,
    NODE_SLICE_POOLS,
    SEALED_ANNOTATION,
    IPPool,
    NodeSlicePool,
)
from podpool.controller.controller import Controller
from podpool.controller.settings import ControllerSettings
from podpool.core.ranges import parse_prefix
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.kube.errors import ApiConflict, ApiNotFound
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.machine import MachineClock
from podpool.runtime.clock import Clock, SystemClock
from podpool.whereabouts.object_names import PoolIdentifier
from tests.controller.controller_env import FAST_SETTINGS, NODE_INFO, cancel, clear
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient
from tests.kube.event_loops import run_virtual

TIMEOUT = 120.0
"""Seconds until a wait fails."""
R = TypeVar("R")

_seeds = itertools.count(1)


class SetClock:
    """A machine's clocks, the wall clock wrong by some seconds."""

    def __init__(self, clock: Clock, wall_error: float) -> None:
        self._clock = clock
        self._wall_error = wall_error

    def boot(self) -> float:
        """Return the seconds since this boot."""
        return self._clock.boot()

    def wall(self) -> float:
        """Return the seconds since 1970 by this machine's clock."""
        return self._clock.wall() + self._wall_error


class FakeAgent:
    """The agent of one boot of a machine: what its journal has, and whether it runs."""

    def __init__(self, node: str, boot: str) -> None:
        self.node = node
        self.boot = boot
        self.running = True
        self.rolled_back = ""
        self.slices: dict[str, SliceStatus] = {}

    def set(self, assignment: Assignment, **fields: object) -> None:
        """Change what the agent knows of a slice."""
        before = self.slices.get(assignment.id) or SliceStatus(
            id=assignment.id, network=assignment.network, range=assignment.range, slice=assignment.slice
        )
        self.slices[assignment.id] = replace(before, **fields)

    def status(self, obj: NodeSlices, inventory: str) -> dict[str, Any]:
        """Return the whole status."""
        listed = {each.id for each in obj.spec.assignments}
        kept = [each for each in self.slices.values() if not each.returned or each.id in listed]
        status = NodeSlicesStatus(
            protocol=PROTOCOL,
            node_uid=obj.spec.node_uid,
            boot_id=self.boot,
            inventory=inventory,
            slices=tuple(kept),
        )
        return {"rolledBack": self.rolled_back or None, "slices": [], **msgspec.to_builtins(status)}


async def delete_node_slices(client: KubeClient) -> None:
    """Delete all NodeSlices, whatever they list."""
    for obj in (await client.list(NODE_SLICES)).items:
        with suppress(ApiNotFound):
            await client.merge_patch(NODE_SLICES, obj.metadata.name, {"metadata": {"finalizers": None}})
            await client.delete(NODE_SLICES, obj.metadata.name)


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
            await clear(guest.client)
            await delete_node_slices(guest.client)
            env = SliceEnv(guest, clock)
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
        self.agents: dict[str, FakeAgent] = {}
        """By boot ID."""
        self._answering = asyncio.ensure_future(self._answer())

    async def close(self) -> None:
        await cancel(self._answering)
        for controller in tuple(self._running):
            await self.stop(controller)
        await delete_node_slices(self.client)

    def start(
        self, *, common: Settings = FAST_SETTINGS, flat_file: bytes | None = None, wall_error: float = 0.0
    ) -> Controller:
        """Start a controller, on a machine whose wall clock is wrong by some seconds."""
        controller = Controller(
            KubeClient(self.transport),
            None,
            settings=ControllerSettings(
                namespace=self.namespace,
                whereabouts_namespace=self.namespace,
                flat_file=flat_file,
                common=common,
            ),
            clock=SetClock(self._clock, wall_error),
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
            if request.method == "GET" or {"podpool-controller", "events", "status"} & set(words):
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

    async def create_node(self, name: str, *, boot: str = "", agent: bool = True) -> Node:
        """Register a Node as a kubelet does, with an agent that answers inventories or without one."""
        boot = boot or f"boot-of-{name}"
        self.agents.setdefault(boot, FakeAgent(name, boot)).running = agent
        status = {"nodeInfo": dict.fromkeys(NODE_INFO, "none") | {"bootID": boot}}
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

    async def _answer(self) -> None:
        """Answer inventory requests, as running agents do."""
        while True:
            await asyncio.sleep(0.05)
            for agent in tuple(self.agents.values()):
                obj = await self.node_slices(agent.node) if agent.running else None
                request = await self.inventory_request() if obj else ""
                shown = (obj.status.boot_id, obj.status.node_uid, obj.status.inventory) if obj else ()
                answered = obj and shown == (agent.boot, obj.spec.node_uid, request)
                if obj and not answered and await self._is_current(agent, obj):
                    await self.write_status(agent)

    async def _is_current(self, agent: FakeAgent, obj: NodeSlices) -> bool:
        """Return whether a Node reports the agent's boot, and is the present one of its object."""
        try:
            node = await self.client.get(NODES, agent.node)
        except ApiNotFound:
            return False
        return (node.boot_id, node.metadata.uid) == (agent.boot, obj.spec.node_uid)

    async def write_status(self, agent: FakeAgent, *, inventory: str | None = None) -> None:
        """Write the status of an agent, with the answer to the present inventory request."""
        answer = await self.inventory_request() if inventory is None else inventory
        while obj := await self.node_slices(agent.node):
            patch, version = {"status": agent.status(obj, answer)}, obj.metadata.resource_version
            options = {"subresource": "status", "precondition": version}
            with suppress(ApiConflict):
                await self.client.merge_patch(NODE_SLICES, agent.node, patch, **options)
                return

    async def inventory_request(self) -> str:
        """Return the present inventory request."""
        found = await self._find(CONFIG_MAPS, INVENTORY_CONFIG_MAP)
        return found.data.get("request", "") if found else ""

    async def acknowledge(self, name: str, acknowledgement: str, *, boot: str = "") -> Assignment:
        """Acknowledge an assigned slice as its agent does."""
        assignment = await self.until(lambda: self.assignment(name), f"{name} is assigned")
        agent = self.agent_of(name, boot)
        agent.set(assignment, acknowledgement=acknowledgement)
        await self.write_status(agent)
        return assignment

    async def wait_confirmed(self, name: str, acknowledgement: str) -> None:
        """Wait until an acknowledgement is confirmed."""

        async def confirmed() -> bool:
            found = await self.assignment(name)
            return found is not None and found.confirmed == acknowledgement

        await self.until(confirmed, f"{acknowledgement} of {name} is confirmed")

    async def take(self, name: str, *, boot: str = "") -> Assignment:
        """Acknowledge a slice, await the confirmation, and hold it."""
        acknowledgement = f"take-{next(_seeds)}"
        assignment = await self.acknowledge(name, acknowledgement, boot=boot)
        await self.wait_confirmed(name, acknowledgement)
        agent = self.agent_of(name, boot)
        agent.set(assignment, held=True, in_use=True)
        await self.write_status(agent)
        return assignment

    async def take_first_slice(self, range_: str = "10.1.0.0/24") -> str:
        """Start a controller, create the NAD red and the node n1, take its slice, a /26, and return its name."""
        self.start()
        await self.create_nad("red", network_name="red", range=range_, node_slice_size="/26")
        await self.create_node("n1")
        await self.take("red-n1-10.1.0.0-26")
        return "red-n1-10.1.0.0-26"

    async def return_slice(self, name: str, *, boot: str = "") -> None:
        """Return a slice as its agent does."""
        agent = self.agent_of(name, boot)
        assignment = await self.assignment(name)
        assert assignment
        agent.set(assignment, held=False, in_use=False, returned=True)
        await self.write_status(agent)

    def agent_of(self, name: str, boot: str = "") -> FakeAgent:
        """Return the agent of the node in the name of a slice."""
        agents = [each for each in self.agents.values() if f"{each.node}-" in name and boot in ("", each.boot)]
        return agents[-1]

    async def allocate(self, name: str, key: str, pod: str) -> None:
        """Write an allocation as an agent does."""
        entry = {"id": f"cid-{pod}", "podref": f"{self.namespace}/{pod}", "ifname": "net1"}
        await self.client.merge_patch(IP_POOLS, name, {"spec": {"allocations": {key: entry}}}, namespace=self.namespace)

    async def create_pool(self, range_: str, *, name: str, **others: object) -> None:
        """Create an IPPool as a plugin without slices does, or with any metadata."""
        meta = {"name": name, "namespace": self.namespace, **others}
        await self.client.create(IP_POOLS, {"metadata": meta, "spec": {"range": range_, "allocations": {}}})

    async def delete(self, plural: str, name: str) -> None:
        """Delete an object."""
        kind = _KINDS[plural]
        await self.client.delete(kind, name, namespace=self.namespace if kind.namespaced else None)

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

    async def node_slices(self, node: str) -> NodeSlices | None:
        return await self._find(NODE_SLICES, node)

    async def assignments(self) -> dict[str, Assignment]:
        """Return the assignments of all nodes, also of former ones, by the names of their IPPools."""
        found: dict[str, Assignment] = {}
        for obj in (await self.client.list(NODE_SLICES)).items:
            former = [each for node in obj.spec.former for each in node.assignments]
            for each in (*former, *obj.spec.assignments):
                slice_, node = parse_prefix(each.slice), obj.metadata.name
                found[PoolIdentifier(range=slice_, network=each.network, node=node).name] = each
        return found

    async def assignment(self, name: str) -> Assignment | None:
        return (await self.assignments()).get(name)

    async def reservations(self) -> list[str]:
        found = (await self.client.list(IP_RESERVATIONS, namespace=self.namespace)).items
        return sorted(each.metadata.name for each in found)

    async def events(self, reason: str) -> list[Event]:
        return [event for event in (await self.client.list(EVENTS)).items if event.reason == reason]

    async def wait_slices(self, *names: str) -> None:
        """Wait until exactly these slices are assigned."""

        async def there() -> bool:
            return set(names) == (await self.assignments()).keys()

        await self.until(there, f"{', '.join(names)} are the only slices")

    async def wait_return_requested(self, name: str) -> str:
        """Wait until a node is asked to return a slice, and return the reason."""

        async def why() -> str:
            found = await self.assignment(name)
            return found.return_reason if found else ""

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
            assert loop.time() < end, f"waited {TIMEOUT:g} s until {what}: {await self.assignments()}"
            await asyncio.sleep(0.05)
        return found

    async def _find(self, kind: Kind[T], name: str) -> T | None:
        try:
            return await self.client.get(kind, name, namespace=self.namespace if kind.namespaced else None)
        except ApiNotFound:
            return None


_KINDS: dict[str, Kind[Any]] = {
    each.plural: each for each in (IP_POOLS, NODE_SLICES, NODE_SLICE_POOLS, LEASES, IP_RESERVATIONS)
}

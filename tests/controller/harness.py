"""A cluster with its ledger beside it, as a controller finds them: objects over the wire, the ledger over HTTP."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from podpool.api.azure import (
    AGENT_ANNOTATION,
    CLUSTER_SUBNET_STATES,
    CLUSTER_SUBNETS,
    NODE_NETWORK_CONFIGS,
    AgentReport,
    ClusterSubnet,
    ClusterSubnetState,
    NetworkContainer,
    NodeNetworkConfig,
)
from podpool.api.builtin import EVENTS, NODES, PODS, Event, Node
from podpool.api.meta import Kind, T
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.controller.controller import Controller
from podpool.controller.settings import ControllerSettings
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.ledger.admin_messages import CreateTokenRequest, SubnetDetails
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.app import front
from podpool.ledger.http.limits import RateLimits
from podpool.ledger.messages import SubnetName, SubnetSpec, SubnetState
from podpool.ledger.storage.database import parse_database
from podpool.runtime.clock import SystemClock
from podpool.runtime.http import HttpTransport, serving
from tests.kube.clusters import Cluster, Guest
from tests.kube.roads import Road

PATIENCE = 30.0
"""Seconds with a broken program; a good one needs a part of one."""
BRISK = Settings(utilization_poll=0.2, fence=0.5, confirmation_interval=0.2, clock_error=0.1, node_gc_delay=1.0)
UNHURRIED = RateLimits(rate=1e9, burst=1e9, strangers=1e9)
SUBNET = SubnetName(network="vnet", name="pods")
NODE_INFO = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"]
NODE_INFO += ["machineID", "operatingSystem", "osImage", "systemUUID"]

R = TypeVar("R")

_LEFT: tuple[Kind[Any], ...] = (NODES, EVENTS, PODS, NETWORK_ATTACHMENTS)
_seeds = itertools.count(1)


class Place:
    """An API server, and a database for the ledger."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        self._cluster = cluster
        self._database = database

    @staticmethod
    def prepare(database: str) -> None:
        """Make the tables of a ledger."""

        async def work() -> None:
            await (await parse_database(database).open(rng=random.SystemRandom())).close()

        asyncio.run(work())

    @asynccontextmanager
    async def site(self) -> AsyncIterator["Site"]:
        """Open it, with no Node in it."""
        async with AsyncExitStack() as stack:
            guest = await stack.enter_async_context(self._cluster.guest())
            await clear(guest.client)
            yield await stack.enter_async_context(_beside(guest, self._database))

    @asynccontextmanager
    async def running(self, *nodes: str) -> AsyncIterator["Site"]:
        """Open it with a wide subnet, a controller, and nodes that have joined."""
        async with self.site() as site:
            await site.subnet()
            site.start()
            await site.joined(*nodes)
            yield site


async def clear(client: KubeClient) -> None:
    """Remove what other tests have left outside of their namespaces, and what says something about Nodes."""
    for kind in _LEFT:
        try:
            left = (await client.list(kind)).items
        except ApiNotFound:  # the kind itself
            continue
        for each in left:
            await client.delete(kind, each.metadata.name, namespace=each.metadata.namespace or None, grace_seconds=0)


@asynccontextmanager
async def _beside(guest: Guest, database: str) -> AsyncIterator["Site"]:
    clock = SystemClock()
    store = await parse_database(database).open(rng=random.SystemRandom())
    try:
        ledger = LedgerService(store, clock=clock, rng=random.SystemRandom())
        await ledger.start()
        secrets = [
            (await ledger.administration.create_token(CreateTokenRequest(name=name, admin=name == "admin"))).secret or ""
            for name in ("admin", "cluster")
        ]
        async with serving(front(ledger, store, clock=clock, limits=UNHURRIED), host="127.0.0.1", port=0) as port:
            working = asyncio.ensure_future(ledger.run())
            site = Site(guest, f"http://127.0.0.1:{port}", *secrets)
            try:
                yield site
            finally:
                await site.close()
                ledger.stop()
                working.cancel()
                await asyncio.wait([working])
    finally:
        await store.close()


class Site:
    """Who stands in for kubelets, agents and people."""

    def __init__(self, guest: Guest, url: str, admin: str, token: str) -> None:
        self.client = guest.client
        self.road = guest.road
        self.namespace = guest.namespace
        self._token = token
        self._transports = [HttpTransport(url), HttpTransport(url)]
        self.ledger = LedgerClient(self._transports[0], token=admin)
        self.calls = Road(self._transports[1])
        """What the controllers call the ledger with."""
        self._running: dict[Controller, asyncio.Task[None]] = {}

    async def close(self) -> None:
        for controller in tuple(self._running):
            await self.stop(controller)
        for transport in self._transports:
            await transport.close()

    # Controllers

    def start(self, *, common: Settings = BRISK, **settings: Any) -> Controller:  # noqa: ANN401  of ControllerSettings
        """Start a controller."""
        controller = Controller(
            KubeClient(self.road),
            LedgerClient(self.calls, token=self._token),
            settings=ControllerSettings(
                subnet=SUBNET,
                namespace=self.namespace,
                whereabouts_namespace=self.namespace,
                common=common,
                **settings,
            ),
            clock=SystemClock(),
            rng=random.Random(next(_seeds)),  # noqa: S311  the same each time
        )
        self._running[controller] = asyncio.ensure_future(controller.run())
        return controller

    async def stop(self, controller: Controller) -> None:
        """End a controller as a signal does."""
        await ended(self._running.pop(controller))

    # The ledger

    async def subnet(self, cidr: str = "10.0.0.0/24", *, name: str = SUBNET.name, **settings: Any) -> SubnetState:  # noqa: ANN401  as NewSubnet has them
        """Make a subnet in which nothing rests for long."""
        usual: dict[str, Any] = {"network": SUBNET.network, "cooldown": 0.0, "cooldown_exhausted": 0.0}
        return await self.ledger.create_subnet(SubnetSpec(**usual | {"cidr": cidr, "name": name} | settings))

    async def details(self) -> SubnetDetails:
        """Who holds what."""
        return await self.ledger.details(SUBNET)

    async def override(self, **scaler: float) -> None:
        """Have a person insist on a scaler, or, with nothing, no longer."""
        spec = {"scaler": {"batch": None, "buffer": None} | scaler}
        await self.client.merge_patch(CLUSTER_SUBNETS, SUBNET.name, {"spec": spec}, namespace=self.namespace)

    async def forget_subnet(self) -> None:
        """Have a person delete what is told of the subnet."""
        await self.client.delete(CLUSTER_SUBNETS, SUBNET.name, namespace=self.namespace)
        await self.client.delete(CLUSTER_SUBNET_STATES, SUBNET.name, namespace=self.namespace)

    async def cluster(self) -> str:
        """The name under which the ledger knows the cluster."""
        return (await self.ledger.clusters()).clusters[0].id

    # Kubelets and agents

    async def join(self, name: str, *, boot: str = "", **labels: str) -> Node:
        """Have a kubelet register its Node."""
        tags = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
        told = dict.fromkeys(NODE_INFO, "none") | {"bootID": boot or f"boot-of-{name}"}
        status = {"nodeInfo": told, "addresses": [{"type": "InternalIP", "address": "192.168.0.7"}]}
        return await self.client.create(NODES, {"metadata": {"name": name, "labels": tags}, "status": status})

    async def request(self, name: str, wanted: int, *, names: tuple[str, ...] = (), **report: Any) -> None:  # noqa: ANN401  as AgentReport has them
        """Have a node's agent ask."""
        shown = await self.container(name)
        told = AgentReport(network_container=shown.id if shown else "", boot_id=f"boot-of-{name}", **report)
        await self.client.merge_patch(
            NODE_NETWORK_CONFIGS,
            name,
            {
                "metadata": {"annotations": {AGENT_ANNOTATION: msgspec.json.encode(told).decode()}},
                "spec": {"requestedIPCount": wanted, "ipsNotInUse": list(names)},
            },
            namespace=self.namespace,
        )

    async def joined(self, *names: str) -> None:
        """Have nodes join, and wait until each can serve."""
        await asyncio.gather(*map(self.join, names))
        for name in names:
            await self.served(name)

    async def served(self, name: str) -> NetworkContainer:
        """Wait until a node has a container."""
        return await until(partial(self.container, name), f"{name} has its container")

    async def granted(self, name: str, wanted: int, **report: Any) -> NetworkContainer:  # noqa: ANN401  as AgentReport has them
        """Have a node ask, and wait until it was given all of it."""
        await self.request(name, wanted, **report)
        return await self.holding(name, wanted)

    async def holding(self, name: str, count: int) -> NetworkContainer:
        """Wait until a node's status shows so many addresses."""

        async def held() -> NetworkContainer | None:
            shown = await self.container(name)
            return shown if shown and len(shown.ip_assignments) == count else None

        return await until(held, f"{name} holds {count}")

    # What is there

    async def config(self, name: str) -> NodeNetworkConfig | None:
        return await self._find(NODE_NETWORK_CONFIGS, name)

    async def container(self, name: str) -> NetworkContainer | None:
        config = await self.config(name)
        return config.status.network_containers[0] if config and config.status.network_containers else None

    async def shown(self, name: str = SUBNET.name) -> ClusterSubnet | None:
        """A ClusterSubnet that has been filled in."""
        found = await self._find(CLUSTER_SUBNETS, name)
        return found if found and found.status.exhausted is not None else None

    async def state(self, name: str = SUBNET.name) -> ClusterSubnetState | None:
        return await self._find(CLUSTER_SUBNET_STATES, name)

    async def events(self, reason: str, namespace: str = "default") -> list[Event]:
        found = (await self.client.list(EVENTS, namespace=namespace)).items
        return [event for event in found if event.reason == reason]

    async def belongs(self, name: str, owner: str = "") -> NetworkContainer:
        """Wait until a node's NNC has an owner, this one if told, and a container; gives that."""

        async def owned() -> NetworkContainer | None:
            config = await self.config(name)
            owners = [each.uid for each in config.metadata.owner_references] if config else []
            good = owners == [owner] if owner else bool(owners)
            return config.status.network_containers[0] if config and good and config.status.network_containers else None

        return await until(owned, f"{name} has an NNC of its own")

    async def _find(self, kind: Kind[T], name: str) -> T | None:
        try:
            return await self.client.get(kind, name, namespace=self.namespace)
        except ApiNotFound:
            return None


async def ended(task: "asyncio.Task[None]") -> None:
    """End a task as a signal does; raises what it failed with."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def until(holds: Callable[[], Awaitable[R | None]], what: str) -> R:
    """Wait until something is so; gives it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    while not (found := await holds()):
        assert loop.time() < end, f"waited {PATIENCE:g} s in vain until {what}"
        await asyncio.sleep(0.02)
    return found

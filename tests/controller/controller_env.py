"""The controller's test environment: an API server, a ledger over HTTP, and what kubelets, agents and operators do."""

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
from podpool.core.settings import SHORTHANDS, Settings
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.ledger.admin_messages import CreateTokenRequest, SubnetDetails
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.app import build_app
from podpool.ledger.http.rate_limit import RateLimits
from podpool.ledger.messages import SubnetName, SubnetSpec, SubnetState
from podpool.ledger.storage.database import parse_database
from podpool.runtime.clock import SystemClock
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient
from tests.kube.disturbable_transport import DisturbableTransport

TIMEOUT = 30.0
"""Seconds until a wait fails; a passing test needs a fraction of one."""
FAST_SETTINGS = Settings(utilization_poll=0.2, fence=0.5, confirmation_interval=0.2, clock_error=0.1, node_gc_delay=1.0)
UNLIMITED = RateLimits(rate=1e9, burst=1e9)
SUBNET = SubnetName(network="vnet", name="pods")
NODE_INFO = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"]
NODE_INFO += ["machineID", "operatingSystem", "osImage", "systemUUID"]

R = TypeVar("R")

_CLUSTER_SCOPED: tuple[Kind[Any], ...] = (NODES, EVENTS, PODS, NETWORK_ATTACHMENTS)
_seeds = itertools.count(1)


class ControllerEnvs:
    """Creates environments on one API server and one ledger database."""

    def __init__(self, cluster: ApiServerUnderTest, database: str) -> None:
        self._cluster = cluster
        self._database = database

    @staticmethod
    def prepare(database: str) -> None:
        """Create the ledger's tables."""

        async def work() -> None:
            await (await parse_database(database).open(rng=random.SystemRandom())).close()

        asyncio.run(work())

    @asynccontextmanager
    async def create(self) -> AsyncIterator["ControllerEnv"]:
        """Create an environment without Nodes."""
        async with AsyncExitStack() as stack:
            guest = await stack.enter_async_context(self._cluster.open_namespace())
            await clear(guest.client)
            yield await stack.enter_async_context(_with_ledger(guest, self._database))

    @asynccontextmanager
    async def running(self, *nodes: str) -> AsyncIterator["ControllerEnv"]:
        """Create an environment with a subnet, a controller, and nodes that have joined."""
        async with self.create() as env:
            await env.create_subnet()
            env.start()
            await env.join(*nodes)
            yield env


async def clear(client: KubeClient) -> None:
    """Delete cluster-scoped objects and those about Nodes that other tests left."""
    for kind in _CLUSTER_SCOPED:
        try:
            left = (await client.list(kind)).items
        except ApiNotFound:  # the kind itself
            continue
        for each in left:
            await client.delete(kind, each.metadata.name, namespace=each.metadata.namespace or None, grace_seconds=0)


@asynccontextmanager
async def _with_ledger(guest: NamespaceClient, database: str) -> AsyncIterator["ControllerEnv"]:
    clock = SystemClock()
    store = await parse_database(database).open(rng=random.SystemRandom())
    try:
        ledger = LedgerService(store, clock=clock, rng=random.SystemRandom())
        await ledger.start()
        secrets = [
            (await ledger.admin.create_token(CreateTokenRequest(name=name, admin=name == "admin"))).secret or ""
            for name in ("admin", "cluster")
        ]
        app = build_app(ledger, store, clock=clock, limits=UNLIMITED)
        async with serving(app.api, host="127.0.0.1", port=0, read_bodies=False) as port:
            working = asyncio.ensure_future(ledger.run())
            env = ControllerEnv(guest, f"http://127.0.0.1:{port}", *secrets)
            try:
                yield env
            finally:
                await env.close()
                ledger.stop()
                working.cancel()
                await asyncio.wait([working])
    finally:
        await store.close()


class ControllerEnv:
    """Plays the parts of kubelets, agents and operators."""

    def __init__(self, guest: NamespaceClient, url: str, admin: str, token: str) -> None:
        self.client = guest.client
        self.transport = guest.transport
        self.namespace = guest.namespace
        self.token = token
        """Of the next controllers."""
        self._transports = [HttpTransport(url), HttpTransport(url)]
        self.ledger = LedgerClient(self._transports[0], token=admin)
        self.ledger_transport = DisturbableTransport(self._transports[1])
        """The controllers' transport to the ledger."""
        self._running: dict[Controller, asyncio.Task[None]] = {}

    async def close(self) -> None:
        for controller in tuple(self._running):
            await self.stop(controller)
        for transport in self._transports:
            await transport.close()

    # Controllers

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """The running controllers."""
        return tuple(self._running)

    def start(self, *, common: Settings = FAST_SETTINGS, host: str = "", **settings: Any) -> Controller:  # noqa: ANN401  of ControllerSettings
        """Start a controller."""
        controller = Controller(
            KubeClient(self.transport),
            LedgerClient(self.ledger_transport, token=self.token),
            settings=ControllerSettings(
                subnet=SUBNET,
                namespace=self.namespace,
                whereabouts_namespace=self.namespace,
                common=common,
                **settings,
            ),
            clock=SystemClock(),
            rng=random.Random(next(_seeds)),  # noqa: S311  seeded
            host=host,
        )
        self._running[controller] = asyncio.ensure_future(controller.run())
        return controller

    async def stop(self, controller: Controller) -> None:
        """Stop a controller as a signal does."""
        await cancel(self._running.pop(controller))

    # The ledger

    async def create_subnet(
        self,
        cidr: str = "10.0.0.0/24",
        *,
        name: str = SUBNET.name,
        **settings: Any,  # noqa: ANN401  fields of SubnetSpec
    ) -> SubnetState:
        """Create a subnet without cooldown."""
        no_cooldown = dict.fromkeys(SHORTHANDS["cooldown"], 0.0)
        usual: dict[str, Any] = {"network": SUBNET.network, **no_cooldown}
        return await self.ledger.create_subnet(SubnetSpec(**usual | {"cidr": cidr, "name": name} | settings))

    async def details(self) -> SubnetDetails:
        """Return the subnet's details."""
        return await self.ledger.details(SUBNET)

    async def override(self, **scaler: float) -> None:
        """Set spec.scaler of the ClusterSubnet; without arguments remove it."""
        spec = {"scaler": {"batch": None, "buffer": None} | scaler}
        await self.client.merge_patch(CLUSTER_SUBNETS, SUBNET.name, {"spec": spec}, namespace=self.namespace)

    async def delete_subnet_objects(self) -> None:
        """Delete ClusterSubnet and ClusterSubnetState."""
        await self.client.delete(CLUSTER_SUBNETS, SUBNET.name, namespace=self.namespace)
        await self.client.delete(CLUSTER_SUBNET_STATES, SUBNET.name, namespace=self.namespace)

    async def cluster_id(self) -> str:
        """Return the cluster's ID in the ledger."""
        return (await self.ledger.clusters()).clusters[0].id

    # Kubelets and agents

    async def create_node(self, name: str, *, boot: str = "", **labels: str) -> Node:
        """Register a Node as a kubelet does."""
        info = dict.fromkeys(NODE_INFO, "none") | {"bootID": boot or f"boot-of-{name}"}
        status = {"nodeInfo": info, "addresses": [{"type": "InternalIP", "address": "192.168.0.7"}]}
        return await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})

    async def request(self, name: str, wanted: int, *, released: tuple[str, ...] = (), **report: Any) -> None:  # noqa: ANN401  as AgentReport has them
        """Write a request as the node's agent does."""
        nc = await self.nc(name)
        annotation = AgentReport(network_container=nc.id if nc else "", boot_id=f"boot-of-{name}", **report)
        await self.client.merge_patch(
            NODE_NETWORK_CONFIGS,
            name,
            {
                "metadata": {"annotations": {AGENT_ANNOTATION: msgspec.json.encode(annotation).decode()}},
                "spec": {"requestedIPCount": wanted, "ipsNotInUse": list(released)},
            },
            namespace=self.namespace,
        )

    async def join(self, *names: str) -> None:
        """Register Nodes, and wait until each has an NC."""
        await asyncio.gather(*map(self.create_node, names))
        for name in names:
            await self.wait_nc(name)

    async def wait_nc(self, name: str) -> NetworkContainer:
        """Wait until a node has an NC."""
        return await until(partial(self.nc, name), f"{name} has an NC")

    async def request_and_wait(self, name: str, wanted: int, **report: Any) -> NetworkContainer:  # noqa: ANN401  as AgentReport has them
        """Write a request, and wait until it is granted."""
        await self.request(name, wanted, **report)
        return await self.wait_assigned(name, wanted)

    async def wait_assigned(self, name: str, count: int) -> NetworkContainer:
        """Wait until a node's status has so many addresses."""

        async def held() -> NetworkContainer | None:
            shown = await self.nc(name)
            return shown if shown and len(shown.ip_assignments) == count else None

        return await until(held, f"{name} holds {count}")

    # Objects

    async def nnc(self, name: str) -> NodeNetworkConfig | None:
        return await self._find(NODE_NETWORK_CONFIGS, name)

    async def nc(self, name: str) -> NetworkContainer | None:
        config = await self.nnc(name)
        return config.status.network_containers[0] if config and config.status.network_containers else None

    async def cluster_subnet(self, name: str = SUBNET.name) -> ClusterSubnet | None:
        """Return a ClusterSubnet once its status is written."""
        found = await self._find(CLUSTER_SUBNETS, name)
        return found if found and found.status.exhausted is not None else None

    async def cluster_subnet_state(self, name: str = SUBNET.name) -> ClusterSubnetState | None:
        return await self._find(CLUSTER_SUBNET_STATES, name)

    async def events(self, reason: str, namespace: str = "default") -> list[Event]:
        found = (await self.client.list(EVENTS, namespace=namespace)).items
        return [event for event in found if event.reason == reason]

    async def wait_owned(self, name: str, owner: str = "") -> NetworkContainer:
        """Wait until a node's NNC has an owner (this one if given) and an NC, and return the NC."""

        async def owned() -> NetworkContainer | None:
            config = await self.nnc(name)
            owners = [each.uid for each in config.metadata.owner_references] if config else []
            good = owners == [owner] if owner else bool(owners)
            return config.status.network_containers[0] if config and good and config.status.network_containers else None

        return await until(owned, f"{name} owns its NNC")

    async def _find(self, kind: Kind[T], name: str) -> T | None:
        try:
            return await self.client.get(kind, name, namespace=self.namespace)
        except ApiNotFound:
            return None


async def cancel(task: "asyncio.Task[None]") -> None:
    """Cancel a task; raises what it failed with."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def until(condition: Callable[[], Awaitable[R | None]], what: str) -> R:
    """Poll until the condition returns something, and return that."""
    loop = asyncio.get_running_loop()
    end = loop.time() + TIMEOUT
    while not (found := await condition()):
        assert loop.time() < end, f"waited {TIMEOUT:g} s until {what}"
        await asyncio.sleep(0.02)
    return found

"""Nodes that share ranges on an API server in process: podpool agents, and Whereabouts plugins."""

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.secondary.router import AddressRequest
from podpool.agent.secondary.shared_range_ipam import SharedRangeIPAM
from podpool.agent.secondary.shared_range_journal import SharedRangeLog
from podpool.agent.secondary.slices import Slices
from podpool.api.crds import crd_manifests
from podpool.api.meta import ObjectMeta
from podpool.api.whereabouts import (
    IP_POOLS,
    IP_RESERVATIONS,
    IPPool,
    IPPoolSpec,
    OverlappingRangeIPReservation,
    ReservationSpec,
)
from podpool.core.addresses import Address
from podpool.core.ranges import Prefix, parse_prefix
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.kube.errors import ApiError, ApiInvalid, ApiNotFound
from podpool.kube.leader_election import LeaderElector, LeaseTiming
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.store import ObjectStore
from podpool.runtime.transport import Request, Response, Unreachable
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig
from podpool.whereabouts.ippool import AllocationChange, allocation_for, allocation_patch, parse_ippool
from podpool.whereabouts.object_names import PoolIdentifier, reservation_name
from tests.agent.clocks import LoopClock
from tests.agent.disks import MemoryDisk
from tests.agent.node_env import LogLines
from tests.kube.event_loops import run_virtual
from tests.whereabouts.builders import network as network_json
from tests.whereabouts.builders import read_config

SYSTEM = "kube-system"
TIMES = LeaseTiming(duration=1.5, renew_deadline=1.0, retry=0.5)
REQUEST_TIMEOUT = 25.0

R = TypeVar("R")


class UnreliableTransport:
    """A transport with latency that can lose responses, reject requests, and be cut."""

    def __init__(self, server: ResourceHandler, rng: random.Random) -> None:
        self.cut = False
        self.lossy = False
        self.reject: Callable[[Request], int | None] = lambda _request: None
        """Returns the status with which a request is rejected."""
        self.sent: list[tuple[str, str]] = []
        self._server = server
        self._rng = rng

    async def send(self, request: Request) -> Response:
        if self.cut:
            raise Unreachable("the API server", "cut")
        self.sent.append((request.method, request.path))
        await asyncio.sleep(self._rng.uniform(0.001, 0.03))
        status = self.reject(request)
        response = _rejection(status) if status else await self._server.send(request)
        await asyncio.sleep(self._rng.uniform(0.001, 0.03))
        if self._loses_response():
            raise Unreachable("the API server", "the response was lost")
        return response

    def _loses_response(self) -> bool:
        return self.cut or (self.lossy and self._rng.random() < 0.1)

    def calls(self, method: str, part: str = "") -> int:
        """Return the number of requests."""
        return sum(verb == method and part in path for verb, path in self.sent)


def _rejection(status: int) -> Response:
    body = {"kind": "Status", "status": "Failure", "reason": "", "code": status, "message": "not now"}
    return Response(status, json.dumps(body).encode(), headers={"content-type": "application/json"})


class SharedRangeCluster:
    """An API server, and nodes that use it."""

    def __init__(self) -> None:
        self.rng = random.Random(1)  # noqa: S311  seeded
        self.server = ResourceHandler(ObjectStore(clock=LoopClock(), rng=self.rng))
        self.kube = KubeClient(self.server)
        self.log_lines = LogLines()

    async def begin(self) -> None:
        await install_crds(self.kube, crd_manifests())

    def node(
        self, name: str, *, third_party: bool = True, cooldown: float = 30.0, disk: MemoryDisk | None = None
    ) -> "SharedRangeNode":
        return SharedRangeNode(self, name, disk or MemoryDisk(), third_party=third_party, cooldown=cooldown)

    async def entries(self) -> dict[tuple[str, Address], PodInterface]:
        """Return all allocations by pool and address."""
        pools = (await self.kube.list(IP_POOLS, namespace=SYSTEM)).items
        return {
            (pool.metadata.name, entry.address): PodInterface(
                podref=entry.allocation.podref, container_id=entry.allocation.id, ifname=entry.allocation.ifname
            )
            for pool in pools
            for entry in parse_ippool(pool.spec).entries
        }

    async def reservations(self) -> dict[str, ReservationSpec]:
        found = (await self.kube.list(IP_RESERVATIONS, namespace=SYSTEM)).items
        return {each.metadata.name: each.spec for each in found}

    async def fill(self, range_: str, *entries: tuple[int, PodInterface], network: str = "") -> None:
        """Create a pool with allocations of a third party."""
        allocations = {str(key): allocation_for(owner) for key, owner in entries}
        name = PoolIdentifier(range=parse_prefix(range_), network=network).name
        spec = IPPoolSpec(range=range_, allocations=allocations)
        await self.kube.create(IP_POOLS, IPPool(metadata=ObjectMeta(name=name, namespace=SYSTEM), spec=spec))

    async def reserve(self, name: str, podref: str, ifname: str = "net1") -> None:
        spec = ReservationSpec(podref=podref, ifname=ifname)
        meta = ObjectMeta(name=name, namespace=SYSTEM)
        await self.kube.create(IP_RESERVATIONS, OverlappingRangeIPReservation(metadata=meta, spec=spec))


C = TypeVar("C", bound=SharedRangeCluster)
Test = Callable[..., Coroutine[Any, Any, None]]


def run_in(kind: type[C]) -> Callable[[Test], Callable[..., None]]:
    """Run a test with a new cluster as its last argument."""

    def decorate(test: Test) -> Callable[..., None]:
        @wraps(test)
        def run(*args: object) -> None:
            async def body() -> None:
                cluster = kind()
                await cluster.begin()
                cluster.log_lines.attach()
                try:
                    await test(*args, cluster)
                finally:
                    cluster.log_lines.detach()

            run_virtual(body())

        del run.__wrapped__  # pytest would take the cluster for a fixture
        return run

    return decorate


class SharedRangeNode:
    """A node whose agent allocates in shared ranges."""

    def __init__(
        self, cluster: SharedRangeCluster, name: str, disk: MemoryDisk, *, third_party: bool, cooldown: float
    ) -> None:
        self.name = name
        self.boot_id = "boot-1"
        self.disk = disk
        self.transport = UnreliableTransport(cluster.server, cluster.rng)
        self._third_party = third_party
        shorter = min(cooldown, 5.0)
        self._settings = Settings(cooldown_roomy=cooldown, cooldown_filling=shorter, cooldown_exhausted=shorter)
        self._commons = cluster
        self.clock = LoopClock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dead: set[SharedRangeIPAM] = set()
        self.start()

    def start(self) -> None:
        deps = AgentDeps(
            node=self.name,
            boot_id=self.boot_id,
            kube=KubeClient(self.transport),
            disk=self.disk,
            clock=self.clock,
            rng=self._commons.rng,
            settings=self._settings,
        )
        options = AgentOptions(whereabouts_namespace=SYSTEM, third_party_plugins=self._third_party)
        self.ipam = SharedRangeIPAM(deps, options, SharedRangeLog(deps), Slices())
        self._running = asyncio.get_running_loop().create_task(self.ipam.run())

    async def kill(self) -> None:
        """Kill the agent with everything in progress."""
        self.disk, dying = self.disk.after_kill(), self.disk
        dying.budget = -1
        self._dead.add(self.ipam)
        await self._end()

    async def reboot(self) -> None:
        """Reboot the machine: what was not synced is lost."""
        self.boot_id, self.clock = "boot-2", LoopClock()
        self.disk, dying = self.disk.after_reboot(), self.disk
        dying.budget = -1
        self._dead.add(self.ipam)
        await self._end()

    async def _end(self) -> None:
        tasks = [self._running, *self._tasks]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def request(self, owner: PodInterface, settings: IpamConfig) -> AddressRequest:
        deadline = self.clock.boot() + REQUEST_TIMEOUT
        return AddressRequest(config=settings, owner=owner, deadline=deadline)

    async def add(self, owner: PodInterface, settings: IpamConfig) -> tuple[str, ...]:
        """Return the addresses. Raises `AgentKilled`."""
        return tuple(map(str, await self._call(self.ipam.allocate(self.request(owner, settings)))))

    async def delete(self, owner: PodInterface, settings: IpamConfig) -> None:
        """Repeat as a runtime does until it is answered."""
        while True:
            try:
                request = self.request(owner, settings)
                return await self._call(self.ipam.release(request.attachment, request))
            except AgentKilled:
                await asyncio.sleep(0.1)

    async def _call(self, request: Coroutine[Any, Any, R]) -> R:
        ipam = self.ipam
        task = asyncio.get_running_loop().create_task(request)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()  # the runtime disconnected
            await asyncio.wait([task])
            raise
        if ipam in self._dead or task.cancelled():
            raise AgentKilled
        return task.result()


class WhereaboutsPlugin:
    """Behaves as Whereabouts 0.9.4, including its bugs: DEL deletes any reservation of the address."""

    def __init__(self, cluster: SharedRangeCluster, name: str) -> None:
        self._rng = cluster.rng
        self._kube = KubeClient(UnreliableTransport(cluster.server, cluster.rng))
        self._name = name

    async def add(self, owner: PodInterface, settings: IpamConfig) -> str:
        """Return an address of the first range."""
        allocated: list[str] = []

        async def work() -> None:
            allocated.append(await self._add(owner, settings))

        await self._elector(owner).run(work)
        return allocated[0]

    async def delete(self, owner: PodInterface, settings: IpamConfig) -> None:
        await self._elector(owner).run(lambda: self._delete(owner, settings))

    def _elector(self, owner: PodInterface) -> LeaderElector:
        return LeaderElector(
            self._kube,
            name="whereabouts",
            namespace=SYSTEM,
            identity=owner.podref,
            clock=LoopClock(),
            rng=self._rng,
            timing=TIMES,
        )

    async def _add(self, owner: PodInterface, settings: IpamConfig) -> str:
        blocked: set[int] = set()
        while True:
            pool = await self._pool(settings)
            parsed = parse_ippool(pool.spec)
            own = [each for each in parsed.entries if each.owner == (owner.podref, owner.ifname)]
            change = (
                AllocationChange(
                    key=own[0].key, address=own[0].address, before=own[0].allocation, after=allocation_for(owner)
                )
                if own
                else self._lowest(parsed.prefix, {each.address.value for each in parsed.entries} | blocked, owner)
            )
            name = reservation_name(change.address, network=settings.network_name)
            found = (await self._all_reservations()).get(name)
            if found and found.podref != owner.podref:
                blocked.add(change.address.value)
                continue
            try:
                operations = allocation_patch([change], version=pool.metadata.resource_version)
                if operations:
                    await self._kube.json_patch(IP_POOLS, pool.metadata.name, operations, namespace=SYSTEM)
            except ApiInvalid:
                continue
            if not found:
                spec = ReservationSpec(podref=owner.podref, ifname=owner.ifname)
                reservation = OverlappingRangeIPReservation(metadata=ObjectMeta(name=name, namespace=SYSTEM), spec=spec)
                await self._kube.create(IP_RESERVATIONS, reservation)
            return str(change.address)

    def _lowest(self, prefix: Prefix, taken: set[int], owner: PodInterface) -> AllocationChange:
        for value in range(prefix.range.first + 1, prefix.range.last):
            if value not in taken:
                key = str(value - prefix.range.first)
                return AllocationChange(
                    key=key, address=Address(prefix.family, value), before=None, after=allocation_for(owner)
                )
        raise PluginRangeFull

    async def _delete(self, owner: PodInterface, settings: IpamConfig) -> None:
        while True:
            pool = await self._pool(settings)
            entries = parse_ippool(pool.spec).entries
            own = [each for each in entries if each.allocation.id == owner.container_id]
            if not own:
                return
            entry = own[0]
            change = AllocationChange(key=entry.key, address=entry.address, before=entry.allocation, after=None)
            try:
                operations = allocation_patch([change], version=pool.metadata.resource_version)
                await self._kube.json_patch(IP_POOLS, pool.metadata.name, operations, namespace=SYSTEM)
            except ApiInvalid:
                continue
            name = reservation_name(entry.address, network=settings.network_name)
            try:
                await self._kube.delete(IP_RESERVATIONS, name, namespace=SYSTEM)
            except ApiNotFound:
                return
            return

    async def _pool(self, settings: IpamConfig) -> IPPool:
        identifier = PoolIdentifier(range=settings.ranges[0].prefix, network=settings.network_name)
        try:
            return await self._kube.get(IP_POOLS, identifier.name, namespace=SYSTEM)
        except ApiNotFound:
            meta = ObjectMeta(name=identifier.name, namespace=SYSTEM)
            try:
                return await self._kube.create(
                    IP_POOLS, IPPool(metadata=meta, spec=IPPoolSpec(range=str(identifier.range)))
                )
            except ApiError:
                return await self._pool(settings)

    async def _all_reservations(self) -> dict[str, ReservationSpec]:
        found = (await self._kube.list(IP_RESERVATIONS, namespace=SYSTEM)).items
        return {each.metadata.name: each.spec for each in found}


class AgentKilled(Exception):
    """The agent was killed before it answered."""


class PluginRangeFull(Exception):
    """The plugin found no address."""


def pod_interface(pod: str, *, container_id: str = "", ifname: str = "net1") -> PodInterface:
    return PodInterface(podref=f"default/{pod}", container_id=container_id or f"c-{pod}", ifname=ifname)


def network(*ranges: str, **keys: object) -> IpamConfig:
    return read_config(network_json("1.0.0", ipRanges=[{"range": each} for each in ranges], **keys))

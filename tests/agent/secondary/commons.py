"""Nodes that share ranges, on one API server in process: our agents' sources, and plugins of the foreign kind."""

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from podpool.agent.deps import AgentDeps
from podpool.agent.secondary.address_source import AddressRequest
from podpool.agent.secondary.shared_range_ipam import SharedRangeIPAM
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
from tests.kube.loops import play
from tests.whereabouts.builders import network as written
from tests.whereabouts.builders import read_config

SYSTEM = "kube-system"
TIMES = LeaseTiming(duration=1.5, renew_deadline=1.0, retry=0.5)
PATIENCE = 25.0

R = TypeVar("R")


class Road:
    """A way to the API server that takes its time, loses some answers if told, refuses what it is told, can be cut."""

    def __init__(self, server: ResourceHandler, rng: random.Random) -> None:
        self.cut = False
        self.lossy = False
        self.refuse: Callable[[Request], int | None] = lambda _request: None
        """The status with which a request is refused, instead of being carried out."""
        self.sent: list[tuple[str, str]] = []
        self._server = server
        self._rng = rng

    async def send(self, request: Request) -> Response:
        if self.cut:
            raise Unreachable("the API server", "cut")
        self.sent.append((request.method, request.path))
        await asyncio.sleep(self._rng.uniform(0.001, 0.03))
        status = self.refuse(request)
        answer = _refusal(status) if status else await self._server.send(request)
        await asyncio.sleep(self._rng.uniform(0.001, 0.03))
        if self._loses():
            raise Unreachable("the API server", "the answer was lost")
        return answer

    def _loses(self) -> bool:
        return self.cut or (self.lossy and self._rng.random() < 0.1)

    def calls(self, method: str, part: str = "") -> int:
        """Count what was sent."""
        return sum(verb == method and part in path for verb, path in self.sent)


def _refusal(status: int) -> Response:
    said = {"kind": "Status", "status": "Failure", "reason": "", "code": status, "message": "not now"}
    return Response(status, json.dumps(said).encode(), headers={"content-type": "application/json"})


class Commons:
    """The cluster."""

    def __init__(self) -> None:
        self.rng = random.Random(1)  # noqa: S311  seeded
        self.server = ResourceHandler(ObjectStore(clock=LoopClock(), rng=self.rng))
        self.kube = KubeClient(self.server)

    async def begin(self) -> None:
        await install_crds(self.kube, crd_manifests())

    def node(self, name: str, *, foreign: bool = True, cooldown: float = 30.0) -> "SharingNode":
        return SharingNode(self, name, foreign=foreign, cooldown=cooldown)

    async def entries(self) -> dict[tuple[str, Address], PodInterface]:
        """Everything that pools hold, by pool and address."""
        pools = (await self.kube.list(IP_POOLS, namespace=SYSTEM)).items
        return {
            (pool.metadata.name, entry.address): PodInterface(
                podref=entry.allocation.podref, container=entry.allocation.id, ifname=entry.allocation.ifname
            )
            for pool in pools
            for entry in parse_ippool(pool.spec).listed
        }

    async def reservations(self) -> dict[str, ReservationSpec]:
        found = (await self.kube.list(IP_RESERVATIONS, namespace=SYSTEM)).items
        return {each.metadata.name: each.spec for each in found}

    async def fill(self, range_: str, *entries: tuple[int, PodInterface], network: str = "") -> None:
        """Make a pool as another hand would have left it."""
        allocations = {str(key): allocation_for(owner) for key, owner in entries}
        name = PoolIdentifier(range=parse_prefix(range_), network=network).name
        spec = IPPoolSpec(range=range_, allocations=allocations)
        await self.kube.create(IP_POOLS, IPPool(metadata=ObjectMeta(name=name, namespace=SYSTEM), spec=spec))

    async def reserve(self, name: str, podref: str, ifname: str = "net1") -> None:
        spec = ReservationSpec(podref=podref, ifname=ifname)
        meta = ObjectMeta(name=name, namespace=SYSTEM)
        await self.kube.create(IP_RESERVATIONS, OverlappingRangeIPReservation(metadata=meta, spec=spec))


C = TypeVar("C", bound=Commons)
Test = Callable[..., Coroutine[Any, Any, None]]


def played_in(kind: type[C]) -> Callable[[Test], Callable[..., None]]:
    """Run a test in a fresh cluster, which is its last argument."""

    def decorate(test: Test) -> Callable[..., None]:
        @wraps(test)
        def run(*args: object) -> None:
            async def story() -> None:
                commons = kind()
                await commons.begin()
                await test(*args, commons)

            play(story())

        del run.__wrapped__  # pytest would take the cluster for a fixture
        return run

    return decorate


class SharingNode:
    """A node whose agent shares ranges."""

    def __init__(self, commons: Commons, name: str, *, foreign: bool, cooldown: float) -> None:
        self.name = name
        self.boot_id = "boot-1"
        self.told: list[str] = []
        self.disk = MemoryDisk()
        self.road = Road(commons.server, commons.rng)
        self._foreign = foreign
        self._settings = Settings(cooldown=cooldown, cooldown_exhausted=min(cooldown, 5.0))
        self._commons = commons
        self.clock = LoopClock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dead: set[SharedRangeIPAM] = set()
        self.start()

    def start(self) -> None:
        deps = AgentDeps(
            node=self.name,
            kube=KubeClient(self.road),
            clock=self.clock,
            rng=self._commons.rng,
            settings=self._settings,
            tell=self.told.append,
        )
        self.source = SharedRangeIPAM(deps, self.disk, namespace=SYSTEM, foreign=self._foreign, boot_id=self.boot_id)
        self._running = asyncio.get_running_loop().create_task(self.source.run())

    async def kill(self) -> None:
        """End the agent at once, with everything that it was doing."""
        self.disk, dying = self.disk.after_kill(), self.disk
        dying.budget = -1
        self._dead.add(self.source)
        await self._end()

    async def reboot(self) -> None:
        """End the machine: what was not synced is lost."""
        self.boot_id = "boot-2"
        self.disk, dying = self.disk.after_reboot(), self.disk
        dying.budget = -1
        self._dead.add(self.source)
        await self._end()

    async def _end(self) -> None:
        tasks = [self._running, *self._tasks]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def want(self, owner: PodInterface, settings: IpamConfig) -> AddressRequest:
        deadline = self.clock.boot() + PATIENCE
        return AddressRequest(config=settings, owner=owner, deadline=deadline)

    async def add(self, owner: PodInterface, settings: IpamConfig) -> tuple[str, ...]:
        """Raises `AgentDied` when it does."""
        return tuple(map(str, await self._ask(self.source.give(self.want(owner, settings)))))

    async def delete(self, owner: PodInterface, settings: IpamConfig) -> None:
        """As a runtime does it: until it is answered."""
        while True:
            try:
                want = self.want(owner, settings)
                return await self._ask(self.source.give_back(want.sandbox, want))
            except AgentDied:
                await asyncio.sleep(0.1)

    async def _ask(self, request: Coroutine[Any, Any, R]) -> R:
        source = self.source
        task = asyncio.get_running_loop().create_task(request)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()  # the runtime hung up
            await asyncio.wait([task])
            raise
        if source in self._dead or task.cancelled():
            raise AgentDied
        return task.result()


class ForeignPlugin:
    """Does as Whereabouts 0.9.4 does, its faults included: DEL deletes whichever reservation has the name."""

    def __init__(self, commons: Commons, name: str) -> None:
        self._rng = commons.rng
        self._kube = KubeClient(Road(commons.server, commons.rng))
        self._name = name

    async def add(self, owner: PodInterface, settings: IpamConfig) -> str:
        """The first range only: all that these tests need."""
        given: list[str] = []

        async def work() -> None:
            given.append(await self._add(owner, settings))

        await self._elector(owner).run(work)
        return given[0]

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
            entries = parse_ippool(pool.spec)
            own = [each for each in entries.listed if each.owned_by == (owner.podref, owner.ifname)]
            change = (
                AllocationChange(
                    key=own[0].key, address=own[0].address, before=own[0].allocation, after=allocation_for(owner)
                )
                if own
                else self._lowest(entries.prefix, {each.address.value for each in entries.listed} | blocked, owner)
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
                made = OverlappingRangeIPReservation(metadata=ObjectMeta(name=name, namespace=SYSTEM), spec=spec)
                await self._kube.create(IP_RESERVATIONS, made)
            return str(change.address)

    def _lowest(self, prefix: Prefix, taken: set[int], owner: PodInterface) -> AllocationChange:
        for value in range(prefix.range.first + 1, prefix.range.last):
            if value not in taken:
                key = str(value - prefix.range.first)
                return AllocationChange(
                    key=key, address=Address(prefix.family, value), before=None, after=allocation_for(owner)
                )
        raise RangeIsFull

    async def _delete(self, owner: PodInterface, settings: IpamConfig) -> None:
        while True:
            pool = await self._pool(settings)
            listed = parse_ippool(pool.spec).listed
            mine = [each for each in listed if each.allocation.id == owner.container]
            if not mine:
                return
            entry = mine[0]
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
        place = PoolIdentifier(range=settings.ranges[0].prefix, network=settings.network_name)
        try:
            return await self._kube.get(IP_POOLS, place.name, namespace=SYSTEM)
        except ApiNotFound:
            meta = ObjectMeta(name=place.name, namespace=SYSTEM)
            try:
                return await self._kube.create(IP_POOLS, IPPool(metadata=meta, spec=IPPoolSpec(range=str(place.range))))
            except ApiError:
                return await self._pool(settings)

    async def _all_reservations(self) -> dict[str, ReservationSpec]:
        found = (await self._kube.list(IP_RESERVATIONS, namespace=SYSTEM)).items
        return {each.metadata.name: each.spec for each in found}


class AgentDied(Exception):
    """There is no answer."""


class RangeIsFull(Exception):
    """The foreign plugin found no address."""


def sandbox(pod: str, *, container: str = "", ifname: str = "net1") -> PodInterface:
    return PodInterface(podref=f"default/{pod}", container=container or f"c-{pod}", ifname=ifname)


def network(*ranges: str, **keys: object) -> IpamConfig:
    return read_config(written("1.0.0", ipRanges=[{"range": each} for each in ranges], **keys))

"""API access to shared ranges: IPPools, reservations of single addresses, and the `whereabouts` Lease.

An IPPool is changed by a patch with its resourceVersion as precondition, as Whereabouts' plugins do: two writers never
allocate one address of a pool. Pools of overlapping ranges are different objects; between them the reservation decides,
because only one can be created. It names its owner, and is deleted only with that sandbox, at the version read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.api.meta import ObjectMeta
from podpool.api.whereabouts import (
    IP_POOLS,
    IP_RESERVATIONS,
    SHARED_POOLS_SELECTOR,
    IPPool,
    IPPoolSpec,
    OverlappingRangeIPReservation,
    ReservationSpec,
)
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.kube.errors import ApiAlreadyExists, ApiConflict, ApiNotFound
from podpool.kube.leader_election import LeaderElector, LeaseTiming
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import LeaderElectionConfig
from podpool.whereabouts.ippool import AllocationChange, allocation_patch
from podpool.whereabouts.object_names import SHARED_RANGE_LEASE, PoolIdentifier
from podpool.whereabouts.shared_range import belongs_to, blocks


class IPPoolClient:
    """Objects of one namespace. Every call raises `ApiError` or `Unreachable`."""

    def __init__(self, deps: AgentDeps, *, namespace: str) -> None:
        self._deps = deps
        self._kube = deps.kube
        self._namespace = namespace
        self._listing = asyncio.Lock()
        self._requested = 0
        self._answered = 0
        self._pools: Mapping[str, IPPool] = {}
        self._leading = asyncio.Lock()

    async def list_pools(self) -> Mapping[str, IPPool]:
        """Return all shared pools by name, as they are now. Concurrent calls share the next response."""
        self._requested += 1
        ticket = self._requested
        async with self._listing:
            if self._answered < ticket:
                covers = self._requested
                pools = await self._kube.list(IP_POOLS, namespace=self._namespace, labels=SHARED_POOLS_SELECTOR)
                self._pools, self._answered = {each.metadata.name: each for each in pools.items}, covers
            return self._pools

    async def create_pool(self, identifier: PoolIdentifier) -> None:
        """Create a pool, unless it exists."""
        meta = ObjectMeta(name=identifier.name, namespace=self._namespace)
        try:
            await self._kube.create(IP_POOLS, IPPool(metadata=meta, spec=IPPoolSpec(range=str(identifier.range))))
        except ApiAlreadyExists:
            return

    async def patch_pool(self, pool: IPPool, changes: Iterable[AllocationChange]) -> None:
        """Apply changes. Raises `ApiInvalid` if the pool has changed since, `ApiNotFound` if it is deleted."""
        operations = allocation_patch(changes, version=pool.metadata.resource_version)
        if operations:
            await self._kube.json_patch(IP_POOLS, pool.metadata.name, operations, namespace=self._namespace)

    async def reserve(self, name: str, owner: PodInterface) -> ReservationSpec | None:
        """Reserve an address. Returns the reservation of another owner if there is one."""
        spec = ReservationSpec(podref=owner.podref, ifname=owner.ifname, containerid=owner.container_id)
        meta = ObjectMeta(name=name, namespace=self._namespace)
        while True:
            try:
                await self._kube.create(IP_RESERVATIONS, OverlappingRangeIPReservation(metadata=meta, spec=spec))
            except ApiAlreadyExists:
                found = await self._kube.find(IP_RESERVATIONS, name, namespace=self._namespace)
                if found is None:
                    continue
                if blocks(found.spec, owner):
                    return found.spec
                if found.spec.containerid == owner.container_id:
                    return None
                await self._delete_reservation(found)  # of the Pod's former sandbox, whose late DEL must not find it
            else:
                return None

    async def release_reservation(self, name: str, pool: str, change: AllocationChange) -> None:
        """Delete the reservation of an entry, unless it is of another owner or of the Pod's next sandbox.

        If the sandboxes differ and the entry is unchanged, the reservation is of a former sandbox: the next one would
        have written the entry first.
        """
        found = await self._kube.find(IP_RESERVATIONS, name, namespace=self._namespace)
        entry = change.before or change.after
        if found is None or entry is None or not belongs_to(found.spec, entry):
            return
        if found.spec.containerid not in ("", entry.id):
            current = (await self.list_pools()).get(pool, IPPool())
            if current.spec.allocations.get(change.key) != entry:
                return
        await self._delete_reservation(found)

    async def run_with_lease(self, config: LeaderElectionConfig, operation: Callable[[], Awaitable[None]]) -> None:
        """Run while holding the Lease with which third-party plugins serialize their writes; one at a time per node."""
        times = config.validated()
        timing = LeaseTiming(duration=times.duration / 1e3, renew_deadline=times.renew / 1e3, retry=times.retry / 1e3)
        async with self._leading:
            await LeaderElector(
                self._kube,
                name=SHARED_RANGE_LEASE,
                namespace=self._namespace,
                identity=f"podpool/{self._deps.node}",
                clock=self._deps.clock,
                rng=self._deps.rng,
                timing=timing,
            ).run(operation)

    async def _delete_reservation(self, found: OverlappingRangeIPReservation) -> None:
        meta, namespace = found.metadata, self._namespace
        try:
            await self._kube.delete(
                IP_RESERVATIONS, meta.name, namespace=namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        except (ApiNotFound, ApiConflict):
            return  # it was replaced meanwhile


def overlapping_pools(pools: Mapping[str, IPPool], identifier: PoolIdentifier) -> Iterator[tuple[Prefix, IPPool]]:
    """Iterate over the other pools of a network that overlap a pool."""
    for name, pool in pools.items():
        try:
            range_ = parse_prefix(pool.spec.range)
            of_network = name == PoolIdentifier(range=range_, network=identifier.network).name
        except InvalidInput:
            continue
        if of_network and name != identifier.name and range_.range.overlaps(identifier.range.range):
            yield range_, pool


def apply_changes(spec: IPPoolSpec, changes: Iterable[AllocationChange]) -> IPPoolSpec:
    """Return a pool after changes."""
    allocations = dict(spec.allocations)
    for change in changes:
        if change.after is None:
            allocations.pop(change.key, None)
        else:
            allocations[change.key] = change.after
    return msgspec.structs.replace(spec, allocations=allocations)

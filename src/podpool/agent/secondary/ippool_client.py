"""The objects that all nodes share: the IPPools of ranges without slices, and reservations of single addresses.

A pool changes only by a patch that fits the version it was seen at, as Whereabouts' plugins do it: two writers never
take one address of a pool. Pools whose ranges overlap are different objects; there the reservation decides, which is
created or is there. It says whose it is, and goes only with that sandbox, at the version that said so.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import msgspec

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
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiConflict, ApiNotFound
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.ippool import AllocationChange, allocation_patch
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.shared_range import blocks, reservation_matches


class IPPoolClient:
    """What one namespace has of them. Every call raises `ApiError` or `Unreachable`."""

    def __init__(self, kube: KubeClient, *, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._reading = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._seen: Mapping[str, IPPool] = {}

    async def look(self) -> Mapping[str, IPPool]:
        """Read all shared pools, by name, as they are now; who asks meanwhile shares the next answer."""
        self._asked += 1
        ticket = self._asked
        async with self._reading:
            if self._answered < ticket:
                covers = self._asked
                listing = await self._kube.list(IP_POOLS, namespace=self._namespace, labels=SHARED_POOLS_SELECTOR)
                self._seen, self._answered = {each.metadata.name: each for each in listing.items}, covers
            return self._seen

    async def make(self, place: PoolIdentifier) -> None:
        """Make a pool that was not there."""
        meta = ObjectMeta(name=place.name, namespace=self._namespace)
        try:
            await self._kube.create(IP_POOLS, IPPool(metadata=meta, spec=IPPoolSpec(range=str(place.range))))
        except ApiAlreadyExists:
            return

    async def write(self, pool: IPPool, changes: Iterable[AllocationChange]) -> None:
        """AllocationChange a pool that is as it was seen; raises `Invalid` when it is not, `ApiNotFound` when it is gone."""
        operations = allocation_patch(changes, version=pool.metadata.resource_version)
        if operations:
            await self._kube.json_patch(IP_POOLS, pool.metadata.name, operations, namespace=self._namespace)

    async def reserve(self, name: str, owner: PodInterface) -> ReservationSpec | None:
        """Reserve an address for an owner; gives the reservation that stands in the way, if one does."""
        wanted = ReservationSpec(podref=owner.podref, ifname=owner.ifname, containerid=owner.container)
        meta = ObjectMeta(name=name, namespace=self._namespace)
        while True:
            try:
                await self._kube.create(IP_RESERVATIONS, OverlappingRangeIPReservation(metadata=meta, spec=wanted))
            except ApiAlreadyExists:
                found = await self._reservation(name)
                if found is None:
                    continue
                if blocks(found.spec, owner):
                    return found.spec
                if found.spec.containerid == owner.container:
                    return None
                await self._delete(found)  # of the Pod's last sandbox, whose late DEL must not find it
            else:
                return None

    async def unreserve(self, name: str, pool: str, change: AllocationChange) -> None:
        """Delete the reservation that goes with an entry, and that is not another's, nor of the Pod's next sandbox.

        One of another sandbox is an earlier one's if the entry is still this one's: the next writes the entry first.
        """
        found, entry = await self._reservation(name), change.before or change.after
        if found is None or entry is None or not reservation_matches(found.spec, entry):
            return
        if found.spec.containerid not in ("", entry.id):
            seen = (await self.look()).get(pool, IPPool())
            if seen.spec.allocations.get(change.key) != entry:
                return
        await self._delete(found)

    async def _reservation(self, name: str) -> OverlappingRangeIPReservation | None:
        try:
            return await self._kube.get(IP_RESERVATIONS, name, namespace=self._namespace)
        except ApiNotFound:
            return None

    async def _delete(self, found: OverlappingRangeIPReservation) -> None:
        meta = found.metadata
        try:
            await self._kube.delete(
                IP_RESERVATIONS,
                meta.name,
                namespace=self._namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
        except (ApiNotFound, ApiConflict):
            return  # it is another one by now


def overlapping_pools(pools: Mapping[str, IPPool], place: PoolIdentifier) -> Iterator[tuple[Prefix, IPPool]]:
    """Find the other pools of a place's network that share addresses with it."""
    for name, pool in pools.items():
        try:
            range_ = parse_prefix(pool.spec.range)
            of_network = name == PoolIdentifier(range=range_, network=place.network).name
        except InvalidInput:
            continue
        if of_network and name != place.name and range_.range.overlaps(place.range.range):
            yield range_, pool


def apply_changes(spec: IPPoolSpec, changes: Iterable[AllocationChange]) -> IPPoolSpec:
    """Show a pool as it will be."""
    allocations = dict(spec.allocations)
    for change in changes:
        if change.after is None:
            allocations.pop(change.key, None)
        else:
            allocations[change.key] = change.after
    return msgspec.structs.replace(spec, allocations=allocations)

"""The objects that all nodes share: the IPPools of ranges without slices, and reservations of single addresses.

A pool changes only by a patch that fits the version it was seen at, as Whereabouts' plugins do it: two writers never
take one address of a pool. Pools whose ranges overlap are different objects; there the reservation decides, which is
created or is there. It says whose it is, and goes only with that sandbox, at the version that said so.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from podpool.api.meta import Meta
from podpool.api.whereabouts import (
    IP_POOLS,
    RESERVATIONS,
    SHARED,
    IPPool,
    IPPoolSpec,
    OverlappingRangeIPReservation,
    ReservationSpec,
)
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.kube.client import KubeClient
from podpool.kube.errors import AlreadyExists, Conflict, NotFound
from podpool.whereabouts.cni_args import Owner
from podpool.whereabouts.ippool import Change, patch_of
from podpool.whereabouts.object_names import PoolPlace
from podpool.whereabouts.shared_range import blocks, may_unreserve


class SharedObjects:
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
                listing = await self._kube.list(IP_POOLS, namespace=self._namespace, labels=SHARED)
                self._seen, self._answered = {each.metadata.name: each for each in listing.items}, covers
            return self._seen

    async def make(self, place: PoolPlace) -> None:
        """Make a pool that was not there."""
        meta = Meta(name=place.name, namespace=self._namespace)
        try:
            await self._kube.create(IP_POOLS, IPPool(metadata=meta, spec=IPPoolSpec(range=str(place.range))))
        except AlreadyExists:
            return

    async def write(self, pool: IPPool, changes: Iterable[Change]) -> None:
        """Change a pool that is as it was seen; raises `Invalid` when it is not, `NotFound` when it is gone."""
        operations = patch_of(changes, version=pool.metadata.resource_version)
        if operations:
            await self._kube.json_patch(IP_POOLS, pool.metadata.name, operations, namespace=self._namespace)

    async def reserve(self, name: str, owner: Owner) -> ReservationSpec | None:
        """Reserve an address for an owner; gives the reservation that stands in the way, if one does."""
        wanted = ReservationSpec(podref=owner.podref, ifname=owner.ifname, containerid=owner.container)
        meta = Meta(name=name, namespace=self._namespace)
        while True:
            try:
                await self._kube.create(RESERVATIONS, OverlappingRangeIPReservation(metadata=meta, spec=wanted))
            except AlreadyExists:
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

    async def unreserve(self, name: str, pool: str, change: Change) -> None:
        """Delete the reservation that goes with an entry, and that is not another's, nor of the Pod's next sandbox.

        One of another sandbox is an earlier one's if the entry is still this one's: the next writes the entry first.
        """
        found, entry = await self._reservation(name), change.before or change.after
        if found is None or entry is None or not may_unreserve(found.spec, entry):
            return
        if found.spec.containerid not in ("", entry.id):
            seen = (await self.look()).get(pool, IPPool())
            if seen.spec.allocations.get(change.key) != entry:
                return
        await self._delete(found)

    async def _reservation(self, name: str) -> OverlappingRangeIPReservation | None:
        try:
            return await self._kube.get(RESERVATIONS, name, namespace=self._namespace)
        except NotFound:
            return None

    async def _delete(self, found: OverlappingRangeIPReservation) -> None:
        meta = found.metadata
        try:
            await self._kube.delete(
                RESERVATIONS,
                meta.name,
                namespace=self._namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
        except (NotFound, Conflict):
            return  # it is another one by now


def overlapping(pools: Mapping[str, IPPool], place: PoolPlace) -> Iterator[tuple[Prefix, IPPool]]:
    """Find the other pools of a place's network that share addresses with it."""
    for name, pool in pools.items():
        try:
            range_ = parse_prefix(pool.spec.range)
            of_network = name == PoolPlace(range=range_, network=place.network).name
        except InvalidInput:
            continue
        if of_network and name != place.name and range_.range.overlaps(place.range.range):
            yield range_, pool


def with_changes(spec: IPPoolSpec, changes: Iterable[Change]) -> IPPoolSpec:
    """Show a pool as it will be."""
    allocations = dict(spec.allocations)
    for change in changes:
        if change.after is None:
            allocations.pop(change.key, None)
        else:
            allocations[change.key] = change.after
    return msgspec.structs.replace(spec, allocations=allocations)

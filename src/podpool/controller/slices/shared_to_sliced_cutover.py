"""Cutover of a range from shared IPPools to slices, when `node_slice_size` is added to a NAD: it seals these IPPools.

Invariant: from before the first slice of a range is assigned until the last one is returned, nothing new is allocated
from the range through a shared pool. Pods keep what they have from it, and no assigned slice contains such an address.
So the pool of the whole range exists with a seal, even if it was never used, and every other pool of the network that
overlaps it is sealed too. An agent allocates nothing from a sealed pool. An agent that read the pool before it was
sealed writes with an outdated resourceVersion, or was faster, and its allocation is in the response to the seal.

Each leader has its own seal ID, so a former leader's attempt to unseal has an outdated resourceVersion. Plugins of
Whereabouts itself do not know seals: what they write counts when it is seen, and is reported.
"""

from collections.abc import Callable, Collection
from contextlib import suppress

from podpool.api.meta import ObjectMeta
from podpool.api.whereabouts import (
    IP_POOLS,
    NETWORK_ANNOTATION,
    SEALED_ANNOTATION,
    SHARED_POOLS_SELECTOR,
    IPPool,
    IPPoolSpec,
)
from podpool.controller.deps import SliceDeps
from podpool.controller.slices.nad_planner import NADPlanner
from podpool.controller.slices.slice_index import SliceIndex
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix
from podpool.kube.errors import ApiAlreadyExists, ApiNotFound
from podpool.runtime.entropy import new_uuid
from podpool.whereabouts.ippool_identity import KnownNames, identify_pool, shared_pools
from podpool.whereabouts.object_names import PoolIdentifier


class SharedPoolSeal:
    """Seals and unseals shared pools."""

    def __init__(
        self, deps: SliceDeps, index: SliceIndex, planner: NADPlanner, *, may_unseal: Callable[[], bool]
    ) -> None:
        self._deps = deps
        self._kube = deps.kube
        self._index = index
        self._planner = planner
        self._may_unseal = may_unseal
        """Whether it is known who holds slices."""
        self._seal_id = new_uuid(deps.rng)
        self._searched: set[PoolIdentifier] = set()
        """Ranges whose pool was sealed before all other pools were listed."""

    def overlapping(self, network: str, ranges: Collection[Prefix]) -> tuple[IPPool, ...]:
        """Return the shared pools of a network that overlap these ranges."""
        pools = self._index.unowned_pools.values()
        return shared_pools(pools, network=network, ranges=ranges, known=self._planner.known_names(network))

    async def seal(self, network: str, ranges: Collection[Prefix]) -> None:
        """Stop allocations from these ranges other than from slices."""
        identifiers = [PoolIdentifier(range=each, network=network) for each in ranges]
        for identifier in identifiers:
            with suppress(InvalidInput):  # no object can have its name, so no node shares it
                await self._ensure_pool(identifier)
        if not self._searched.issuperset(identifiers):
            listed = await self._kube.list(IP_POOLS, namespace=self._deps.namespace, labels=SHARED_POOLS_SELECTOR)
            for pool in listed.items:
                self._index.pools.put(pool)
            self._searched.update(identifiers)
        for pool in self.overlapping(network, ranges):
            await self._seal(pool, network)

    async def unseal(self, network: str, *, keep: Collection[Prefix]) -> None:
        """Unseal the pools of a network that overlap no range with slices. An empty pool is deleted instead."""
        sealed = [each for each in self._index.unowned_pools.values() if sealed_network(each) == network]
        for pool in sealed if self._may_unseal() else ():
            identifier = identify_pool(pool, KnownNames())
            if identifier is None or any(identifier.range.range.overlaps(each.range) for each in keep):
                continue
            self._searched.discard(identifier)
            if pool.spec.allocations:
                removed = {SEALED_ANNOTATION: None, NETWORK_ANNOTATION: None}
                await self._annotate(pool, removed, precondition=pool.metadata.resource_version)
            else:
                await self._index.pools.delete(self._kube, pool)

    async def _ensure_pool(self, identifier: PoolIdentifier) -> None:
        """Create the pool of a whole range with a seal, unless it exists."""
        pool = self._index.pools.get(identifier.name)
        if pool is not None and self._is_sealed(pool):
            return
        self._searched.discard(identifier)
        if pool is None:
            annotations = self._annotations(identifier.network)
            meta = ObjectMeta(name=identifier.name, namespace=self._deps.namespace, annotations=annotations)
            pool = IPPool(metadata=meta, spec=IPPoolSpec(range=str(identifier.range)))
            try:
                created = await self._kube.create(IP_POOLS, pool)
            except ApiAlreadyExists:
                created = await self._kube.get(IP_POOLS, identifier.name, namespace=self._deps.namespace)
            self._index.pools.put(created)

    async def _seal(self, pool: IPPool, network: str) -> None:
        """Seal a pool at whichever version it has: the response contains its allocations at that time."""
        if not self._is_sealed(pool):
            try:
                await self._annotate(pool, self._annotations(network))
            except ApiNotFound:
                self._index.pools.remove(pool)

    def _is_sealed(self, pool: IPPool) -> bool:
        return pool.metadata.annotations.get(SEALED_ANNOTATION) == self._seal_id

    def _annotations(self, network: str) -> dict[str, str]:
        return {SEALED_ANNOTATION: self._seal_id, NETWORK_ANNOTATION: network}

    async def _annotate(
        self, pool: IPPool, annotations: dict[str, str] | dict[str, None], *, precondition: str | None = None
    ) -> None:
        patch = {"metadata": {"annotations": dict(annotations)}}
        name, namespace = pool.metadata.name, self._deps.namespace
        patched = await self._kube.merge_patch(IP_POOLS, name, patch, namespace=namespace, precondition=precondition)
        self._index.pools.put(patched)


def sealed_network(pool: IPPool) -> str | None:
    """Return the network in which a pool is sealed; None if it is not."""
    annotations = pool.metadata.annotations
    return annotations.get(NETWORK_ANNOTATION, "") if SEALED_ANNOTATION in annotations else None

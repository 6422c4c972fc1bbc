"""Pools that all nodes share, over ranges that are cut into slices: somebody added `node_slice_size` to a definition.

What must hold: from before the first slice of a range is offered until the last is handed back nobody is given anything
new of it through such a pool; what Pods have from it stays theirs, and no slice that is given has it. So the pool of
the whole range is there, with a mark, also where nobody shared it; and every other pool of the network that has
addresses of it is marked too. An agent that finds a mark gives nothing. One that looked before the mark was there
writes to a version that is no more, or was faster, and its entry is in the answer to the mark.

A leader has a word of its own for marks: what the last one meant to take off is another version by then. Plugins of
Whereabouts itself know no marks: what they write still counts when it is seen, and is told.
"""

from collections.abc import Callable, Collection
from contextlib import suppress

from podpool.api.meta import ObjectMeta
from podpool.api.whereabouts import IP_POOLS, SEALED_ANNOTATION, SHARED_POOLS_SELECTOR, IPPool, IPPoolSpec
from podpool.controller.slices.deps import SliceDeps
from podpool.controller.slices.ownership import SliceOwnership
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix
from podpool.kube.errors import ApiAlreadyExists, ApiNotFound
from podpool.runtime.entropy import new_uuid
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, KnownNames, identify_pool, shared_pools
from podpool.whereabouts.object_names import PoolIdentifier


class SharedPoolSeal:
    """Shuts them, and opens them again."""

    def __init__(
        self,
        ground: SliceDeps,
        claims: SliceOwnership,
        *,
        known: Callable[[str], KnownNames],
        may_open: Callable[[], bool],
    ) -> None:
        self._ground = ground
        self._kube = ground.kube
        self._claims = claims
        self._known = known
        """Tell which names there are, beside that of a network."""
        self._may_open = may_open
        """Tell whether it is known who has a slice."""
        self._word = new_uuid(ground.rng)
        self._searched: set[PoolIdentifier] = set()
        """The ranges whose pool was shut before all others were looked for."""

    def of(self, network: str, ranges: Collection[Prefix]) -> tuple[IPPool, ...]:
        """Find those of a network that have addresses of ranges."""
        strangers = self._claims.strangers.values()
        return shared_pools(strangers, network=network, ranges=ranges, known=self._known(network))

    async def shut(self, network: str, ranges: Collection[Prefix]) -> None:
        """Have nobody given anything new of ranges from now on, but from slices."""
        places = [PoolIdentifier(range=each, network=network) for each in ranges]
        for place in places:
            with suppress(InvalidInput):  # what no object can be nobody shares
                await self._shut(place)
        if not self._searched.issuperset(places):
            for pool in (await self._kube.list(IP_POOLS, namespace=self._ground.namespace, labels=SHARED_POOLS_SELECTOR)).items:
                self._claims.pools.note(pool)
            self._searched.update(places)
        for pool in self.of(network, ranges):
            await self._mark(pool, network)

    async def open(self, network: str, *, but: Collection[Prefix]) -> None:
        """Let ranges be shared again that nobody has slices of; whoever needs a pool that is empty makes it again."""
        marked = [each for each in self._claims.strangers.values() if network_of(each) == network]
        for pool in marked if self._may_open() else ():
            place = identify_pool(pool, KnownNames())
            if place is None or any(place.range.range.overlaps(each.range) for each in but):
                continue
            self._searched.discard(place)
            if pool.spec.allocations:
                await self._note(
                    pool, {SEALED_ANNOTATION: None, NETWORK_ANNOTATION: None}, at=pool.metadata.resource_version
                )
            else:
                await self._claims.pools.end(self._kube, pool)

    async def _shut(self, place: PoolIdentifier) -> None:
        """See that the pool of a whole range is there, and marked."""
        pool = self._claims.pools.get(place.name)
        if pool is not None and self._is_marked(pool):
            return
        self._searched.discard(place)
        if pool is None:
            notes = self._marks(place.network)
            meta = ObjectMeta(name=place.name, namespace=self._ground.namespace, annotations=notes)
            try:
                made = await self._kube.create(IP_POOLS, IPPool(metadata=meta, spec=IPPoolSpec(range=str(place.range))))
            except ApiAlreadyExists:
                made = await self._kube.get(IP_POOLS, place.name, namespace=self._ground.namespace)
            self._claims.pools.note(made)

    async def _mark(self, pool: IPPool, network: str) -> None:
        """Mark a pool at whichever version it is: what it has by then is in the answer."""
        if not self._is_marked(pool):
            try:
                await self._note(pool, self._marks(network))
            except ApiNotFound:
                self._claims.pools.gone(pool)

    def _is_marked(self, pool: IPPool) -> bool:
        return pool.metadata.annotations.get(SEALED_ANNOTATION) == self._word

    def _marks(self, network: str) -> dict[str, str]:
        return {SEALED_ANNOTATION: self._word, NETWORK_ANNOTATION: network}

    async def _note(self, pool: IPPool, notes: dict[str, str] | dict[str, None], *, at: str | None = None) -> None:
        patch = {"metadata": {"annotations": dict(notes)}}
        name, namespace = pool.metadata.name, self._ground.namespace
        self._claims.pools.note(await self._kube.merge_patch(IP_POOLS, name, patch, namespace=namespace, precondition=at))


def network_of(pool: IPPool) -> str | None:
    """Tell in which network a pool is shut; None for one that is not."""
    notes = pool.metadata.annotations
    return notes.get(NETWORK_ANNOTATION, "") if SEALED_ANNOTATION in notes else None

"""One node's slice: its IPPool and Lease, made, kept in order, asked back, and ended.

What must hold: the IPPool is there before its Lease, and a slice counts as taken from before the IPPool is asked for.
Nothing is offered, and no signature agreed to, before it is known who uses what; what an agent says that it has is
offered to it at once. A Lease that has a holder is not touched: the agent is asked to leave, and the slice ends when it
has. Whatever is deleted is what was looked at, by its UID and version.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from podpool.api.builtin import LEASES, NODES
from podpool.api.meta import Kind, KubeObject, T
from podpool.api.whereabouts import (
    GRANTED_ANNOTATION,
    IP_POOLS,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    SLICE_ANNOTATION,
    IPPool,
)
from podpool.controller.slices.deps import SliceDeps
from podpool.controller.slices.informers import WriteThroughCache
from podpool.controller.slices.objects import DesiredSlice, lease_for, pool_for
from podpool.controller.slices.ownership import OwnedSlice, SliceOwnership
from podpool.kube.errors import ApiAlreadyExists, ApiError, ApiNotFound
from podpool.kube.informer import quorum_get
from podpool.kube.workqueue import Requeue
from podpool.whereabouts.object_names import PoolIdentifier

LATELY = 3600.0
"""Seconds after which every cache has shown that something is gone."""
STALE = 1.0
"""Seconds after which a cache should show what a fresh read has shown."""
UNWANTED = "no NetworkAttachmentDefinition asks for it any more"


class SliceReconciler:
    """Brings IPPool and Lease of one name in step with what is wanted."""

    def __init__(
        self, ground: SliceDeps, claims: SliceOwnership, *, look: Callable[[str], None], may_give: Callable[[], bool]
    ) -> None:
        self.ended: set[str] = set()
        """The UIDs of what was deleted from here lately."""
        self._ground = ground
        self._kube = ground.kube
        self._claims = claims
        self._look = look
        self._may_give = may_give
        """Tell whether it is known who uses what."""
        self._wanted: dict[str, dict[str, DesiredSlice]] = {}
        """SliceReconciler by network and name, of the networks that have been decided on;"""
        self._networks: dict[str, str] = {}
        """the network of each;"""
        self._open: set[str] = set()
        """and the networks that are being decided on anew."""

    def drop(self, network: str, kept: dict[str, DesiredSlice]) -> None:
        """Want no longer what is not among these: from now on nothing of it is begun, nor anything asked back."""
        now = self._wanted.get(network, {})
        self._wanted[network] = {name: offer for name, offer in now.items() if kept.get(name) == offer}
        for name in now.keys() - self._wanted[network].keys():
            self._networks.pop(name, None)
        self._open.add(network)

    def want(self, network: str, offers: dict[str, DesiredSlice]) -> None:
        """Want these and no others in a network."""
        before, self._wanted[network] = self._wanted.get(network, {}), offers
        self._open.discard(network)
        self._networks |= dict.fromkeys(offers, network)
        changed = [name for name, offer in offers.items() if before.get(name) != offer]
        claimed = (claim.name for claim in self._claims.of_network(network) if claim.name not in offers)
        for name in (*changed, *claimed):
            self._look(name)

    def names(self) -> tuple[str, ...]:
        """Name everything that is wanted."""
        return tuple(self._networks)

    def _offer(self, name: str) -> DesiredSlice | None:
        return self._wanted.get(self._networks.get(name, ""), {}).get(name)

    async def reconcile(self, name: str) -> Requeue | None:
        """Look at a slice as it is now, and do what is missing."""
        offer, claim = self._offer(name), self._claims.refresh(name)
        if claim is None:
            if offer is not None and not offer.leave and self._may_give():
                await self._make(offer)
        elif offer is not None:
            return await self._keep(offer, claim)
        elif claim.network in self._wanted and claim.network not in self._open:
            return await self._ask_back(claim)
        return None

    # What is wanted

    async def _keep(self, offer: DesiredSlice, claim: OwnedSlice) -> Requeue | None:
        if claim.uid != offer.uid:
            return await self._own_again(offer, claim)
        if offer.leave and not claim.held:
            await self._drop(claim)
            return None
        if claim.spent and self._may_give():  # else a copy may show another at this very version
            await self._end(self._claims.leases, self._claims.leases.get(claim.name))
        await self._dress(offer)
        if claim.held or self._may_give():
            await self._make(offer)
        await self._agree(offer)
        return None

    async def _agree(self, offer: DesiredSlice) -> None:
        """Let an agent that has signed give addresses, unless they may be another's, or are to be given back."""
        claim, lease = self._claims.get(offer.place.name), self._claims.leases.get(offer.place.name)
        if claim is None or lease is None or not claim.taken or claim.signature == claim.granted:
            return
        known = claim.told or self._may_give()
        wanted = bool(offer.leave) or self._offer(claim.name) == offer
        if known and wanted and not offer.disputed and not self._is_beaten(claim, leaves=bool(offer.leave)):
            agreed = {GRANTED_ANNOTATION: claim.signature}
            self._claims.leases.note(await self._labelled(LEASES, lease, {}, agreed))

    def _is_beaten(self, claim: OwnedSlice, *, leaves: bool) -> bool:
        """Tell whether addresses of it may be in use under another name: of its own node, or, if it leaves, of any.

        Its own agent gives nothing twice of what it knows: what it has beside one that leaves is no reason, nor what
        it says that it has lost.
        """
        others = self._claims.of_network(claim.network) if leaves else self._claims.of_node(claim.node)
        rivals = (each for each in others if each.name != claim.name and each.network == claim.network)
        return any(
            each.slice.range.overlaps(claim.slice.range)
            and (each.shown and not leaves if each.uid == claim.uid else each.sure)
            for each in rivals
        )

    def _is_made(self, claim: OwnedSlice) -> bool:
        """Tell whether the server has answered for the IPPool, or only will have."""
        pool = self._claims.pools.get(claim.name)
        return pool is not None and bool(pool.metadata.uid)

    async def _make(self, offer: DesiredSlice) -> None:
        """Make the IPPool, and then the Lease with which it is offered; nothing of what another may use."""
        if offer.disputed:
            return
        pools, name, namespace = self._claims.pools, offer.place.name, self._ground.namespace
        pool = pools.get(name)
        if pool is None or not pool.metadata.uid:
            await self._make_pool(pool_for(offer, namespace=namespace))
        elif NODE_UID_LABEL not in pool.metadata.labels:  # of a plugin that was there before us
            pools.note(await self._labelled(IP_POOLS, pool, offer.labels, offer.notes))
        pool, lease = pools.get(name), self._claims.leases.get(name)
        wanted = bool(offer.leave) or self._offer(name) == offer  # what is asked back is somebody's already
        if pool and lease is None and wanted and _has(pool, offer.labels, offer.notes):
            await self._make_lease(offer)

    async def _make_pool(self, pool: IPPool) -> None:
        pools = self._claims.pools
        pools.note(pool)  # whatever becomes of the request
        try:
            pools.note(await self._kube.create(IP_POOLS, pool))
        except ApiAlreadyExists:
            pools.note(await self._kube.get(IP_POOLS, pool.metadata.name, namespace=self._ground.namespace))
        except ApiError:
            pools.forget(pool.metadata.name)
            raise

    async def _make_lease(self, offer: DesiredSlice) -> None:
        lease = lease_for(offer, namespace=self._ground.namespace)
        try:
            made = await self._kube.create(LEASES, lease)
        except ApiAlreadyExists:
            made = await self._kube.get(LEASES, lease.metadata.name, namespace=self._ground.namespace)
            if NODE_UID_LABEL not in made.metadata.labels:
                made = await self._labelled(LEASES, made, offer.labels, lease.metadata.annotations)
        self._claims.leases.note(made)

    async def _dress(self, offer: DesiredSlice) -> None:
        """Bring in step what IPPool and Lease say of themselves, and whether the slice is asked back."""
        name, notes = offer.place.name, {**offer.notes, RETURN_ANNOTATION: offer.leave or None}
        pool, lease = self._claims.pools.get(name), self._claims.leases.get(name)
        if pool is not None and pool.metadata.uid and not _has(pool, offer.labels, notes):
            self._claims.pools.note(await self._labelled(IP_POOLS, pool, offer.labels, notes))
        notes = {**offer.notes, SLICE_ANNOTATION: str(offer.place.range)}
        if lease is not None and not _has(lease, offer.labels, notes):
            self._claims.leases.note(await self._labelled(LEASES, lease, offer.labels, notes))

    async def _own_again(self, offer: DesiredSlice, claim: OwnedSlice) -> Requeue | None:
        """Let a machine that was registered anew keep its slice, on a fresh read; another machine inherits nothing."""
        try:
            node = await quorum_get(self._kube, NODES, claim.node, cache=self._ground.nodes)
        except ApiNotFound:
            return None
        if node.metadata.uid != offer.uid or not claim.belongs(node):
            return Requeue(after=STALE)
        await self._dress(offer)
        return None

    async def _labelled(self, kind: Kind[T], obj: T, labels: Mapping[str, str], notes: Mapping[str, str | None]) -> T:
        return await self._kube.merge_patch(
            kind,
            obj.metadata.name,
            {"metadata": {"labels": dict(labels), "annotations": dict(notes)}},
            namespace=self._ground.namespace,
            precondition=obj.metadata.resource_version,
        )

    # What is not wanted

    async def _ask_back(self, claim: OwnedSlice) -> Requeue | None:
        """End what nobody holds; ask for what somebody does. Whether its Node is gone is for `lost` to find out."""
        node = self._ground.nodes.get(claim.node)
        if claim.pooled and not self._is_made(claim):
            await self._settle(claim.name)
        elif not claim.held:
            await self._drop(claim)
        elif node is not None and claim.belongs(node):
            place = PoolIdentifier(range=claim.slice, network=claim.network, node=claim.node)
            unwanted = DesiredSlice(place=place, uid=node.metadata.uid, range=claim.range, leave=UNWANTED)
            return await self._keep(unwanted, claim)
        return None

    async def _settle(self, name: str) -> None:
        """Find out what became of an IPPool that was asked for, and is not wanted any more."""
        try:
            self._claims.pools.note(await self._kube.get(IP_POOLS, name, namespace=self._ground.namespace))
        except ApiNotFound:
            self._claims.pools.forget(name)

    async def _drop(self, claim: OwnedSlice) -> None:
        """End what nobody holds, once it is known that nobody does."""
        if self._may_give():
            await self.withdraw(claim)

    async def withdraw(self, claim: OwnedSlice, *, still: Callable[[], Awaitable[bool]] | None = None) -> bool:
        """End a slice: first the Lease, so that nobody takes it any more, and the IPPool if it is still to be so."""
        pool = self._claims.pools.get(claim.name)
        await self._end(self._claims.leases, self._claims.leases.get(claim.name))
        if still is not None and not await still():
            return False
        await self._end(self._claims.pools, pool)
        return True

    async def _end(self, latest: WriteThroughCache[T], obj: T | None) -> None:
        if obj is None:
            return
        self.ended.add(obj.metadata.uid)
        asyncio.get_running_loop().call_later(LATELY, self.ended.discard, obj.metadata.uid)
        await latest.end(self._kube, obj)


def _has(obj: KubeObject, labels: Mapping[str, str], notes: Mapping[str, str | None]) -> bool:
    """Tell whether an object says all of this of itself."""
    meta = obj.metadata
    return all(meta.labels.get(each) == value for each, value in labels.items()) and all(
        meta.annotations.get(each) == value for each, value in notes.items()
    )

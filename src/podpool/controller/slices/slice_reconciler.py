"""Reconciles one slice: creates its IPPool and Lease, keeps them current, asks for its return, and deletes them.

Invariants:
- The IPPool exists before its Lease, and the slice counts as owned from before the IPPool is requested.
- No Lease is created or confirmed before the slice inventory is complete, except for what an agent reports to have.
- A Lease with a holder is not deleted: the agent is asked to return the slice, and it is deleted after that.
- Objects are deleted at the UID and resourceVersion that were decided on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from podpool.api.builtin import LEASES, NODES
from podpool.api.meta import Kind, KubeObject, T
from podpool.api.whereabouts import CONFIRMED_ANNOTATION, IP_POOLS, NODE_UID_LABEL, RETURN_ANNOTATION, IPPool
from podpool.controller.deps import SliceDeps
from podpool.controller.slices.informers import WriteThroughCache
from podpool.controller.slices.objects import DesiredSlice, build_lease, build_pool
from podpool.controller.slices.ownership import LeaseState, OwnedSlice, SliceOwnership
from podpool.kube.errors import ApiAlreadyExists, ApiError, ApiNotFound
from podpool.kube.informer import quorum_get
from podpool.kube.workqueue import Requeue
from podpool.whereabouts.object_names import PoolIdentifier

DELETED_TTL = 3600.0
"""Seconds after which every cache has shown a deletion."""
CACHE_DELAY = 1.0
"""Seconds after which a cache should show what a quorum read returned."""
UNWANTED = "no NetworkAttachmentDefinition uses it any more"


class SliceLeaseReconciler:
    """Reconciles IPPool and Lease of one name with the desired slices."""

    def __init__(
        self,
        deps: SliceDeps,
        ownership: SliceOwnership,
        *,
        enqueue: Callable[[str], None],
        may_assign: Callable[[], bool],
    ) -> None:
        self.deleted: set[str] = set()
        """UIDs of objects that this reconciler deleted recently."""
        self._deps = deps
        self._kube = deps.kube
        self._ownership = ownership
        self._enqueue = enqueue
        self._may_assign = may_assign
        """Whether the slice inventory is complete."""
        self._desired: dict[str, dict[str, DesiredSlice]] = {}
        """By network and name, of the networks that have been assigned."""
        self._networks: dict[str, str] = {}
        """The network of each desired slice."""
        self._assigning: set[str] = set()
        """Networks that are being assigned."""
        self._outdated: set[str] = set()
        """Networks whose ownership has changed since they were assigned."""

    def invalidate(self, network: str) -> None:
        """Create no slice of a network until it is assigned again: its ownership has changed."""
        self._outdated.add(network)

    def begin_assignment(self, network: str, kept: dict[str, DesiredSlice]) -> None:
        """Drop desired slices that are not among these; until `set_desired` nothing is asked to be returned."""
        now = self._desired.get(network, {})
        self._desired[network] = {name: desired for name, desired in now.items() if kept.get(name) == desired}
        for name in now.keys() - self._desired[network].keys():
            self._networks.pop(name, None)
        self._assigning.add(network)

    def set_desired(self, network: str, desired: dict[str, DesiredSlice]) -> None:
        """Replace the desired slices of a network, and enqueue those that changed."""
        before, self._desired[network] = self._desired.get(network, {}), desired
        self._assigning.discard(network)
        self._outdated.discard(network)
        self._networks |= dict.fromkeys(desired, network)
        absent = (name for name in desired if self._ownership.get(name) is None)
        changed = [*absent, *(name for name, each in desired.items() if before.get(name) != each)]
        unwanted = (each.name for each in self._ownership.by_network(network) if each.name not in desired)
        for name in (*changed, *unwanted):
            self._enqueue(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all desired slices."""
        return tuple(self._networks)

    def _find_desired(self, name: str) -> DesiredSlice | None:
        return self._desired.get(self._networks.get(name, ""), {}).get(name)

    async def reconcile(self, name: str) -> Requeue | None:
        """Bring IPPool and Lease of this name to the desired state."""
        desired, owned = self._find_desired(name), self._ownership.refresh(name)
        if owned is None:
            if desired is not None and not desired.return_reason and self._may_create(name):
                await self._create(desired)
        elif desired is not None:
            return await self._update(desired, owned)
        elif owned.network in self._desired and owned.network not in self._assigning:
            return await self._reclaim(owned)
        return None

    def _may_create(self, name: str) -> bool:
        return self._may_assign() and self._networks[name] not in self._outdated

    # Desired slices

    async def _update(self, desired: DesiredSlice, owned: OwnedSlice) -> Requeue | None:
        if owned.node_uid != desired.node_uid:
            return await self._transfer(desired, owned)
        if desired.return_reason and not owned.is_held:
            await self._delete_unheld(owned)
            return None
        if owned.lease_state is LeaseState.RETURNED and self._may_assign():
            # before the inventory is complete a restored API server may show another Lease at this very version
            await self._delete(self._ownership.leases, self._ownership.leases.get(owned.name))
        await self._patch_metadata(desired)
        if owned.is_held or self._may_assign():
            await self._create(desired)
        await self._confirm(desired)
        return None

    async def _confirm(self, desired: DesiredSlice) -> None:
        """Confirm the agent's acknowledgement, unless another node may use the addresses."""
        owned, lease = self._ownership.get(desired.name), self._ownership.leases.get(desired.name)
        if owned is None or lease is None or owned.lease_state is not LeaseState.ACKNOWLEDGED:
            return
        known = owned.reported or self._may_assign()
        returning = bool(desired.return_reason)
        current = returning or self._find_desired(owned.name) == desired
        if known and current and not desired.conflicting and not self._is_blocked(owned, returning=returning):
            confirmed = {CONFIRMED_ANNOTATION: owned.acknowledgement}
            self._ownership.leases.put(await self._patch(LEASES, lease, {}, confirmed))

    def _is_blocked(self, owned: OwnedSlice, *, returning: bool) -> bool:
        """Return whether its addresses may be in use under another name: of its own node, or if returning, of any.

        An agent does not assign an address twice of what it knows. So what it has beside a slice that it returns does
        not block, nor what it reports as lost.
        """
        others = self._ownership.by_network(owned.network) if returning else self._ownership.by_node(owned.node)
        rivals = (each for each in others if each.name != owned.name and each.network == owned.network)
        return any(
            each.slice.range.overlaps(owned.slice.range)
            and (each.shown_in_use and not returning if each.node_uid == owned.node_uid else each.in_use)
            for each in rivals
        )

    async def _create(self, desired: DesiredSlice) -> None:
        """Create the IPPool, and then the Lease that assigns it; nothing for a conflicting slice."""
        if desired.conflicting:
            return
        pools, name = self._ownership.pools, desired.name
        pool = pools.get(name)
        if pool is None or not pool.metadata.uid:
            await self._create_pool(build_pool(desired, namespace=self._deps.namespace))
        elif NODE_UID_LABEL not in pool.metadata.labels:  # of a Whereabouts plugin
            pools.put(await self._patch(IP_POOLS, pool, desired.labels, desired.annotations))
        pool, lease = pools.get(name), self._ownership.leases.get(name)
        current = bool(desired.return_reason) or self._find_desired(name) == desired  # a node holds what it returns
        if pool and lease is None and current and _has_metadata(pool, desired.labels, desired.annotations):
            await self._create_lease(desired)

    async def _create_pool(self, pool: IPPool) -> None:
        pools = self._ownership.pools
        pools.put(pool)  # counts as owned whatever the outcome of the request
        try:
            pools.put(await self._kube.create(IP_POOLS, pool))
        except ApiAlreadyExists:
            pools.put(await self._kube.get(IP_POOLS, pool.metadata.name, namespace=self._deps.namespace))
        except ApiError:
            pools.drop_overlay(pool.metadata.name)
            raise

    async def _create_lease(self, desired: DesiredSlice) -> None:
        lease = build_lease(desired, namespace=self._deps.namespace)
        try:
            created = await self._kube.create(LEASES, lease)
        except ApiAlreadyExists:
            created = await self._kube.get(LEASES, lease.metadata.name, namespace=self._deps.namespace)
            if NODE_UID_LABEL not in created.metadata.labels:
                created = await self._patch(LEASES, created, desired.labels, lease.metadata.annotations)
        self._ownership.leases.put(created)

    async def _patch_metadata(self, desired: DesiredSlice) -> None:
        """Update labels and annotations of IPPool and Lease, including the request to return the slice."""
        name, annotations = desired.name, {**desired.annotations, RETURN_ANNOTATION: desired.return_reason or None}
        pool, lease = self._ownership.pools.get(name), self._ownership.leases.get(name)
        if pool is not None and pool.metadata.uid and not _has_metadata(pool, desired.labels, annotations):
            self._ownership.pools.put(await self._patch(IP_POOLS, pool, desired.labels, annotations))
        if lease is not None and not _has_metadata(lease, desired.labels, desired.lease_annotations):
            self._ownership.leases.put(await self._patch(LEASES, lease, desired.labels, desired.lease_annotations))

    async def _transfer(self, desired: DesiredSlice, owned: OwnedSlice) -> Requeue | None:
        """Transfer a slice to a Node that was registered again in the same boot; decided on a quorum read."""
        try:
            node = await quorum_get(self._kube, NODES, owned.node, cache=self._deps.nodes)
        except ApiNotFound:
            return None
        if node.metadata.uid != desired.node_uid or not owned.belongs_to(node):
            return Requeue(after=CACHE_DELAY)
        await self._patch_metadata(desired)
        return None

    async def _patch(
        self, kind: Kind[T], obj: T, labels: Mapping[str, str], annotations: Mapping[str, str | None]
    ) -> T:
        patch = {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}}
        at = {"namespace": self._deps.namespace, "precondition": obj.metadata.resource_version}
        return await self._kube.merge_patch(kind, obj.metadata.name, patch, **at)

    # Slices that are not desired

    async def _reclaim(self, owned: OwnedSlice) -> Requeue | None:
        """Delete a slice that is not held, and ask for the return of one that is. Node GC handles deleted Nodes."""
        node = self._deps.nodes.get(owned.node)
        pool = self._ownership.pools.get(owned.name)
        if owned.has_pool and (pool is None or not pool.metadata.uid):
            await self._resolve_creation(owned.name)
        elif not owned.is_held:
            await self._delete_unheld(owned)
        elif node is not None and owned.belongs_to(node):
            slice_ = PoolIdentifier(range=owned.slice, network=owned.network, node=owned.node)
            uid, reason = node.metadata.uid, UNWANTED
            unwanted = DesiredSlice(identifier=slice_, node_uid=uid, range=owned.range, return_reason=reason)
            return await self._update(unwanted, owned)
        return None

    async def _resolve_creation(self, name: str) -> None:
        """Find out whether an IPPool was created whose request had no response."""
        try:
            self._ownership.pools.put(await self._kube.get(IP_POOLS, name, namespace=self._deps.namespace))
        except ApiNotFound:
            self._ownership.pools.drop_overlay(name)

    async def _delete_unheld(self, owned: OwnedSlice) -> None:
        if self._may_assign():
            await self.delete(owned)

    async def delete(self, owned: OwnedSlice, *, still_due: Callable[[], Awaitable[bool]] | None = None) -> bool:
        """Delete the Lease, so that no agent takes it any more, and if it is still due the IPPool."""
        pool = self._ownership.pools.get(owned.name)
        await self._delete(self._ownership.leases, self._ownership.leases.get(owned.name))
        if still_due is not None and not await still_due():
            return False
        await self._delete(self._ownership.pools, pool)
        return True

    async def _delete(self, cache: WriteThroughCache[T], obj: T | None) -> None:
        if obj is None:
            return
        self.deleted.add(obj.metadata.uid)
        asyncio.get_running_loop().call_later(DELETED_TTL, self.deleted.discard, obj.metadata.uid)
        await cache.delete(self._kube, obj)


def _has_metadata(obj: KubeObject, labels: Mapping[str, str], annotations: Mapping[str, str | None]) -> bool:
    meta = obj.metadata
    return all(meta.labels.get(each) == value for each, value in labels.items()) and all(
        meta.annotations.get(each) == value for each, value in annotations.items()
    )

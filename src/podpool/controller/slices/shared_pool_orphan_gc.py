"""Orphan GC of shared pools: releases allocations and reservations of deleted or finished Pods.

Invariant: what is released was there, and its Pod was not, in two quorum reads at least a minute apart. The patch tests
the allocation that was read, and a reservation is deleted by its UID. If caches show nothing suspicious, nothing else
is read.
"""

import asyncio

from podpool.api.builtin import FINISHED, PODS
from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS
from podpool.controller.deps import SliceDeps
from podpool.controller.slices.slice_index import SliceIndex
from podpool.core.errors import PodpoolError
from podpool.core.two_observations import OBSERVATION_INTERVAL
from podpool.kube.errors import ApiConflict, ApiInvalid, ApiNotFound
from podpool.runtime.logging import get_logger
from podpool.whereabouts.ippool import allocation_patch
from podpool.whereabouts.orphan_gc import (
    GcSnapshot,
    ObservedPod,
    OrphanedEntry,
    orphaned_entries,
    orphaned_reservations,
    referenced_pods,
)

log = get_logger(__name__)


class SharedPoolOrphanGC:
    """Scans shared pools every minute."""

    def __init__(self, deps: SliceDeps, index: SliceIndex) -> None:
        self._deps = deps
        self._kube = deps.kube
        self._index = index
        self._last: GcSnapshot | None = None

    async def run(self) -> None:
        """Scan until cancelled."""
        while True:
            with self._deps.metrics.measure("orphan_gc"):
                try:
                    await self.scan()
                except PodpoolError as error:
                    self._deps.metrics.errors.labels("orphan_gc").inc()
                    log.info("orphan GC of shared pools failed, retrying", error=error)
            await asyncio.sleep(OBSERVATION_INTERVAL)

    async def scan(self) -> None:
        """Read a snapshot, and release what it and the last one show as orphaned."""
        if not await self._has_candidates():
            self._last = None
            return
        first, second = self._last, await self._read()
        self._last = second
        if first is None:
            return
        orphans = orphaned_entries(first, second)
        for name in dict.fromkeys(each.pool for each in orphans):
            await self._release(name, [each for each in orphans if each.pool == name])
        for reservation in orphaned_reservations(first, second):
            await self._delete_reservation(reservation.metadata.name, reservation.metadata.uid)

    async def _has_candidates(self) -> bool:
        """Return whether caches show an allocation or a reservation without a running Pod."""
        reserved = await self._kube.list(IP_RESERVATIONS, namespace=self._deps.namespace, cached=True)
        referenced = referenced_pods(self._index.unowned_pools.values(), reserved.items)
        if not referenced:
            return False
        pods = (await self._kube.list(PODS, cached=True)).items
        return not referenced <= {pod.key for pod in pods if pod.status.phase not in FINISHED}

    async def _read(self) -> GcSnapshot:
        """Read a snapshot with quorum reads; Pods last, so that every allocation in it is older than the Pods."""
        at, namespace = asyncio.get_running_loop().time(), self._deps.namespace
        pools = (await self._kube.list(IP_POOLS, namespace=namespace)).items
        reservations = (await self._kube.list(IP_RESERVATIONS, namespace=namespace)).items
        pods = (await self._kube.list(PODS)).items
        return GcSnapshot(
            at=at,
            pools={each.metadata.name: each for each in pools},
            reservations={each.metadata.name: each for each in reservations},
            pods={pod.key: ObservedPod(finished=pod.status.phase in FINISHED) for pod in pods},
        )

    async def _release(self, name: str, orphans: list[OrphanedEntry]) -> None:
        """Remove allocations from a pool in one patch; one by one if one of them has changed."""
        try:
            patch = allocation_patch(each.change for each in orphans)
            pool = await self._kube.json_patch(IP_POOLS, name, patch, namespace=self._deps.namespace)
        except (ApiInvalid, ApiConflict, ApiNotFound) as error:
            log.info("IPPool changed meanwhile, allocations of deleted Pods not released yet", pool=name, error=error)
            if len(orphans) > 1:
                for each in orphans:
                    await self._release(name, [each])
            return
        log.info("allocations of deleted Pods released from a shared IPPool", pool=name, count=len(orphans))
        self._deps.metrics.orphans.labels("allocation").inc(len(orphans))
        self._deps.events.orphans_released(pool, count=len(orphans))

    async def _delete_reservation(self, name: str, uid: str) -> None:
        try:
            await self._kube.delete(IP_RESERVATIONS, name, namespace=self._deps.namespace, uid=uid)
        except (ApiConflict, ApiNotFound):
            return
        self._deps.metrics.orphans.labels("reservation").inc()

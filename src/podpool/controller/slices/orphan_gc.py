"""Entries and reservations of Pods that are gone, in pools that all nodes share.

What must hold: what is released was there, and its Pod was not, in two consistent looks at least a minute apart; the
patch tests the entry that was seen, a reservation is deleted by its UID. Where nothing is suspicious by what a cache
shows, nothing else is read.
"""

import asyncio
import logging

from podpool.api.builtin import FINISHED, PODS
from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS
from podpool.controller.slices.deps import SliceDeps
from podpool.controller.slices.ownership import SliceOwnership
from podpool.core.errors import PodpoolError
from podpool.kube.errors import ApiConflict, ApiInvalid, ApiNotFound
from podpool.whereabouts.ippool import allocation_patch
from podpool.whereabouts.orphan_gc import (
    MIN_INTERVAL,
    GcSnapshot,
    ObservedPod,
    OrphanedEntry,
    orphaned_entries,
    orphaned_reservations,
    referenced_pods,
)

_log = logging.getLogger(__name__)


class IPPoolOrphanGC:
    """Looks at shared pools every minute."""

    def __init__(self, ground: SliceDeps, claims: SliceOwnership) -> None:
        self._ground = ground
        self._kube = ground.kube
        self._claims = claims
        self._first: GcSnapshot | None = None

    async def run(self) -> None:
        """GcSnapshot now and then."""
        while True:
            with self._ground.metrics.working("sweep"):
                try:
                    await self.look()
                except PodpoolError as error:
                    self._ground.metrics.errors.labels("sweep").inc()
                    _log.info("shared pools are looked at later: %s", error)
            await asyncio.sleep(MIN_INTERVAL)

    async def look(self) -> None:
        """Note what seems to be left behind, and release what was left behind a minute ago already."""
        if not await self._is_suspicious():
            self._first = None
            return
        first, self._first = self._first, await self._read()
        if first is None:
            return
        second = self._first
        found = orphaned_entries(first, second)
        for name in dict.fromkeys(each.pool for each in found):
            await self._release(name, [each for each in found if each.pool == name])
        for reservation in orphaned_reservations(first, second):
            await self._unreserve(reservation.metadata.name, reservation.metadata.uid)

    async def _is_suspicious(self) -> bool:
        """Tell whether there is an entry or a reservation that could be released, and whose Pod is not to be seen."""
        reserved = await self._kube.list(IP_RESERVATIONS, namespace=self._ground.namespace, cached=True)
        named = referenced_pods(self._claims.strangers.values(), reserved.items)
        if not named:
            return False
        pods = (await self._kube.list(PODS, cached=True)).items
        return not named <= {pod.key for pod in pods if pod.status.phase not in FINISHED}

    async def _read(self) -> GcSnapshot:
        """GcSnapshot at everything on quorum reads, Pods last: whatever is found was there when they were looked for."""
        at, namespace = asyncio.get_running_loop().time(), self._ground.namespace
        pools = (await self._kube.list(IP_POOLS, namespace=namespace)).items
        reservations = (await self._kube.list(IP_RESERVATIONS, namespace=namespace)).items
        pods = (await self._kube.list(PODS)).items
        return GcSnapshot(
            at=at,
            pools={each.metadata.name: each for each in pools},
            reservations={each.metadata.name: each for each in reservations},
            pods={pod.key: ObservedPod(finished=pod.status.phase in FINISHED) for pod in pods},
        )

    async def _release(self, name: str, found: list[OrphanedEntry]) -> None:
        """Take entries out of a pool in one patch; one by one, when one of them is another's by now."""
        try:
            pool = await self._kube.json_patch(
                IP_POOLS, name, allocation_patch(each.change for each in found), namespace=self._ground.namespace
            )
        except (ApiInvalid, ApiConflict, ApiNotFound) as error:
            _log.info("pool %s has changed: %s", name, error)
            if len(found) > 1:
                for each in found:
                    await self._release(name, [each])
            return
        _log.warning("pool %s: %d entries of Pods that are gone are released", name, len(found))
        self._ground.metrics.mended.labels("entry").inc(len(found))
        self._ground.telling.swept(pool, entries=len(found))

    async def _unreserve(self, name: str, uid: str) -> None:
        try:
            await self._kube.delete(IP_RESERVATIONS, name, namespace=self._ground.namespace, uid=uid)
        except (ApiConflict, ApiNotFound):
            return
        self._ground.metrics.mended.labels("reservation").inc()

"""Slices of Nodes that are gone, also those that Whereabouts' own plugins took and nobody labelled.

What must hold: gone is decided on quorum reads that are made after the gone time, never on a cache: the Node's UID is
no more, no Node of that name reports the boot in which its agent took the slice, and while there is no Node of that
name no unfinished Pod is bound to it. It is asked once more after the Lease is deleted: who is back by then keeps its
slice, who comes later finds no Lease, and gives nothing. What has no label goes when it is empty.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import msgspec

from podpool.api.builtin import LEASES, NODES, Lease, Node
from podpool.api.whereabouts import IPPool
from podpool.controller.node_gc import AT_ONCE, nothing_bound, watch_over
from podpool.controller.slices.deps import SliceDeps
from podpool.controller.slices.nad_planner import NADPlanner
from podpool.controller.slices.ownership import OwnedSlice, SliceOwnership
from podpool.controller.slices.slice_reconciler import SliceReconciler
from podpool.core.errors import PodpoolError
from podpool.kube.errors import ApiNotFound
from podpool.kube.informer import quorum_get
from podpool.whereabouts.ippool_owner import identify_pool

_log = logging.getLogger(__name__)


class SliceNodeGC:
    """Watches over slices whose Node is not there."""

    def __init__(self, ground: SliceDeps, claims: SliceOwnership, offers: SliceReconciler, plans: NADPlanner) -> None:
        self._ground = ground
        self._claims = claims
        self._offers = offers
        self._plans = plans
        self._missed: dict[tuple[str, str], float] = {}
        """Nodes, by name and UID, with when each was first missed."""

    async def run(self) -> None:
        """Look now and then."""

        async def look() -> None:
            with self._ground.metrics.working("lost"):
                await self.look()

        await watch_over(self._ground.nodes, look, see=self._see, gone=self._ground.settings.common.node_gc_delay)

    def _see(self, node: Node) -> None:
        name = node.metadata.name
        if any(missed == name for missed, _ in self._missed):
            for claim in self._claims.of_node(name):
                if claim.belongs(node):
                    self._missed.pop((name, claim.uid), None)

    def forget(self) -> None:
        """Miss everybody anew: Nodes may be back that were seen to be gone."""
        self._missed.clear()

    async def look(self) -> None:
        """Note who is missed, and end the slices of those whose time is over."""
        now, nodes = asyncio.get_running_loop().time(), self._ground.nodes
        lost: dict[tuple[str, str], list[OwnedSlice]] = {}
        for claim in self._claims.values():
            if claim.held and not claim.belongs(nodes.get(claim.node)):
                lost.setdefault((claim.node, claim.uid), []).append(claim)
        left = {pool.metadata.name: node for pool, node in self._left()}
        missed = (*lost, *((node, "") for node in left.values()))
        self._missed = {each: self._missed.get(each, now) for each in missed}
        due = {each for each in missed if now - self._missed[each] >= self._ground.settings.common.node_gc_delay}
        works = [partial(self._try, lost[each]) for each in lost if each in due]
        works += [partial(self._try_left, name, node) for name, node in left.items() if (node, "") in due]
        for begin in range(0, len(works), AT_ONCE):
            await asyncio.gather(*(each() for each in works[begin : begin + AT_ONCE]))

    def _left(self) -> Iterator[tuple[IPPool, str]]:
        """Find the empty pools of slices that have no label, and whose node is not there."""
        known = self._plans.known()
        for pool in self._claims.strangers.values():
            place = None if pool.spec.allocations else identify_pool(pool, known)
            if place and place.node and place.node not in known.nodes and self._plans.has_slice(place):
                yield pool, place.node

    async def _try(self, claims: list[OwnedSlice]) -> None:
        ended = 0
        for claim in claims:
            try:
                ended += await self._end(claim)
            except PodpoolError as error:
                self._ground.metrics.errors.labels("lost").inc()
                _log.info("slice %s: not ended yet: %s", claim.name, error)
        if ended:
            node, uid = claims[0].node, claims[0].uid
            _log.warning("node %s (%s) is gone: %d slices of it are free", node, uid, ended)
            self._ground.metrics.mended.labels("slice").inc(ended)
            self._ground.telling.given_up(node=node, uid=uid, pools=ended)

    async def _try_left(self, name: str, node: str) -> None:
        try:
            if await self._end_left(name, node):
                _log.warning("node %s is gone: IPPool %s of it, which was empty, is deleted", node, name)
                self._ground.metrics.mended.labels("slice").inc()
        except PodpoolError as error:
            self._ground.metrics.errors.labels("lost").inc()
            _log.info("IPPool %s: not deleted yet: %s", name, error)

    async def _end_left(self, name: str, node: str) -> bool:
        """Delete a pool that is empty as it was looked at, and before it the Lease of its name."""
        pool = self._claims.pools.get(name)
        if pool is None or pool.spec.allocations or not await self._is_nowhere(node):
            return False
        with suppress(ApiNotFound):
            lease = await self._ground.kube.get(LEASES, name, namespace=self._ground.namespace)
            await self._claims.leases.end(self._ground.kube, lease)
        await self._claims.pools.end(self._ground.kube, pool)
        return True

    async def _is_nowhere(self, node: str) -> bool:
        """Tell whether there is no Node of a name, and no Pod bound to it."""
        try:
            await quorum_get(self._ground.kube, NODES, node, cache=self._ground.nodes)
        except ApiNotFound:
            return await nothing_bound(self._ground.kube, node)
        return False

    async def _end(self, claim: OwnedSlice) -> bool:
        current = self._claims.refresh(claim.name)
        if current is None or current.uid != claim.uid or not await self._is_gone(current):
            return False
        lease = self._claims.leases.get(claim.name)
        if await self._offers.withdraw(current, still=partial(self._is_gone, current)):
            self._claims.unsay(claim.name)
            return True
        if lease is not None:
            await self._put_back(lease)
        return False

    async def _is_gone(self, claim: OwnedSlice) -> bool:
        try:
            node = await quorum_get(self._ground.kube, NODES, claim.node, cache=self._ground.nodes)
        except ApiNotFound:
            return await nothing_bound(self._ground.kube, claim.node)
        unknown = claim.boot != "" and not node.boot_id
        return not unknown and not claim.belongs(node)

    async def _put_back(self, lease: Lease) -> None:
        """Make the Lease again, as it was: its machine came back while it was deleted."""
        meta = msgspec.structs.replace(lease.metadata, uid="", resource_version="", creation_timestamp=None)
        again = msgspec.structs.replace(lease, metadata=meta)
        self._claims.leases.note(await self._ground.kube.create(LEASES, again))

"""Orphan GC of slices: releases addresses that third parties allocated, and whose Pods are gone from the node.

No DEL is sent for an address that a third party allocated. It is released when two observations find that its Pod is
not on this node, that the Pod has sent an ADD since, or that its interface has an address by an ADD of this agent: a
Pod has one sandbox at a time.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator

from podpool.agent.deps import AgentDeps
from podpool.agent.records import SliceAddress
from podpool.agent.secondary.slice_ipam import SliceIPAM
from podpool.agent.secondary.slices import Slices
from podpool.agent.state import AgentState
from podpool.api.builtin import Pod
from podpool.core.two_observations import OBSERVATION_INTERVAL, TwoObservations
from podpool.kube.cache import ObjectCache


class SliceOrphanGC:
    """Releases orphaned addresses."""

    def __init__(self, deps: AgentDeps, state: AgentState, ipam: SliceIPAM, pods: ObjectCache[Pod]) -> None:
        self._deps = deps
        self._state = state
        self._ipam = ipam
        self._pods = pods
        self._observations: TwoObservations[SliceAddress] = TwoObservations()

    async def run(self) -> None:
        """Observe at an interval, until cancelled."""
        while True:
            await asyncio.sleep(OBSERVATION_INTERVAL)
            if self._pods.synced.is_set():
                self._observe(tuple(self._pods.values()))

    def _observe(self, pods: Collection[Pod]) -> None:
        waiting = self._ipam.waiting_pods
        candidates = orphan_candidates(self._state.slices, pods, waiting)
        orphans = self._observations.observe(candidates, now=self._deps.clock.boot())
        if orphans:
            addresses = ", ".join(each.address for each in orphans)
            self._deps.log.info(
                "slice addresses of Pods that no longer use them released", count=len(orphans), address=addresses
            )
        self._ipam.unassign(orphans)
        waiting.intersection_update(each.key for each in pods)


def orphan_candidates(slices: Slices, pods: Iterable[Pod], waiting: Collection[str]) -> Iterator[SliceAddress]:
    """Iterate over inferred addresses without a Pod. `waiting` are Pods whose ADD found no address."""
    present = {pod.key for pod in pods if pod.needs_address and pod.key not in waiting}
    served = {(each.podref, each.attachment.ifname) for _, each in slices.holders() if not each.inferred}
    for address, holder in slices.holders():
        gone = holder.podref not in present or (holder.podref, holder.attachment.ifname) in served
        if holder.inferred and gone:
            yield address

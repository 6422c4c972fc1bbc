"""GC of lost grants: those that sandboxes may use although the journal lost the record.

A lost grant is cleared by two observations (`core.two_observations`) that no Pod of the node shows its address, and
that every Pod is accounted for: it shows an address, has sent an ADD to this agent, or has an assignment. A Pod may
show its address only after its images are pulled; until then any lost grant may be its. Addresses of additional NCs are
never shown: they are cleared when every Pod has sent an ADD or has an assignment. A recorded assignment of a lost grant
is right when that Pod shows the address. Nothing is cleared while another agent of this node may assign it.
"""

import asyncio
from collections.abc import Iterable

from podpool.agent.deps import AgentDeps
from podpool.agent.pool import Pool
from podpool.agent.records import LostGrantsCleared
from podpool.agent.state import AgentState
from podpool.api.builtin import Pod
from podpool.core.two_observations import OBSERVATION_INTERVAL, TwoObservations
from podpool.kube.cache import ObjectCache


class LostGrantGC:
    """Clears lost grants; `added` are the keys of Pods that sent an ADD since the journal was lost."""

    def __init__(self, deps: AgentDeps, state: AgentState, pods: ObjectCache[Pod], added: set[str]) -> None:
        self._deps = deps
        self._state = state
        self._pods = pods
        self._added = added
        self._observations: TwoObservations[str] = TwoObservations()

    async def run(self) -> None:
        """Observe at the interval, until cancelled."""
        while True:
            await asyncio.sleep(OBSERVATION_INTERVAL)
            contested = self._deps.clock.boot() < self._state.contested_until
            if self._state.pool.lost and self._pods.synced.is_set() and not contested:
                self.collect()

    def collect(self) -> None:
        """Observe once, and clear what was observed for long enough."""
        pool, now = self._state.pool, self._deps.clock.boot()
        candidates = unused_lost_grants(pool, self._pods.values(), self._added)
        grants = self._observations.observe(candidates, now=now)
        if grants:
            self._state.write(LostGrantsCleared(grants=grants, at=now))
            addresses = ",".join(each.address for each in pool.grants.all() if each.id in grants)
            self._deps.log.info(
                "addresses lost with the journal are unused, cooling down", address=addresses, count=len(grants)
            )
            self._deps.changes.notify()


def unused_lost_grants(pool: Pool, pods: Iterable[Pod], added: set[str]) -> list[str]:
    """Return the lost grants that no Pod uses now, or whose recorded user shows the address."""
    known = added | {each.pod.key for each in pool.assigned.values()}
    running = [pod for pod in pods if pod.needs_address]
    unknown = [pod for pod in running if known.isdisjoint(pod.add_keys)]
    if any(not pod.status.pod_ips for pod in unknown):
        free = []
    else:
        # a Pod that sent an ADD shows the address of its earlier sandbox
        not_added = [pod for pod in running if added.isdisjoint(pod.add_keys)]
        shown = {each.ip for pod in not_added for each in pod.status.pod_ips}
        free = [each.id for each in pool.unassigned_lost() if each.address not in shown and not (each.nc and unknown)]
    shows = {(key, each.ip) for pod in running for each in pod.status.pod_ips for key in pod.add_keys}
    lost = [each for each in pool.assigned.values() if each.grant.id in pool.lost]
    return free + [each.grant.id for each in lost if (each.pod.uid, each.grant.address) in shows]

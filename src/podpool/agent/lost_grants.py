"""Recovery of the pool after a lost journal: finds out which grants no sandbox uses, and makes them assignable again.

A grant is lost if a sandbox may use it although the journal lost the record. It is cleared by two observations
(`core.two_observations`) that no Pod of the node shows its address, and that every Pod is accounted for: it shows an
address, has sent an ADD to this agent, or has an assignment. A Pod may show its address only after its images are
pulled; until then any lost grant may be its. Addresses of additional NCs are never shown: they are cleared when every
Pod has sent an ADD or has an assignment. A recorded assignment of a lost grant is right when that Pod shows the
address. Nothing is cleared while another agent of this node may assign it.

The sandbox of a force-deleted Pod may run on, and no Pod shows its address. So nothing is cleared before the runtime,
if there is one, has listed its sandboxes, nor while one of them is of no Pod of the node and has no assignment. The
lost grants then count as demand, so that new Pods get others. Without a runtime it is assumed that a sandbox ends with
its Pod.
"""

import asyncio
from collections.abc import Iterable, Mapping

from podpool.agent.deps import AgentDeps
from podpool.agent.pool import Pool
from podpool.agent.records import LostGrantsCleared
from podpool.agent.sandbox_gc import FOREIGN, RuntimeObservations
from podpool.agent.state import AgentState
from podpool.api.builtin import Pod
from podpool.core.two_observations import OBSERVATION_INTERVAL, TwoObservations
from podpool.kube.cache import ObjectCache

NOT_LISTED = (
    "journal was lost, addresses that may be in use are not assigned before the runtime lists its sandboxes; "
    "check --cri-socket"
)
PODLESS = (
    "journal was lost, addresses that may be in use are not assigned: sandboxes without a Pod may use them; stop these "
    "sandboxes"
)
MAX_LOGGED = 10
"""Sandboxes that a log line names."""


class LostGrantClearing:
    """Clears lost grants; `added` are the keys of Pods that sent an ADD since the journal was lost."""

    def __init__(
        self,
        deps: AgentDeps,
        state: AgentState,
        pods: ObjectCache[Pod],
        added: set[str],
        runtime: RuntimeObservations,
    ) -> None:
        self._deps = deps
        self._state = state
        self._pods = pods
        self._added = added
        self._runtime = runtime
        self._observations: TwoObservations[str] = TwoObservations()
        self._logged = ""

    async def run(self) -> None:
        """Observe at the interval, until cancelled."""
        while True:
            await asyncio.sleep(OBSERVATION_INTERVAL)
            if self._state.pool.lost:
                await self.collect()

    async def collect(self) -> None:
        """Observe once, and clear what was observed for long enough."""
        sandboxes = await self._runtime.list_sandboxes()
        pool, now = self._state.pool, self._deps.clock.boot()
        if not self._pods.synced.is_set() or now < self._state.contested_until:
            return
        before, self._state.lost_withheld = self._state.lost_withheld, not self._all_accounted_for(sandboxes)
        if before != self._state.lost_withheld:
            self._deps.changes.notify()
        withheld = self._state.lost_withheld
        candidates = () if withheld else unused_lost_grants(pool, self._pods.values(), self._added)
        grants = self._observations.observe(candidates, now=now)
        if grants:
            self._state.write(LostGrantsCleared(grants=grants, at=now))
            addresses = ",".join(each.address for each in pool.grants.all() if each.id in grants)
            self._deps.log.info(
                "addresses without a record since the journal was lost are unused, assigned again after the cooldown",
                address=addresses,
                count=len(grants),
            )
            self._deps.changes.notify()

    def _all_accounted_for(self, sandboxes: Mapping[str, str] | None) -> bool:
        """Return whether each sandbox of the runtime is of a Pod of the node, or has an assignment."""
        if not self._runtime.exists:
            return True
        podless = podless_sandboxes(sandboxes or {}, self._state.pool, self._pods.values())
        listed = sandboxes is not None and self._runtime.problem != FOREIGN
        problem = "" if listed and not podless else PODLESS if listed else NOT_LISTED
        if problem and problem != self._logged:
            fields = {"count": len(podless), "sandbox": ",".join(podless[:MAX_LOGGED])} if listed else {}
            self._deps.log.warning(problem, **fields)
        self._logged = problem
        return not problem


def podless_sandboxes(sandboxes: Mapping[str, str], pool: Pool, pods: Iterable[Pod]) -> list[str]:
    """Return the sandboxes, of these with their Pod UIDs, that are of no Pod of the node and have no assignment.

    A finished Pod counts: its sandbox has ended, and is listed as long as the Pod exists.
    """
    known = {key for pod in pods for key in pod.add_keys}
    assigned = {each.attachment.container_id for each in pool.assigned.values()}
    return sorted(sandbox for sandbox, uid in sandboxes.items() if uid not in known and sandbox not in assigned)


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

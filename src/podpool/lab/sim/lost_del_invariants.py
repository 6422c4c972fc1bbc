"""The invariants of sandboxes that end without a DEL.

A sandbox that lives keeps its address. One that ended without a DEL loses it within three minutes since its agent could
see that, in the Pods or in the runtime's list.
"""

import math

from podpool.agent.sandbox_gc import ADD_CHAIN_SECONDS
from podpool.lab.sim.address_use_oracle import AddressUse, Violation
from podpool.lab.sim.cluster import SimCluster, SimHost
from podpool.lab.sim.container_runtime import LostDel, SocketState

FOUND_SECONDS = 180.0
"""Seconds within which a lost DEL must be found."""


class Observation:
    """Since when an agent could observe something without interruption; infinite while it cannot."""

    def __init__(self) -> None:
        self.since = math.inf
        self._agent: object = None

    def record(self, agent: object, *, possible: bool, now: float) -> None:
        """Record whether an agent can observe it now."""
        if not possible:
            self.since = math.inf
        elif self._agent is not agent or self.since == math.inf:
            self.since = now
        self._agent = agent


class LostDelChecker:
    """Compares the assignments of agents with the sandboxes of their machines."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._pods: dict[str, Observation] = {}
        self._runtimes: dict[str, Observation] = {}
        self._podless: dict[str, float] = {}
        """Since when there is no Pod of a UID with a lost DEL."""
        cluster.checks.append(self._check)

    def _check(self) -> None:
        uses: dict[str, list[AddressUse]] = {}
        for use in self._cluster.oracle.uses():
            uses.setdefault(use.machine, []).append(use)
        for name, host in self._cluster.hosts.items():
            self._record_observations(name, host, uses.get(name, []))
            if is_serving(host) and not host.machine.journal_faults:
                self._check_living(name, host, uses.get(name, []))
                self._check_lost(name, host)

    def _check_living(self, name: str, host: SimHost, uses: list[AddressUse]) -> None:
        assigned = _assigned(host) if uses else {}
        for use in uses:
            if assigned.get(use.address) != use.sandbox:
                detail = f"the agent of {name} released {use.address}, which sandbox {use.sandbox} of {use.pod} uses"
                raise Violation("living sandbox", detail)

    def _record_observations(self, name: str, host: SimHost, uses: list[AddressUse]) -> None:
        cluster, now = self._cluster, self._cluster.loop.time()
        partitioned = cluster.network.is_partitioned(name, cluster.api.name)
        held_back = bool(host.agent and host.agent.lost_dels_held_back)
        serving = is_serving(host) and not held_back
        connected = serving and cluster.api.up and not partitioned
        self._pods.setdefault(name, Observation()).record(host.agent, possible=connected, now=now)
        right = cluster.config.runtime_socket and host.runtime.socket is SocketState.RUNTIME
        lists_known = serving and right and host.runtime.lists_any(use.sandbox for use in uses)
        self._runtimes.setdefault(name, Observation()).record(host.agent, possible=lists_known, now=now)

    def _check_lost(self, name: str, host: SimHost) -> None:
        if not host.runtime.lost:
            return
        now, present = self._cluster.loop.time(), self._cluster.pods_on(name)
        holding = {*_assigned(host).values()}
        for sandbox, lost in host.runtime.lost.items():
            if lost.pod_uid in present:
                self._podless.pop(lost.pod_uid, None)
            else:
                self._podless.setdefault(lost.pod_uid, now)
            if sandbox in holding and now - self._visible_at(name, lost) > FOUND_SECONDS:
                detail = f"{name}: sandbox {sandbox} ended at {lost.at:.0f} without a DEL, and still has its address"
                raise Violation("lost DEL", detail)

    def _visible_at(self, name: str, lost: LostDel) -> float:
        """Return since when the agent could see the loss; infinite while it cannot."""
        by_pod = max(self._pods[name].since, lost.at, self._podless.get(lost.pod_uid, math.inf))
        runtime_since = self._runtimes[name].since
        interval = self._cluster.config.settings.sandbox_gc_interval
        was_listed = max(runtime_since, lost.listed_at) + interval < lost.at
        return min(by_pod, max(runtime_since, lost.at if was_listed else lost.at + ADD_CHAIN_SECONDS))


def is_serving(host: SimHost) -> bool:
    """Return whether the agent of a machine runs, and has read its journal."""
    process, agent = host.agent_process, host.agent
    runs = process is not None and process.alive and process.backlog is None
    return bool(runs and agent and agent.pool.boot_id == host.machine.boot_id)


def _assigned(host: SimHost) -> dict[str, str]:
    """Return the sandbox of each assigned address."""
    assigned = host.agent.pool.assigned.values() if host.agent else ()
    return {each.grant.address: each.attachment.container_id for each in assigned}

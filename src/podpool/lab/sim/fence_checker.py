"""Checks that a fence does not stay closed while a confirmation could open it."""

from collections.abc import Callable

from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.cluster import SimCluster

CONFIRM_SECONDS = 5.0
"""Seconds within which an agent confirms a Node for an ADD, when the API server can answer."""


class FenceChecker:
    """Records since when the quorum reads of each agent would confirm its Node.

    Checks are up to five seconds apart: between one that finds it confirmable and one before that does not, it became
    confirmable at an unknown time, and the later one counts.
    """

    def __init__(self, cluster: SimCluster, *, identified: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._identified = identified
        """Whether confirming reads that are sent now identify a machine."""
        self._unconfirmable: dict[str, float] = {}
        """When each machine last could not be confirmed."""
        self._confirmable: set[str] = set()
        """The machines that could be, at the last check."""
        cluster.oracle.on_refuse.append(self._on_refuse)

    def record(self, name: str, *, identified: bool) -> None:
        """Record whether the quorum reads of an agent would be sent, answered, and identify its machine."""
        cluster, host, now = self._cluster, self._cluster.hosts[name], self._cluster.loop.time()
        process = host.agent_process
        runs = process is not None and process.alive and process.backlog is None
        network, api = cluster.network, cluster.api
        reachable = api.up and not network.is_partitioned(name, api.name)
        if name not in self._confirmable or not (runs and reachable and identified):
            self._unconfirmable[name] = now
        if runs and reachable and identified:
            self._confirmable.add(name)
        else:
            self._confirmable.discard(name)
        if not network.reliable:
            self._unconfirmable[name] = now + 2 * network.conditions.slow_delay  # the last slow messages

    def _on_refuse(self, name: str, reason: str) -> None:
        """Check that no ADD is refused at a closed fence that a confirmation could have opened meanwhile."""
        if name not in self._cluster.hosts or "is fenced" not in reason:
            return
        self.record(name, identified=self._identified(name))
        confirmable = self._cluster.loop.time() - self._unconfirmable[name]
        if confirmable > CONFIRM_SECONDS:
            detail = f"{name} refused an ADD, and the API server could have confirmed its Node for {confirmable:.0f} s"
            raise Violation("fence reopens", f"{detail}: {reason}")

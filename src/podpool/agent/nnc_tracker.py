"""The newest NNC of this node from any source, and what it changes in the agent's state.

A watch may be late, so an older resourceVersion is ignored; a quorum read is accepted, unless something newer was seen
while it was in flight. Which NC is this node's is decided by quorum reads alone (`node_confirmation`). A grant in
`ipsNotInUse` is released for good, also if a third party wrote it there: no Pod gets it again.
"""

import asyncio
from collections.abc import Sequence

from podpool.agent.deps import AgentDeps
from podpool.agent.duplicate_agent import DuplicateAgent
from podpool.agent.fence import own_report
from podpool.agent.network_container import unsupported_reason
from podpool.agent.records import NCAccepted, NCRemoved, ReleasePending
from podpool.agent.state import AgentState
from podpool.api.azure import AgentReport, NetworkConfigStatus, NetworkContainer, NodeNetworkConfig
from podpool.api.meta import is_older

ANSWER_TIMEOUT = 1.0
"""Seconds after which an unchanged status counts as the answer: it does not change when it was short before."""


class NNCTracker:
    """The newest NNC that the agent has seen."""

    def __init__(self, deps: AgentDeps, state: AgentState) -> None:
        self.newest: NodeNetworkConfig | None = None
        self.reported_version = 0
        """The highest version ever seen in our annotation."""
        self._deps = deps
        self._log = deps.log
        self._state = state
        self._inherited: AgentReport | None = None
        self._sent: tuple[AgentReport, AgentReport] | None = None
        """Our last report, and the one before our first; its response may be lost."""
        self._duplicate = DuplicateAgent(deps, state)
        self._requested: tuple[float, NetworkConfigStatus] | None = None
        self._logged: set[str] = set()
        """Grants of the pool that were logged as unusable or revoked."""

    @property
    def resource_version(self) -> str:
        """The resourceVersion for a precondition."""
        return self.newest.metadata.resource_version if self.newest else ""

    def observe(self, nnc: NodeNetworkConfig | None, *, quorum: bool = False) -> None:
        """Apply an NNC; with `quorum` whatever its resourceVersion, because a quorum read returned it."""
        restored = bool(nnc and self.newest and _is_older(nnc, self.newest))
        if nnc and restored:
            if not quorum:
                return
            self._log.warning(
                "NNC has an older resourceVersion, the API server was restored from a backup; using the restored NNC",
                resource_version=nnc.metadata.resource_version,
            )
        self.newest = nnc
        if nnc:
            self._duplicate.observe(nnc, restored=restored)
        nc = self.own_nc()
        if nnc and nc and not unsupported_reason(nc):
            self.reported_version = max(self.reported_version, own_report(nnc).version)
            if self._state.pool.accepts(nc):
                self._accept(nc)
            self._accept_additional(nnc.status.network_containers)
            self._accept_releases(nnc.spec.pending_release)

    def observe_response(self, nnc: NodeNetworkConfig, *, since: NodeNetworkConfig | None) -> None:
        """Apply a response, unless the NNC changed while it was in flight: the server may be another by now."""
        if self.newest is since:
            self.observe(nnc, quorum=True)

    def inherited_report(self, nnc: NodeNetworkConfig) -> AgentReport:
        """Return the annotation of an NNC as it was before this agent first wrote it."""
        if self._inherited is not None:
            return self._inherited
        shown = own_report(nnc)
        return self._sent[1] if self._sent and self._sent[0] == shown else shown

    def report_sent(self, report: AgentReport) -> None:
        """Keep what a report replaces if it is written, whether or not a response arrives."""
        if self._inherited is None and self.newest:
            self._sent = report, self.inherited_report(self.newest)

    def report_written(self) -> None:
        """Keep the annotation that our first report replaced."""
        if self._sent:
            self._inherited = self._sent[1]

    def own_nc(self) -> NetworkContainer | None:
        """Return our own NC in the newest NNC."""
        ncs = self.newest.status.network_containers if self.newest else ()
        return next((each for each in ncs if each.id == self._state.pool.adopted_nc), None)

    def refused_reason(self) -> str | None:
        """Return why none of the NCs in the newest NNC can be served; None if one can, or there is none."""
        reasons = [unsupported_reason(each) for each in (self.newest.status.network_containers if self.newest else ())]
        own = self.own_nc()
        if own:
            return unsupported_reason(own)
        return reasons[0] if reasons and None not in reasons else None

    def request_written(self) -> None:
        """Keep the status at the time of a request: only another one can answer it."""
        if self.newest:
            self._requested = (asyncio.get_running_loop().time(), self.newest.status)

    def answer_due(self) -> float | None:
        """Return until when an unchanged status is no answer, by the loop's time; None when it is one."""
        if self._requested is None or self.newest is None:
            return None
        at, status = self._requested
        pending = status == self.newest.status and asyncio.get_running_loop().time() < at + ANSWER_TIMEOUT
        return at + ANSWER_TIMEOUT if pending else None

    def answered_short(self) -> bool | None:
        """Return whether the status granted less than the last request; None before it was answered."""
        nc = self.own_nc()
        if self.newest is None or nc is None or self.answer_due() is not None:
            return None
        ours = (nc.id, *self._state.pool.additional_ncs)
        shown = [each for each in self.newest.status.network_containers if each.id in ours]
        usable = sum(len(each.ip_assignments) for each in shown) - len(self._state.pool.pending_release)
        return nc.status == "NCUpdateSubnetFullError" and usable < self.newest.spec.requested

    def _accept_additional(self, shown: Sequence[NetworkContainer]) -> None:
        """Apply additional NCs, except those that are not supported."""
        pool = self._state.pool
        others = {
            each.id: each for each in shown if each.id not in ("", pool.adopted_nc) and not unsupported_reason(each)
        }
        for gone in [each for each in pool.additional_ncs if each not in others]:
            self._state.write(NCRemoved(nc=gone))
            self._log.info("additional network container left the NNC, no further Pod gets its addresses", nc=gone)
        for nc in others.values():
            if pool.accepts_additional(nc):
                self._accept(nc)

    def _accept(self, nc: NetworkContainer) -> None:
        pool = self._state.pool
        if self.newest:
            self._duplicate.before_accept(self.newest, nc)
        before = {grant.id: grant.address for grant in pool.grants.all()}
        self._state.write(NCAccepted(nc=nc, at=self._deps.clock.boot()))
        after = {grant.id: grant.address for grant in pool.grants.all()}
        self._log_difference("grants added", {key: after[key] for key in after.keys() - before.keys()}, nc)
        self._log_difference("grants returned", {key: before[key] for key in before.keys() - after.keys()}, nc)
        revoked = {grant: each for grant, each in pool.assigned.items() if each.revoked}
        self._logged &= pool.unusable.keys() | revoked.keys()
        for grant, reason in pool.unusable.items():
            if self._is_first(grant):
                self._log.warning(
                    "NNC status has an unusable address, no Pod gets it; correct what writes it",
                    nc=nc.id,
                    grant=grant,
                    reason=reason,
                )
        for grant, assignment in revoked.items():
            if self._is_first(grant):
                self._log.warning(
                    "NNC no longer lists an address in use; its Pod keeps it, no later Pod gets it",
                    nc=nc.id,
                    pod=assignment.pod.qualified_name,
                    address=assignment.grant.address,
                    sandbox=assignment.attachment.container_id,
                )

    def _accept_releases(self, grants: tuple[str, ...]) -> None:
        pool = self._state.pool
        revoked = {grant for grant, each in pool.assigned.items() if each.revoked}
        released = tuple(grant for grant in grants if pool.holds(grant) and grant not in revoked)
        if released:
            addresses = {grant.id: grant.address for grant in pool.grants.all()}
            self._state.write(ReleasePending(grants=released, version=pool.version, boot_id=pool.boot_id))
            self._log.warning(
                "a third party released grants of this node (ipsNotInUse), no Pod gets them again",
                address=",".join(addresses[each] for each in released),
                count=len(released),
            )

    def _log_difference(self, event: str, addresses: dict[str, str], nc: NetworkContainer) -> None:
        if addresses:
            joined = ",".join(sorted(addresses.values()))
            self._log.info(event, nc=nc.id, version=nc.version, address=joined, count=len(addresses))

    def _is_first(self, grant: str) -> bool:
        """Return whether nothing was logged about a grant yet."""
        first = grant not in self._logged
        self._logged.add(grant)
        return first


def _is_older(nnc: NodeNetworkConfig, than: NodeNetworkConfig) -> bool:
    return is_older(nnc.metadata.resource_version, than.metadata.resource_version)

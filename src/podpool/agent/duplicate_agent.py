"""Two agents with two journals on one node: the one with the newer journal yields.

The lock of the state directory does not keep an agent from starting with another directory, for example one run by
systemd beside the DaemonSet. Both would patch the NNC in turn, and each assign what the other has assigned.

The report in the NNC names boot and journal. An agent that finds the report of another journal of this boot cannot
know whether that agent still runs, so it writes its own. If the report of an older journal replaces it, that agent
runs, and this one yields: it assigns no new address and writes nothing, until it tries once more. The agent with the
older journal never yields, so the two settle after one patch each.

What the other may assign counts as lost (`lost_grants`): grants that are first seen beside its report, and
all free grants of an agent that is fenced, because it yields or because it could not read the report for so long. No
lost grant is cleared before the other, if it cannot read the NNC, is fenced.
"""

from collections.abc import Iterable

from podpool.agent.deps import AgentDeps
from podpool.agent.fence import own_report
from podpool.agent.records import CooldownForced
from podpool.agent.state import AgentState
from podpool.api.azure import NODE_NETWORK_CONFIGS, NetworkContainer, NodeNetworkConfig
from podpool.kube.events import object_reference

YIELD_TIME = 600.0
"""Seconds for which an agent yields: two patches in this time while both run, and soon after the other was stopped."""


def other_journal(nnc: NodeNetworkConfig, state: AgentState) -> str:
    """Return the journal of another agent that reports for this boot; empty if none does."""
    report, own = own_report(nnc), state.journal_id
    same_boot = bool(own) and report.boot_id == state.pool.boot_id
    return report.journal if same_boot and report.journal != own else ""


class DuplicateAgent:
    """Decides from each NNC whether this agent yields, which suspends its fences."""

    def __init__(self, deps: AgentDeps, state: AgentState) -> None:
        self._deps = deps
        self._state = state
        self._reported = False
        """Our own report was in the NNC; if another follows, it was written since."""
        self._logged = ""

    def observe(self, nnc: NodeNetworkConfig, *, restored: bool) -> None:
        """Compare the report of an NNC with ours; a `restored` API server shows a report from before ours."""
        own, other = self._state.journal_id, other_journal(nnc, self._state)
        replaced = bool(other) and self._reported and not restored
        self._reported = not other and own_report(nnc).journal == own
        if replaced:
            self._other_runs(nnc, other)
        if other and not self._state.fence.is_open():
            self._lose(grant.id for grant in self._state.pool.grants.free())

    def before_accept(self, nnc: NodeNetworkConfig, nc: NetworkContainer) -> None:
        """Beside the report of the other, new grants may be in use by it."""
        if other_journal(nnc, self._state):
            known = {grant.id for grant in self._state.pool.grants.all()}
            self._lose(each.name for each in nc.ip_assignments if each.name not in known)

    def _other_runs(self, nnc: NodeNetworkConfig, other: str) -> None:
        """Yield if our journal is newer; log the other agent once."""
        own, now, first = self._state.journal_id, self._deps.clock.boot(), other != self._logged
        self._logged = other
        self._state.contested_until = now + self._deps.settings.fence
        if own < other:
            if first:
                event = "another agent reports for this node, with a newer journal; it yields, stop it"
                self._deps.log.warning(event, journal=own, other_journal=other)
            return
        reason = yield_reason(self._deps.node, own, other)
        self._state.contested_until += YIELD_TIME
        for fence in (self._state.fence, self._state.node_fence):
            fence.suspend(reason, until=now + YIELD_TIME)
        if first:
            self._report(nnc, reason)

    def _report(self, nnc: NodeNetworkConfig, reason: str) -> None:
        self._deps.log.error("another agent runs on this node, this one assigns no new address", reason=reason)
        if self._deps.recorder:
            regarding = object_reference(NODE_NETWORK_CONFIGS, nnc)
            self._deps.recorder.record(regarding, reason="DuplicateAgent", action="Yielded", note=reason, warning=True)

    def _lose(self, grants: Iterable[str]) -> None:
        lost = tuple(each for each in grants if each not in self._state.pool.lost)
        if lost:
            self._state.write(CooldownForced(at=self._deps.clock.boot(), lost=lost))


def yield_reason(node: str, own: str, other: str) -> str:
    """Return that this agent yields, and what to do."""
    return (
        f"another agent of node {node} runs with another state directory, and has the older journal (created {other}, "
        f"this one's {own}), so this one assigns no new address: stop one of them; a node runs one agent (--state)"
    )

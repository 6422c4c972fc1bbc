"""Keeps the node's request in line with its demand: decides on every change, and when a decision is due again.

One patch at a time, with a resourceVersion precondition: it was decided on the object that it changes. Pending releases
are synced before they are sent, with boot ID and highest version: a patch that was sent may arrive at any later time.
What another writer changed is corrected (`nnc_correction_pace`).
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec

from podpool.agent.deps import MIN_WAIT, NAMESPACE, AgentDeps, event_or_timeout
from podpool.agent.nnc_correction_backoff import CorrectionPace
from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.node_condition import NodeConditionReporter
from podpool.agent.node_confirmation import NodeConfirmation
from podpool.agent.records import ReleasePending
from podpool.agent.scaling_decision import NNCPatch, ScalingDecision, ScalingInputs, agent_report, decide
from podpool.agent.scaling_input_collector import InputCollector
from podpool.agent.state import AgentState
from podpool.api.azure import AGENT_ANNOTATION, NODE_NETWORK_CONFIGS, AgentReport, NetworkConfigSpec
from podpool.core.cooldown_levels import MAX_COOLDOWN
from podpool.core.debounce import DebounceState
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiConflict, ApiError, ApiNotFound
from podpool.runtime.transport import Unreachable

DECISION_INTERVAL = 0.02
"""Seconds between two decisions: a decision costs more than an ADD, and one covers all changes since the last."""


class PoolMonitor:
    """Scales the pool through the NNC."""

    def __init__(
        self,
        deps: AgentDeps,
        state: AgentState,
        nnc: NNCTracker,
        inputs: InputCollector,
        condition: NodeConditionReporter,
        confirmation: NodeConfirmation,
    ) -> None:
        self._deps = deps
        self._log = deps.log
        self._state = state
        self._nnc = nnc
        self._inputs = inputs
        self._condition = condition
        self._confirmation = confirmation
        self._place = deps.rng.random()
        self._debounce = DebounceState()
        self._changed = asyncio.Event()
        self._backoff = Backoff(rng=deps.rng, base=0.2, maximum=15.0)
        self._corrections = CorrectionPace(deps)
        self._exhausted: bool | None = None
        self.exhaustion_changes: dict[bool, int] = {}
        """How often the subnet became exhausted, and no longer exhausted."""

    def on_change(self) -> None:
        """Decide again."""
        self._changed.set()

    async def run(self) -> None:
        """Decide and patch until cancelled."""
        while True:
            self._changed.clear()
            next_at = await self._reconcile()
            await asyncio.sleep(DECISION_INTERVAL)
            await event_or_timeout(self._changed, asyncio.timeout_at(next_at))

    async def _reconcile(self) -> float | None:
        """Decide once, and patch if needed; return when to decide again, by the loop's time."""
        suspended_until = self._state.fence.suspended_until
        if suspended_until is not None:
            return asyncio.get_running_loop().time() + max(suspended_until - self._deps.clock.boot(), MIN_WAIT)
        inputs, version = self._inputs.collect(), self._nnc.resource_version
        if inputs is None:
            report = self._inputs.identity_report()
            return None if report is None else await self._try(self._write({}, report, version=version))
        self._publish(inputs)
        now = asyncio.get_running_loop().time()
        parameters = inputs.parameters
        timing = self._deps.settings.debounce_timing(
            exhausted=parameters.exhausted, nodes=parameters.nodes, position=self._place
        )
        decision = decide(inputs, self._debounce, now=now, timing=timing)
        if decision.patch is None:
            self._debounce = decision.state
            return self._earliest(decision, now=now, retention=parameters.cooldown.retention)
        due = self._corrections.due(inputs.spec, inputs.reported, now=now)
        if due > now:
            return due
        return await self._try(self._send(inputs, decision.patch, debounce=decision.state, version=version))

    def _publish(self, inputs: ScalingInputs) -> None:
        self._condition.update(inputs.waiting)
        exhausted = inputs.parameters.exhausted
        if self._exhausted is not exhausted:
            if self._exhausted is not None:
                self._log.info("subnet exhausted" if exhausted else "subnet no longer exhausted")
            self._exhausted = exhausted
            self.exhaustion_changes[exhausted] = self.exhaustion_changes.get(exhausted, 0) + 1

    def _earliest(self, decision: ScalingDecision, *, now: float, retention: float) -> float | None:
        """Return when an input of the decision changes without an event: a retention ends, or the last use gets old."""
        boot, longest = self._deps.clock.boot(), self._deps.settings.cooldown_filling
        pool = self._state.pool
        retained_until = pool.next_cooled_down(now=boot, cooldown=retention)
        reported_until = max(pool.recent_uses(now=boot, cooldown=longest), default=None)
        ends = (retained_until, None if reported_until is None else reported_until + longest)
        timers = [now + max(each - boot, MIN_WAIT) for each in ends if each is not None]
        times = (decision.next_at, self._nnc.answer_due(), *timers)
        return min((each for each in times if each is not None), default=None)

    async def _try(self, patch: Awaitable[None]) -> float:
        """Send a patch; read the NNC after a conflict, back off after a failure. Return now: decide again."""
        try:
            await patch
        except (ApiConflict, ApiNotFound):
            await self._refresh()
        except (ApiError, Unreachable) as error:
            await self._back_off(error)
        else:
            self._backoff.reset()
        return asyncio.get_running_loop().time()

    async def _send(self, inputs: ScalingInputs, patch: NNCPatch, *, debounce: DebounceState, version: str) -> None:
        pool = self._state.pool
        if patch.release:
            self._state.write(ReleasePending(grants=patch.release, version=pool.version, boot_id=pool.boot_id))
            addresses = ",".join(pool.pending_release[each].address for each in patch.release)
            self._log.info("unused addresses are returned to the subnet", address=addresses, count=len(patch.release))
        pending = tuple(pool.pending_release)
        cooled = pool.pending_release_cooled(now=self._deps.clock.boot())
        await self._state.sync()
        # grants that no Pod used have cooled down for the longest time that anybody requires
        cooled = (MAX_COOLDOWN if cooled is None else cooled) if pending else 0.0
        body = {"spec": {"requestedIPCount": patch.request, "ipsNotInUse": list(pending)}}
        report = agent_report(inputs, patch, cooled=cooled)
        self._corrections.sent(NetworkConfigSpec(requested=patch.request, pending_release=pending), report)
        await self._write(body, report, version=version)
        if patch.request != inputs.spec.requested:
            self._nnc.request_written()
            self._log.info(
                "requested number of addresses changed", requested=patch.request, before=inputs.spec.requested
            )
        self._debounce = debounce
        self._confirmation.nudge()
        self._deps.changes.notify()

    async def _write(self, body: dict[str, Any], report: AgentReport, *, version: str) -> None:
        before = self._nnc.newest
        annotations = {AGENT_ANNOTATION: msgspec.json.encode(report).decode()}
        kube, node, patch = self._deps.kube, self._deps.node, {**body, "metadata": {"annotations": annotations}}
        self._nnc.report_sent(report)
        response = await kube.merge_patch(NODE_NETWORK_CONFIGS, node, patch, namespace=NAMESPACE, precondition=version)
        self._nnc.report_written()
        self._nnc.observe_response(response, since=before)

    async def _refresh(self) -> None:
        """Read the NNC after a conflict, to decide on its present state."""
        before = self._nnc.newest
        try:
            nnc = await self._deps.kube.get(NODE_NETWORK_CONFIGS, self._deps.node, namespace=NAMESPACE)
            self._nnc.observe_response(nnc, since=before)
        except ApiNotFound:
            self._nnc.observe(None)
        except (ApiError, Unreachable) as error:
            await self._back_off(error)

    async def _back_off(self, error: Exception) -> None:
        if not self._backoff.failures:
            self._log.warning("cannot read or patch the NNC, retrying", error=error)
        await self._backoff.wait()

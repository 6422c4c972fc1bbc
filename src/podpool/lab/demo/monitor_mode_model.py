"""A model of one node during two minutes, for each monitor mode. The tour and docs/mathematics.md draw it.

The decisions are those of `core`. A kubelet starts ten Pods a second, a request is answered after one second, and a Pod
without an address is retried 13 seconds later, as containerd and kubelet do. Only in mode `pods` does an ADD wait for
requested addresses. The reactive mode is Azure's first one: without the primary address and without cooldown.
"""

import msgspec

from podpool.agent.scaling_decision import ScalingMode
from podpool.core.debounce import DebounceState, debounce
from podpool.core.scaling import NodeHoldings, ScalingStep, reactive_step, surplus, target
from podpool.core.settings import Settings

TICKS_PER_SECOND = 10
RESPONSE = 1 * TICKS_PER_SECOND
RETRY = 13 * TICKS_PER_SECOND
REACTIVE_INTERVAL = 1 * TICKS_PER_SECOND
SCHEDULED = ((0, 1), (5, 36), (60, 16))
"""Pods bound to the node, from a second on."""
SECONDS = 135


class NodeAtTick(msgspec.Struct, frozen=True):
    """The node at one tick."""

    scheduled: int
    assigned: int
    held: int


class NodeRun(msgspec.Struct, frozen=True):
    """The node at all ticks, with totals."""

    mode: ScalingMode
    ticks: tuple[NodeAtTick, ...]
    requests: int
    refused: int
    """ADDs that failed because no address was free."""
    served_after: float
    """Seconds from the burst until every Pod had its address."""


def simulate_node(mode: ScalingMode) -> NodeRun:
    """Run the model in one mode."""
    node = _Node(mode, Settings())
    ticks = tuple(node.tick(now) for now in range(SECONDS * TICKS_PER_SECOND))
    burst = SCHEDULED[1][0] * TICKS_PER_SECOND
    served = next(now for now in range(burst, len(ticks)) if ticks[now].assigned == ticks[now].scheduled)
    return NodeRun(mode, ticks, node.requests, node.refused, (served - burst) / TICKS_PER_SECOND)


class _Node:
    def __init__(self, mode: ScalingMode, settings: Settings) -> None:
        self.mode, self.settings = mode, settings
        self.debounce = DebounceState()
        self.scheduled = self.assigned = SCHEDULED[0][1]
        self.requested = self.held = settings.batch if mode is ScalingMode.REACTIVE else self._target(self.assigned)
        self.pending_release = self.requests = self.refused = 0
        self.cooling_down: list[int] = []  # when each cooldown ends
        self.retries: list[int] = []  # when each failed Pod is retried
        self.responses: list[int] = []

    def tick(self, now: int) -> NodeAtTick:
        """Bind and delete Pods, start one Pod, scale the pool, and apply the controller's responses."""
        self._schedule(now)
        self._start_one(now)
        self._scale(now)
        if self.responses and self.responses[0] <= now:
            self.responses.pop(0)
            self.held, self.pending_release = max(self.held - self.pending_release, self.requested), 0
        return NodeAtTick(self.scheduled, self.assigned, self.held)

    def _schedule(self, now: int) -> None:
        self.scheduled = next(pods for second, pods in reversed(SCHEDULED) if second * TICKS_PER_SECOND <= now)
        while self.assigned > self.scheduled:
            self.assigned -= 1
            if self.mode is not ScalingMode.REACTIVE:
                self.cooling_down.append(now + int(self.settings.cooldown_filling * TICKS_PER_SECOND))
        self.cooling_down = [until for until in self.cooling_down if until > now]
        self.retries = [until for until in self.retries if until > now]

    def _start_one(self, now: int) -> None:
        if self.scheduled - self.assigned - len(self.retries) <= 0:
            return
        if self._free() > 0:
            self.assigned += 1
        elif self.mode is not ScalingMode.PODS:
            self.refused += 1
            self.retries.append(now + RETRY)

    def _scale(self, now: int) -> None:
        step = self._reactive(now) if self.mode is ScalingMode.REACTIVE else self._debounced(now)
        if (step.request, step.release) != (self.requested, 0):
            self.requested, self.pending_release = step.request, self.pending_release + step.release
            self.requests += 1
            self.responses.append(now + RESPONSE)

    def _reactive(self, now: int) -> ScalingStep:
        if now % REACTIVE_INTERVAL:
            return ScalingStep(self.requested)
        return reactive_step(
            self._holdings(),
            scaler=self.settings.scaler,
            max_buffer=self.settings.shrink_buffer,
            maximum=self.settings.node_maximum,
            exhausted=False,
            releasable=self._free(),
        )

    def _debounced(self, now: int) -> ScalingStep:
        pods = self.scheduled if self.mode is ScalingMode.PODS else self.assigned
        decision = debounce(
            self.debounce,
            now=now / TICKS_PER_SECOND,
            wanted=self._target(pods + len(self.cooling_down)),
            requested=self.requested,
            timing=self.settings.debounce_timing(exhausted=False, nodes=1, position=0.0),
        )
        self.debounce = decision.state
        wanted = self.requested if decision.request is None else decision.request
        return ScalingStep(wanted, min(surplus(self._holdings(), wanted=wanted), self._free()))

    def _target(self, demand: int) -> int:
        maximum = self.settings.node_maximum
        return target(demand=demand, scaler=self.settings.scaler, primaries=1, maximum=maximum)

    def _holdings(self) -> NodeHoldings:
        return NodeHoldings(
            requested=self.requested, held=self.held, pending_release=self.pending_release, assigned=self.assigned
        )

    def _free(self) -> int:
        return self.held - self.pending_release - self.assigned - len(self.cooling_down)

"""One node through a busy two minutes, once for each monitor mode: what the tour draws.

A model for the eye, on the real decisions of `core`: kubelet starts ten Pods a second, an answer to a request takes one
second, and a Pod that finds no address is torn down and tried again 13 seconds later, as containerd and kubelet do.
Only the `pods` mode lets it wait for the addresses that are on their way. The reactive mode is as it first came: it
does not count the primary address, and lets nothing rest.
"""

import enum

import msgspec

from podpool.core.debounce import DebounceState, debounce
from podpool.core.scaling import NodeHoldings, ScalingStep, reactive_step, surplus, target
from podpool.core.settings import Settings

TICKS_PER_SECOND = 10
ANSWER = 1 * TICKS_PER_SECOND
RETRY = 13 * TICKS_PER_SECOND
REACTIVE_LOOK = 1 * TICKS_PER_SECOND
SCHEDULED = ((0, 1), (5, 36), (60, 16))
"""Pods bound to the node, from which second on."""
LENGTH = 135
"""Seconds."""


class Mode(enum.Enum):
    """How a node decides what to ask for."""

    REACTIVE = "reactive"
    IDEMPOTENT = "idempotent"
    PODS = "pods"


class Moment(msgspec.Struct, frozen=True):
    """The node at one tick."""

    scheduled: int
    assigned: int
    held: int


class History(msgspec.Struct, frozen=True):
    """What happened on the node."""

    mode: Mode
    moments: tuple[Moment, ...]
    requests: int
    refused: int
    """Pods that found no address and were torn down."""
    served_after: float
    """Seconds from the burst until every Pod had its address."""


def play(mode: Mode) -> History:
    """Live through the two minutes."""
    node = _Node(mode, Settings())
    moments = tuple(node.tick(now) for now in range(LENGTH * TICKS_PER_SECOND))
    burst = SCHEDULED[1][0] * TICKS_PER_SECOND
    served = next(now for now in range(burst, len(moments)) if moments[now].assigned == moments[now].scheduled)
    return History(mode, moments, node.requests, node.refused, (served - burst) / TICKS_PER_SECOND)


class _Node:
    def __init__(self, mode: Mode, settings: Settings) -> None:
        self.mode, self.settings = mode, settings
        self.pace = DebounceState()
        self.scheduled = self.assigned = SCHEDULED[0][1]
        self.requested = self.held = settings.batch if mode is Mode.REACTIVE else self._target(self.assigned)
        self.named = self.requests = self.refused = 0
        self.resting: list[int] = []  # when each becomes free again
        self.retries: list[int] = []  # when each refused Pod is tried again
        self.answers: list[int] = []

    def tick(self, now: int) -> Moment:
        """Let Pods come and go, start one, look after the pool, and hear the controller's answers."""
        self._schedule(now)
        self._start_one(now)
        self._look(now)
        if self.answers and self.answers[0] <= now:
            self.answers.pop(0)
            self.held, self.named = max(self.held - self.named, self.requested), 0
        return Moment(self.scheduled, self.assigned, self.held)

    def _schedule(self, now: int) -> None:
        self.scheduled = next(pods for second, pods in reversed(SCHEDULED) if second * TICKS_PER_SECOND <= now)
        while self.assigned > self.scheduled:
            self.assigned -= 1
            if self.mode is not Mode.REACTIVE:
                self.resting.append(now + int(self.settings.cooldown * TICKS_PER_SECOND))
        self.resting = [until for until in self.resting if until > now]
        self.retries = [until for until in self.retries if until > now]

    def _start_one(self, now: int) -> None:
        if self.scheduled - self.assigned - len(self.retries) <= 0:
            return
        if self._free() > 0:
            self.assigned += 1
        elif self.mode is not Mode.PODS:
            self.refused += 1
            self.retries.append(now + RETRY)

    def _look(self, now: int) -> None:
        step = self._reactive(now) if self.mode is Mode.REACTIVE else self._paced(now)
        if (step.request, step.release) != (self.requested, 0):
            self.requested, self.named = step.request, self.named + step.release
            self.requests += 1
            self.answers.append(now + ANSWER)

    def _reactive(self, now: int) -> ScalingStep:
        if now % REACTIVE_LOOK:
            return ScalingStep(self.requested)
        return reactive_step(
            self._holding(),
            scaler=self.settings.scaler,
            max_buffer=self.settings.shrink_buffer,
            maximum=self.settings.node_maximum,
            exhausted=False,
            releasable=self._free(),
        )

    def _paced(self, now: int) -> ScalingStep:
        pods = self.scheduled if self.mode is Mode.PODS else self.assigned
        verdict = debounce(
            self.pace,
            now=now / TICKS_PER_SECOND,
            wanted=self._target(pods + len(self.resting)),
            requested=self.requested,
            timing=self.settings.debounce_timing(exhausted=False, nodes=1, position=0.0),
        )
        self.state = verdict.state
        wanted = self.requested if verdict.request is None else verdict.request
        return ScalingStep(wanted, min(surplus(self._holding(), wanted=wanted), self._free()))

    def _target(self, demand: int) -> int:
        maximum = self.settings.node_maximum
        return target(demand=demand, scaler=self.settings.scaler, primaries=1, maximum=maximum)

    def _holding(self) -> NodeHoldings:
        return NodeHoldings(requested=self.requested, held=self.held, pending_release=self.named, assigned=self.assigned)

    def _free(self) -> int:
        return self.held - self.named - self.assigned - len(self.resting)

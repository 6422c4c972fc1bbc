"""Back-off of corrections: an agent corrects what another writer changed in its NNC at once, then less and less often.

One that changes it again each time, such as a third-party agent on the same node, must not make both load the API
server.
"""

import math
from collections import deque
from typing import TypeAlias

from podpool.agent.deps import AgentDeps
from podpool.api.azure import AgentReport, NetworkConfigSpec
from podpool.kube.backoff import Backoff

MAX_CORRECTION_DELAY = 30.0
"""Seconds between two corrections at most: a Pod waits for the request that one contains."""
CORRECTION_MEMORY = 120.0
"""Seconds without a correction after which the next is immediate."""
KEPT_PATCHES = 8
"""Patches whose content is recognized as this agent's: the responses of the last ones may be lost."""


class CorrectionPace:
    """When the next correction of another writer's edit is due: at once, then after increasing delays."""

    def __init__(self, deps: AgentDeps) -> None:
        self._log = deps.log
        self._backoff = Backoff(rng=deps.rng, base=0.5, maximum=MAX_CORRECTION_DELAY)
        self._sent: deque[_Written] = deque(maxlen=KEPT_PATCHES)
        self._known: _Written | None = None
        """What the NNC had before these patches: they may all have failed."""
        self._due: float | None = None
        self._last = -math.inf

    def sent(self, spec: NetworkConfigSpec, report: AgentReport) -> None:
        """Keep what was sent: a patch may be lost or rejected, so what was sent before it counts as ours, too."""
        self._sent.append(_written(spec, report))
        self._due = None

    def due(self, spec: NetworkConfigSpec, report: AgentReport, *, now: float) -> float:
        """Return when a patch of an NNC with these may be sent, by the loop's time."""
        found = _written(spec, report)
        if not self._sent or found == self._known or found in self._sent:
            self._known = found
            return now
        if self._due is None:
            self._due = now + self._delay(now)
        return self._due

    def _delay(self, now: float) -> float:
        repeated, self._last = now - self._last < CORRECTION_MEMORY, now
        if not repeated:
            self._backoff.reset()
            return 0.0
        if self._backoff.failures == 1:
            event = "another writer changes the NNC each time, correcting it less often; a node has one agent"
            self._log.warning(event)
        return self._backoff.fail()


_Written: TypeAlias = tuple[int, list[str], str, str]
"""What only this agent writes: the request, the releases, and its identity in the report."""


def _written(spec: NetworkConfigSpec, report: AgentReport) -> _Written:
    return spec.requested, sorted(spec.pending_release), report.boot_id, report.journal

"""Request changes in a running cluster: latency until the status follows, and cost per change.

A change is what an agent does: it requests another batch. Latency is read from the audit log, from the end of the write
of the request to the end of the write of the status.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from bench.controller_cluster import CONTROLLER, INTERVAL, WRITES, is_status
from parts.control_plane import ADMIN
from parts.polling import until

if TYPE_CHECKING:
    from bench.controller_cluster import Site

BATCH = 16
QUIET, SETTLED = 30.0, 3.0
"""Seconds."""


class Delay(Struct, frozen=True, kw_only=True):
    """Latency of changes, in milliseconds."""

    p50: float
    p99: float


class Standing:
    """A running cluster whose nodes have joined."""

    def __init__(self, place: Site, nodes: int) -> None:
        self._place = place
        self._nodes = nodes
        self._asked: Counter[int] = Counter()
        self._chance = random.Random(nodes)  # noqa: S311  the same each time
        self.delay = cache(self._delay)

    def _delay(self, turn: int, changes: int, rate: float) -> Delay:
        """Change requests at a fixed rate, whether they are answered or not."""
        del turn
        delays = self._change(changes, rate=rate)
        return Delay(p50=1e3 * statistics.median(delays), p99=1e3 * statistics.quantiles(delays, n=100)[98])

    def cpu_per_change(self, changes: int, *, rate: float) -> float:
        """Return the CPU of controller and ledger per change, in microseconds."""
        before = self._place.cpu()
        self._change(changes, rate=rate)
        return 1e6 * (self._place.cpu() - before) / changes

    def writes_while_quiet(self) -> int:
        """Return the number of writes of an idle controller, without its Lease."""
        audit = self._place.plane.audit
        time.sleep(SETTLED)
        mark = audit.mark()
        time.sleep(QUIET)
        calls = audit.calls(since=mark, user=CONTROLLER)
        return len([each for each in calls if each.verb in WRITES and each.resource != "leases"])

    def _change(self, changes: int, *, rate: float) -> list[float]:
        """Request another batch for random nodes; return how long each waits, in seconds."""
        numbers = self._chance.sample(range(self._nodes), min(changes, self._nodes))
        self._asked.update(numbers)
        wanted = {number: BATCH * self._asked[number] - 1 for number in numbers}
        mark = self._place.plane.audit.mark()
        self._place.crowd.run(self._place.crowd.ask_at(rate, wanted))
        what = f"{len(numbers)} changes were answered"
        until(lambda: len(self._waits(mark)) == len(numbers), what, interval=INTERVAL)
        return list(self._waits(mark).values())

    def _waits(self, mark: int) -> dict[str, float]:
        """Return the latency of each request, to the first status written after it."""
        asked: dict[str, float] = {}
        waits: dict[str, float] = {}
        for call in sorted(self._place.plane.audit.calls(since=mark), key=lambda each: each.ended):
            if call.user == ADMIN and call.resource == "nodenetworkconfigs":
                asked[call.name] = call.ended
            elif call.user == CONTROLLER and is_status(call) and call.name in asked:
                waits.setdefault(call.name, call.ended - asked[call.name])
        return waits

"""Periodic tasks of the ledger: a failure is contained where it happens, counted, logged and retried.

A lock timeout, a full disk or a fault in the rows of one subnet must stop neither the process nor the other subnets.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from podpool.ledger.errors import Unavailable
from podpool.runtime.logging import get_logger

log = get_logger(__name__)

TASKS = ("timers", "history", "utilization")


class PeriodicTasks:
    """Runs the periodic tasks and counts their errors."""

    def __init__(self) -> None:
        self.errors = Counter[str](dict.fromkeys(TASKS, 0))
        """By task, since the start."""
        self._failing: set[tuple[str, int | None]] = set()
        """What failed in its last run, by task and subnet: it is logged once, and again when it works."""

    async def run_periodically(self, task: str, job: Callable[[], Awaitable[None]], *, seconds: float) -> None:
        """Run a task again and again, each time after a pause."""
        while True:
            await self.contain(task, job())
            await asyncio.sleep(seconds)

    async def contain(self, task: str, work: Awaitable[None], *, subnet: int | None = None) -> None:
        """Wait for one run of a task, for one subnet or as a whole; an error is not raised."""
        key = (task, subnet)
        try:
            await work
        except Exception as error:  # noqa: BLE001  whatever it is, the others must go on; the next run tries again
            self.errors[task] += 1
            if key not in self._failing:
                report = log.warning if isinstance(error, Unavailable) else log.exception
                report("periodic task failed, retried later", task=task, subnet=subnet, error=error)
            self._failing.add(key)
        else:
            if key in self._failing:
                log.info("periodic task works again", task=task, subnet=subnet)
            self._failing.discard(key)

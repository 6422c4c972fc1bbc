"""What health checks and metrics show, read from the database at an interval.

A probe or a scrape reads only what was read last, so callers of these pages, of whom nothing is known, cost the
database nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from podpool.ledger.domain.repository import LedgerStore
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import LedgerError
from podpool.runtime.clock import Clock
from podpool.runtime.logging import get_logger
from podpool.runtime.process import HealthCheck

if TYPE_CHECKING:
    from podpool.ledger.domain.rows import SubnetRow
    from podpool.ledger.messages import SubnetState

log = get_logger(__name__)

_REFRESH_INTERVAL = 5.0
_STALE_AFTER = 15.0
"""Seconds after the last transaction in which the ledger counts as not ready: three refreshes."""
_TIMEOUT = 10.0
"""Seconds for which a refresh waits for the database."""


class LedgerStatus:
    """The subnets with their counters, and whether the writer completes transactions."""

    def __init__(self, ledger: LedgerService, store: LedgerStore, *, clock: Clock) -> None:
        self.counters: Sequence[tuple[SubnetState, SubnetRow]] = ()
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._answered_at = float("-inf")
        self._error = "no transaction has been completed yet"

    @property
    def task_errors(self) -> Mapping[str, int]:
        """The errors of each periodic task, since the start."""
        return self._ledger.tasks.errors

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await self.refresh()
            except TimeoutError:
                self._error = f"no answer within {_TIMEOUT:g} s"
            except LedgerError as error:
                self._error = str(error)
                log.warning("database unavailable, health and metrics not refreshed", error=error)
            await asyncio.sleep(_REFRESH_INTERVAL)

    async def refresh(self) -> None:
        """Read the subnets, and wait for one transaction of the writer."""
        await self._store.read(lambda repo: repo.revision)
        self._answered_at = self._clock.boot()
        self.counters = await self._ledger.admin.subnet_counters()

    def checks(self) -> Sequence[HealthCheck]:
        """Return the checks of `/readyz`."""
        age = self._clock.boot() - self._answered_at
        if age <= _STALE_AFTER:
            return [HealthCheck("database")]
        since = "" if age == float("inf") else f" for {age:.0f} s"
        return [HealthCheck("database", f"no transaction was completed{since} ({self._error}): check --database")]

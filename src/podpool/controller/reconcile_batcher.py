"""Calls to the ledger within one term of a network: numbered, sequential, each with all requests that are pending.

Invariants:
- The calls of a term are sent one at a time, in the order of their numbers.
- A call whose response is lost fails for all requests in it. They are sent again with the next number, which makes the
  lost call outdated should it still arrive. It may already have opened NCs that are not requested again: so the NCs
  are reloaded, after an empty call that outdates the lost one.
- `StaleTerm` and `InventoryRequired` end the session; the leader opens a new term.
"""

import asyncio
import random
from collections.abc import Callable

import msgspec

from podpool.controller.ledger_health import LedgerHealth
from podpool.kube.backoff import Backoff
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import Invalid, InventoryRequired, LedgerError, StaleTerm, error_from
from podpool.ledger.messages import (
    NetworkContainerRecord,
    NetworkContainerState,
    ReconcileItem,
    ReconcileRequest,
    ReconcileResponse,
)
from podpool.runtime.transport import Unreachable

BATCH_DELAY = 0.01
"""Seconds for which a call waits for more requests: a node storm becomes few calls."""
BATCH_SIZE = 500
"""Requests in one call at the most."""
RELOAD_BACKOFF_BASE, RELOAD_BACKOFF_MAX = 1.0, 10.0
"""Seconds before a failed reload is retried."""

_Pending = list[tuple[ReconcileItem, asyncio.Future[NetworkContainerState]]]


class LeaderTerm(msgspec.Struct, frozen=True):
    """A cluster, its leader's term in a network, and the last revision of it that the leader has seen."""

    cluster: str
    network: str
    term: int
    seen: int


class ReconcileBatcher:
    """Sends requests of one term in batches."""

    def __init__(
        self,
        ledger: LedgerClient,
        term: LeaderTerm,
        *,
        on_response: Callable[[ReconcileResponse], None],
        on_reload: Callable[[str, tuple[NetworkContainerRecord, ...]], None],
        health: LedgerHealth,
        rng: random.Random,
    ) -> None:
        self.seen = term.seen
        self.missing_nodes = 0
        """NCs without a Node now: if too many, the ledger's circuit breaker opens before the first is released."""
        self._ledger = ledger
        self._term = term
        self._on_response = on_response
        self._on_reload = on_reload
        self._health = health
        self._backoff = Backoff(rng=rng, base=RELOAD_BACKOFF_BASE, maximum=RELOAD_BACKOFF_MAX)
        self._reload_needed = False
        self._number = 0
        self._pending: _Pending = []
        self._wake = asyncio.Event()

    async def reconcile(self, item: ReconcileItem) -> NetworkContainerState:
        """Send a request with the next call; raises the ledger's error for it."""
        outcome: asyncio.Future[NetworkContainerState] = asyncio.get_running_loop().create_future()
        self._pending.append((item, outcome))
        self._wake.set()
        return await outcome

    def reload(self) -> None:
        """Reload the NCs, and check that the term still lasts: a change may have been missed."""
        self._reload_needed = True
        self._wake.set()

    async def run(self) -> None:
        """Send calls until the term ends."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(BATCH_DELAY)
            if self._reload_needed and not await self._reload():
                await self._backoff.wait()
                continue
            self._backoff.reset()
            batch, self._pending = self._pending[:BATCH_SIZE], self._pending[BATCH_SIZE:]
            if not self._pending:
                self._wake.clear()
            await self._send([(item, outcome) for item, outcome in batch if not outcome.done()])

    async def _send(self, batch: _Pending) -> None:
        if not batch:
            return
        try:
            self._complete(batch, await self._call(tuple(item for item, _ in batch)))
        except (Unreachable, LedgerError) as error:
            if isinstance(error, Invalid) and len(batch) > 1:
                await self._send_halves(batch)
                return
            for _, outcome in batch:
                if not outcome.done():
                    outcome.set_exception(error)
            if isinstance(error, StaleTerm | InventoryRequired):
                raise
            if not isinstance(error, Invalid):  # which changed nothing
                self.reload()

    async def _send_halves(self, batch: _Pending) -> None:
        """Send a call that was rejected as a whole in halves, so that only the request that cannot be read fails."""
        middle = len(batch) // 2
        await self._send(batch[:middle])
        await self._send(batch[middle:])

    async def _reload(self) -> bool:
        try:
            await self._call(())
            term = self._term
            listed = self._ledger.network_containers(term.cluster, network=term.network)
            self._on_reload(term.network, (await self._health.call(listed)).network_containers)
        except (StaleTerm, InventoryRequired):
            raise
        except (Unreachable, LedgerError):
            return False
        self._reload_needed = False
        return True

    async def _call(self, items: tuple[ReconcileItem, ...]) -> ReconcileResponse:
        self._number += 1
        request = ReconcileRequest(
            cluster=self._term.cluster,
            network=self._term.network,
            term=self._term.term,
            number=self._number,
            known_revision=self.seen,
            items=items,
            missing=self.missing_nodes,
        )
        response = await self._health.call(self._ledger.reconcile(request))
        self.seen = max(self.seen, response.revision)
        return response

    def _complete(self, batch: _Pending, response: ReconcileResponse) -> None:
        for (item, outcome), result in zip(batch, response.results, strict=True):
            if outcome.done():
                continue
            if result.state is not None:
                outcome.set_result(result.state)
            elif result.error is not None:
                outcome.set_exception(error_from(result.error))
            else:
                outcome.set_exception(LedgerError(f"the ledger's response has no result for node {item.node}"))
        self._on_response(response)

"""One term of leadership: numbered calls to the ledger, one after the other, each with all containers of a moment.

What must hold: calls of a term go out in the order of their numbers, one at a time. A call whose answer is lost fails
for everybody in it; they come again with the next number, and what the lost one may still do late is then older. It may
have opened containers that nobody asks for again: so the books are read anew, after an empty call that outdates it.
`TermEnded` and `ListingWanted` end the session: whoever leads opens another.
"""

import asyncio
import random
from collections.abc import Callable

import msgspec

from podpool.controller.ledger_health import Presence
from podpool.kube.backoff import backoff
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import LedgerError, ListingWanted, TermEnded, error_of
from podpool.ledger.messages import ContainerRecord, ContainerState, Item, Reconcile, ReconcileAnswer
from podpool.runtime.transport import Unreachable

GATHER = 0.01
"""Seconds for which a call waits for company: a node storm becomes few calls."""
MOST = 500
"""Containers of one call."""
AGAIN, AGAIN_MOST = 1.0, 10.0
"""Seconds before the books are asked for again, when that failed too: at first, and at the longest."""


class Lead(msgspec.Struct, frozen=True):
    """Whom a session speaks for: a cluster, in one term, having seen the ledger at this revision."""

    cluster: str
    term: int
    seen: int


class Session:
    """The lead of one cluster, as the ledger knows it."""

    def __init__(
        self,
        ledger: LedgerClient,
        lead: Lead,
        *,
        hear: Callable[[ReconcileAnswer], None],
        load: Callable[[tuple[ContainerRecord, ...]], None],
        presence: Presence,
        rng: random.Random,
    ) -> None:
        self.seen = lead.seen
        self.missing = 0
        """Containers without a Node now: many at once, and the ledger brakes before it gives the first one up."""
        self._ledger = ledger
        self._lead = lead
        self._hear = hear
        self._load = load
        self._presence = presence
        self._rng = rng
        self._failures = 0
        self._doubt = False
        self._number = 0
        self._waiting: list[tuple[Item, asyncio.Future[ContainerState]]] = []
        self._wanted = asyncio.Event()

    async def reconcile(self, item: Item) -> ContainerState:
        """Bring one container to what it should be, in the next call; raises what the ledger says of it."""
        outcome: asyncio.Future[ContainerState] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, outcome))
        self._wanted.set()
        return await outcome

    def doubt(self) -> None:
        """Find out what the books say, and whether the term still lasts: something may have happened unheard."""
        self._doubt = True
        self._wanted.set()

    async def run(self) -> None:
        """Send calls until the term ends."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(GATHER)
            if self._doubt and not await self._read_books():
                self._failures += 1
                await asyncio.sleep(backoff(self._failures, rng=self._rng, base=AGAIN, most=AGAIN_MOST))
                continue
            self._failures = 0
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            if not self._waiting:
                self._wanted.clear()
            await self._send([(item, outcome) for item, outcome in batch if not outcome.done()])

    async def _send(self, batch: list[tuple[Item, asyncio.Future[ContainerState]]]) -> None:
        if not batch:
            return
        try:
            self._deal(batch, await self._call(tuple(item for item, _ in batch)))
        except (Unreachable, LedgerError) as error:
            _fail(batch, error)
            if isinstance(error, TermEnded | ListingWanted):
                raise
            self.doubt()

    async def _read_books(self) -> bool:
        try:
            await self._call(())
            self._load((await self._presence.ask(self._ledger.containers(self._lead.cluster))).containers)
        except (TermEnded, ListingWanted):
            raise
        except (Unreachable, LedgerError):
            return False
        self._doubt = False
        return True

    async def _call(self, items: tuple[Item, ...]) -> ReconcileAnswer:
        self._number += 1
        lead = self._lead
        call = Reconcile(
            cluster=lead.cluster,
            term=lead.term,
            number=self._number,
            seen=self.seen,
            items=items,
            missing=self.missing,
        )
        answer = await self._presence.ask(self._ledger.reconcile(call))
        self.seen = max(self.seen, answer.revision)
        return answer

    def _deal(self, batch: list[tuple[Item, asyncio.Future[ContainerState]]], answer: ReconcileAnswer) -> None:
        for (item, outcome), result in zip(batch, answer.results, strict=True):
            if outcome.done():
                continue
            if result.state is not None:
                outcome.set_result(result.state)
            elif result.error is not None:
                outcome.set_exception(error_of(result.error))
            else:
                outcome.set_exception(LedgerError(f"the ledger's answer leaves out {item.node}"))
        self._hear(answer)


def _fail(batch: list[tuple[Item, asyncio.Future[ContainerState]]], error: Exception) -> None:
    for _, outcome in batch:
        if not outcome.done():
            outcome.set_exception(error)

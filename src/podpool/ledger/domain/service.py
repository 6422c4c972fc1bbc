"""The ledger itself: each call as a work on the store, with the clock and the randomness that it was given.

`start` notices a restore; `run` does what time alone brings about; `stop` ends the streams. Several of these may stand
on one store. What a person asks for is in `administration`.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from podpool.ledger import messages as m
from podpool.ledger.admin_messages import PodReport, Taken
from podpool.ledger.domain.admin import Administration
from podpool.ledger.domain.allocations import Holdings
from podpool.ledger.domain.circuit_breaker import Brake
from podpool.ledger.domain.convert import container_record, container_state, subnet_state
from podpool.ledger.domain.fencing import admit, begin_recovery, open_term
from podpool.ledger.domain.history import read_events, take_report, trim
from podpool.ledger.domain.reconcile import reconcile
from podpool.ledger.domain.recovery import alarms, take_listing
from podpool.ledger.domain.settle import tend
from podpool.ledger.domain.subnet_transaction import Desk
from podpool.ledger.domain.subnets import found
from podpool.ledger.domain.utilization_cache import UtilizationCache
from podpool.ledger.errors import LedgerError, NotFound, TwoOwners, Unavailable
from podpool.ledger.storage.group_commit import Shared
from podpool.ledger.storage.rows import ContainerRow
from podpool.ledger.storage.store import Books, Store
from podpool.runtime.clock import Clock

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TICK = 1.0
"""How late the ledger may notice that a rest or a hold is over."""
_TIDY = 10.0
"""How often the history is read and trimmed."""
_HEARTBEAT = 15.0
"""A stream that is silent for longer is told that it is still there."""


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be set for a ledger as a whole."""

    brake: Brake = Brake()
    history: float = 30 * 86_400.0
    """For how many seconds the past is kept."""
    refresh: float = 0.0
    """How often utilisation is read from the books, in seconds; 0 reads it each time."""


class Ledger:
    """The authority on subnets, on one store."""

    def __init__(self, store: Store, *, clock: Clock, rng: random.Random, habits: Habits | None = None) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._habits = habits or Habits()
        self._cache = UtilizationCache(store, clock=clock, rate=self._habits.refresh)
        self._streams: dict[int, asyncio.Event] = {}
        self._tickets = itertools.count()
        self._stopped = False
        self.administration = Administration(
            store,
            clock=clock,
            rng=rng,
            brake=self._habits.brake,
            kept=self._habits.history,
            deleted=self._cache.forget,
        )

    async def start(self) -> None:
        """Ask the witness whether the books are the last ones; if they are not, recover."""
        await self._store.begin(
            lambda books, restored: begin_recovery(
                books, floor=restored.revision, members=restored.members, wall=self._clock.wall()
            )
        )

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_every(_TICK, self.tick))
            group.create_task(_every(_TIDY, self.tidy))
            if self._habits.refresh:
                group.create_task(_every(self._habits.refresh, self._cache.refresh))

    def stop(self) -> None:
        """End every stream: whoever follows opens another, elsewhere."""
        self._stopped = True
        for stirred in self._streams.values():
            stirred.set()

    async def tick(self) -> None:
        """Do what is due now: rests and holds that are over, turns that have passed."""
        wall = self._clock.wall()
        for number in await self._store.read(lambda books: books.due(wall)):
            await self._store.write(partial(tend, number=number, wall=wall))

    async def tidy(self) -> None:
        """Read what happened into the history, and forget what is too old; a little at a time."""
        while await self._store.write(read_events):
            pass
        before = self._clock.wall() - self._habits.history
        while await self._store.write(lambda books: trim(books, before=before)):
            pass

    async def open_term(self, opening: m.OpenTerm) -> m.Term:
        """Give a cluster its next term."""
        wall = self._clock.wall()
        return await self._store.write(lambda books: open_term(books, opening, wall=wall))

    async def reconcile(self, call: m.Reconcile) -> m.ReconcileAnswer:
        """Bring containers to what they should be."""
        return await self._decide(Shared(self._reconcile, call))

    def _reconcile(self, books: Books, calls: Sequence[m.Reconcile]) -> list[m.ReconcileAnswer | LedgerError]:
        return reconcile(books, calls, wall=self._clock.wall(), rng=self._rng, brake=self._habits.brake)

    async def take_pods(self, report: PodReport) -> Taken:
        """Write down which Pods of a cluster have which addresses."""
        return Taken(count=await self._store.write(lambda books: take_report(books, report)))

    async def take_listing(self, listing: m.Listing) -> m.ListingAnswer:
        """Take in what a cluster has, if it is wanted."""
        wall = self._clock.wall()

        def work(books: Books) -> m.ListingAnswer | LedgerError:
            cluster = admit(books, listing.cluster, term=listing.term, seen=listing.seen, wall=wall)
            if isinstance(cluster, LedgerError):
                return cluster
            if cluster.epoch < books.epoch:
                take_listing(books, listing, cluster, wall=wall)
            return _listing_answer(books, listing, wall=wall)

        return await self._decide(work)

    async def containers(self, cluster: str) -> m.Containers:
        """Show the open containers of a cluster."""
        wall = self._clock.wall()

        def work(books: Books) -> m.Containers:
            desks = {row.number: Holdings(books, row, wall=wall) for row in books.subnets()}
            records = [container_record(desks[row.subnet], row) for row in books.containers(cluster)]
            return m.Containers(revision=books.revision, containers=tuple(records))

        return await self._store.read(work)

    async def create_subnet(self, new: m.NewSubnet) -> m.SubnetState:
        """Make a subnet."""
        return await self.administration.create_subnet(new)

    async def subnets(self) -> m.Subnets:
        """Show all subnets."""
        wall = self._clock.wall()
        return await self._store.read(
            lambda books: m.Subnets(
                revision=books.revision,
                subnets=tuple(subnet_state(books, row, wall=wall) for row in books.subnets()),
            )
        )

    async def subnet(self, name: m.SubnetName) -> m.SubnetState:
        """Show one subnet."""
        wall = self._clock.wall()
        return await self._store.read(lambda books: subnet_state(books, found(books, name), wall=wall))

    async def utilization(self, name: m.SubnetName) -> list[m.Utilization]:
        """Show how full a subnet is."""
        return [await self._cache.get(name)]

    async def changes(self, cluster: str) -> AsyncGenerator[m.Change | None, None]:
        """Follow all subnets for a cluster: each as it is, then as it changes; None now and then, as a sign of life.

        What changes while somebody is slow is told once, as it then is.
        """
        pending: dict[int, None] = {}
        stirred = asyncio.Event()

        def listen(changed: Sequence[int]) -> None:
            pending.update(dict.fromkeys(changed))
            stirred.set()

        leave = self._store.follow(listen)
        ticket = next(self._tickets)
        self._streams[ticket] = stirred
        shown: dict[int, m.Change] = {}
        try:
            listen(await self._store.read(lambda books: [row.number for row in books.subnets()]))
            while not self._stopped:
                stirred.clear()
                for number in list(pending):
                    del pending[number]
                    last = shown.pop(number, None)
                    change = await self._store.read(partial(self._change, number=number, cluster=cluster))
                    if change is not None:
                        shown[number] = change
                    if change is not None and (last is None or _essence(last) != _essence(change)):
                        yield change
                    elif change is None and last is not None:
                        yield msgspec.structs.replace(last, servable=(), removed=True)
                try:
                    async with asyncio.timeout(_HEARTBEAT):
                        await stirred.wait()
                except TimeoutError:
                    yield None
        finally:
            leave()
            del self._streams[ticket]

    def _change(self, books: Books, number: int, cluster: str) -> m.Change | None:
        wall = self._clock.wall()
        try:
            row = books.subnet_at(number)
        except LookupError:  # deleted
            return None
        desk = Desk(books, row, wall=wall)
        return m.Change(state=desk.state, servable=tuple(desk.servable(cluster)))

    async def _decide(self, work: Callable[[Books], T | LedgerError]) -> T:
        outcome = await self._store.write(work)
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome


def _essence(change: m.Change) -> object:
    """Tell what makes a change worth telling: not every grant, and not the passing of time."""
    state = change.state
    return (
        state.subnet,
        state.scaler,
        state.exhausted,
        state.frozen,
        state.waiting,
        state.wishing,
        state.draining,
        change.servable,
    )


async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await act()
        except Unavailable as error:  # the database may be back next time
            _log.warning("what is due must wait: %s", error)
        await asyncio.sleep(seconds)


def _listing_answer(books: Books, listing: m.Listing, *, wall: float) -> m.ListingAnswer:
    disputed = {number for row in books.alarms() for number in (row.holder, row.claimant)}
    found = [books.container(each.container) for each in listing.containers]
    ours = [row if row and row.cluster == listing.cluster else None for row in found]
    own = {row.id for row in ours if row}
    raised = tuple(each for each in alarms(books) if own & {each.holder, each.claimant})
    results = [_listed(books, row, disputed, wall=wall) for row in ours]
    return m.ListingAnswer(revision=books.revision, results=tuple(results), alarms=raised)


def _listed(books: Books, row: ContainerRow | None, disputed: set[int], *, wall: float) -> m.Result:
    if row is None:
        return m.Result(error=NotFound("the books do not have this container", field="container").problem)
    if row.number in disputed:
        return m.Result(error=TwoOwners(f"container {row.id} has a part in an alarm", field="container").problem)
    holdings = Holdings(books, books.subnet_at(row.subnet), wall=wall)
    return m.Result(state=container_state(holdings, row))

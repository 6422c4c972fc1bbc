"""The ledger itself: each call as a work on the store, with the clock and the randomness that it was given.

`start` notices a restore; `run` does what time alone brings about. Several of these may stand on one store.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TypeVar

from podpool.ledger import messages as m
from podpool.ledger.errors import LedgerError, NotFound, TwoOwners
from podpool.ledger.holdings import Holdings
from podpool.ledger.reconcile import reconcile
from podpool.ledger.recovery import alarms, excuse, recovery_state, settle, take_listing
from podpool.ledger.rows import ContainerRow, SubnetRow
from podpool.ledger.store import Books, Store
from podpool.ledger.subnets import create_subnet
from podpool.ledger.terms import admit, begin_recovery, open_term
from podpool.ledger.upkeep import servable, tend
from podpool.ledger.views import container_record, container_state, subnet_state, utilization
from podpool.runtime.clock import Clock

T = TypeVar("T")

_TICK = 1.0
"""How late the ledger may notice that a rest or a hold is over."""
_HEARTBEAT = 15.0
"""A stream that is silent for longer is told that it is still there."""


class Ledger:
    """The authority on subnets, on one store."""

    def __init__(self, store: Store, *, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng

    async def start(self) -> None:
        """Ask the witness whether the books are the last ones; if they are not, recover."""
        restored = self._store.restored()
        if restored is not None:
            wall = self._clock.wall()
            await self._store.write(
                lambda books: begin_recovery(books, floor=restored.revision, members=restored.members, wall=wall)
            )

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(_TICK)

    async def tick(self) -> None:
        """Do what is due now: rests and holds that are over, turns that have passed."""
        wall = self._clock.wall()
        for number in await self._store.read(lambda books: books.due(wall)):
            await self._store.write(partial(tend, number=number, wall=wall))

    async def open_term(self, opening: m.OpenTerm) -> m.Term:
        """Give a cluster its next term."""
        wall = self._clock.wall()
        return await self._store.write(lambda books: open_term(books, opening, wall=wall))

    async def reconcile(self, call: m.Reconcile) -> m.ReconcileAnswer:
        """Bring containers to what they should be."""
        wall = self._clock.wall()
        return await self._decide(lambda books: reconcile(books, call, wall=wall, rng=self._rng))

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
        wall = self._clock.wall()
        return await self._store.write(
            lambda books: subnet_state(books, create_subnet(books, new, wall=wall), wall=wall)
        )

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
        return await self._store.read(lambda books: subnet_state(books, _found(books, name), wall=wall))

    async def utilization(self, name: m.SubnetName) -> list[m.Utilization]:
        """Show how full a subnet is."""
        wall = self._clock.wall()
        return [await self._store.read(lambda books: utilization(_found(books, name), wall=wall))]

    async def recovery(self) -> m.Recovery:
        """Show whom the ledger waits for, and what must be settled."""
        return await self._store.read(recovery_state)

    async def excuse(self, request: m.Excuse) -> m.Recovery:
        """Wait for a cluster no longer."""
        wall = self._clock.wall()

        def work(books: Books) -> m.Recovery:
            excuse(books, request.cluster, wall=wall)
            return recovery_state(books)

        return await self._store.write(work)

    async def settle(self, decision: m.Settle) -> m.Recovery:
        """Give an address with two owners to one of them."""
        wall = self._clock.wall()

        def work(books: Books) -> m.Recovery:
            settle(books, decision, wall=wall)
            return recovery_state(books)

        return await self._store.write(work)

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
        shown: dict[int, object] = {}
        try:
            listen(await self._store.read(lambda books: [row.number for row in books.subnets()]))
            while True:
                stirred.clear()
                for number in list(pending):
                    del pending[number]
                    change = await self._store.read(partial(self._change, number=number, cluster=cluster))
                    if shown.get(number) != (said := _essence(change)):
                        shown[number] = said
                        yield change
                try:
                    async with asyncio.timeout(_HEARTBEAT):
                        await stirred.wait()
                except TimeoutError:
                    yield None
        finally:
            leave()

    def _change(self, books: Books, number: int, cluster: str) -> m.Change:
        wall = self._clock.wall()
        row = books.subnet_at(number)
        state = subnet_state(books, row, wall=wall)
        spare = 0 if state.frozen else Holdings(books, row, wall=wall).spare
        return m.Change(state=state, servable=tuple(servable(books, row, spare=spare, cluster=cluster)))

    async def _decide(self, work: Callable[[Books], T | LedgerError]) -> T:
        outcome = await self._store.write(work)
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome


def _essence(change: m.Change) -> object:
    """Tell what makes a change worth telling: not every grant, and not the passing of time."""
    state = change.state
    return state.scaler, state.exhausted, state.frozen, state.waiting, state.wishing, change.servable


def _found(books: Books, name: m.SubnetName) -> SubnetRow:
    row = books.subnet(name)
    if row is None:
        raise NotFound(f"there is no subnet {name}", field="subnet")
    return row


def _listing_answer(books: Books, listing: m.Listing, *, wall: float) -> m.ListingAnswer:
    disputed = {number for row in books.alarms() for number in (row.holder, row.claimant)}
    found = [books.container(each.container) for each in listing.containers]
    ours = [row if row and row.cluster == listing.cluster else None for row in found]
    results = [_listed(books, row, disputed, wall=wall) for row in ours]
    return m.ListingAnswer(revision=books.revision, results=tuple(results), alarms=alarms(books))


def _listed(books: Books, row: ContainerRow | None, disputed: set[int], *, wall: float) -> m.Result:
    if row is None:
        return m.Result(error=NotFound("the books do not have this container", field="container").problem)
    if row.number in disputed:
        return m.Result(error=TwoOwners(f"container {row.id} has a part in an alarm", field="container").problem)
    holdings = Holdings(books, books.subnet_at(row.subnet), wall=wall)
    return m.Result(state=container_state(holdings, row))

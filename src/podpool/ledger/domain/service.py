"""The ledger itself: each call as a work on the store, with the clock and the randomness that it was given.

`start` notices a restore; `run` does what time alone brings about; `stop` ends the streams. Several of these may stand
on one store. What a person asks for is in `admin`.
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
from podpool.ledger.admin_messages import PodReport, PodReportResponse
from podpool.ledger.domain.admin import AdminService
from podpool.ledger.domain.allocations import Allocations
from podpool.ledger.domain.circuit_breaker import BreakerSettings
from podpool.ledger.domain.convert import nc_record, nc_state, subnet_state
from podpool.ledger.domain.fencing import admit, begin_recovery, open_term
from podpool.ledger.domain.history import index_events, take_report, trim
from podpool.ledger.domain.reconcile import reconcile
from podpool.ledger.domain.recovery import conflicts, take_listing
from podpool.ledger.domain.settle import tend
from podpool.ledger.domain.subnet_transaction import SubnetTransaction
from podpool.ledger.domain.subnets import found
from podpool.ledger.domain.utilization_cache import UtilizationCache
from podpool.ledger.errors import LedgerError, NotFound, OwnershipDisputed, Unavailable
from podpool.ledger.domain.repository import BatchTransaction
from podpool.ledger.domain.rows import NetworkContainerRow
from podpool.ledger.domain.repository import Repository, LedgerStore
from podpool.runtime.clock import Clock

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TICK = 1.0
"""How late the ledger may notice that a rest or a hold is over."""
_TIDY = 10.0
"""How often the history is read and trimmed."""
_HEARTBEAT = 15.0
"""A stream that is silent for longer is told that it is still there."""


class LedgerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What may be set for a ledger as a whole."""

    brake: BreakerSettings = BreakerSettings()
    history: float = 30 * 86_400.0
    """For how many seconds the past is kept."""
    refresh: float = 0.0
    """How often utilisation is read from the books, in seconds; 0 reads it each time."""


class LedgerService:
    """The authority on subnets, on one store."""

    def __init__(self, store: LedgerStore, *, clock: Clock, rng: random.Random, settings: LedgerSettings | None = None) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._habits = settings or LedgerSettings()
        self._cache = UtilizationCache(store, clock=clock, rate=self._habits.refresh)
        self._streams: dict[int, asyncio.Event] = {}
        self._tickets = itertools.count()
        self._stopped = False
        self.admin = AdminService(
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
            lambda repo, restored: begin_recovery(
                repo, floor=restored.revision, members=restored.members, wall=self._clock.wall()
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
        for number in await self._store.read(lambda repo: repo.due(wall)):
            await self._store.write(partial(tend, number=number, wall=wall))

    async def tidy(self) -> None:
        """Read what happened into the history, and forget what is too old; a little at a time."""
        while await self._store.write(index_events):
            pass
        before = self._clock.wall() - self._habits.history
        while await self._store.write(lambda repo: trim(repo, before=before)):
            pass

    async def open_term(self, opening: m.OpenTermRequest) -> m.Term:
        """Give a cluster its next term."""
        wall = self._clock.wall()
        return await self._store.write(lambda repo: open_term(repo, opening, wall=wall))

    async def reconcile(self, call: m.ReconcileRequest) -> m.ReconcileResponse:
        """Bring containers to what they should be."""
        return await self._decide(BatchTransaction(self._reconcile, call))

    def _reconcile(self, repo: Repository, calls: Sequence[m.ReconcileRequest]) -> list[m.ReconcileResponse | LedgerError]:
        return reconcile(repo, calls, wall=self._clock.wall(), rng=self._rng, brake=self._habits.brake)

    async def take_pods(self, report: PodReport) -> PodReportResponse:
        """Write down which Pods of a cluster have which addresses."""
        return PodReportResponse(count=await self._store.write(lambda repo: take_report(repo, report)))

    async def take_listing(self, listing: m.Inventory) -> m.InventoryResponse:
        """Take in what a cluster has, if it is wanted."""
        wall = self._clock.wall()

        def work(repo: Repository) -> m.InventoryResponse | LedgerError:
            cluster = admit(repo, listing.cluster, term=listing.term, seen=listing.seen, wall=wall)
            if isinstance(cluster, LedgerError):
                return cluster
            if cluster.epoch < repo.epoch:
                take_listing(repo, listing, cluster, wall=wall)
            return _listing_answer(repo, listing, wall=wall)

        return await self._decide(work)

    async def ncs(self, cluster: str) -> m.NetworkContainerList:
        """Show the open containers of a cluster."""
        wall = self._clock.wall()

        def work(repo: Repository) -> m.NetworkContainerList:
            desks = {row.number: Allocations(repo, row, wall=wall) for row in repo.subnets()}
            records = [nc_record(desks[row.subnet], row) for row in repo.ncs(cluster)]
            return m.NetworkContainerList(revision=repo.revision, network_containers=tuple(records))

        return await self._store.read(work)

    async def create_subnet(self, new: m.SubnetSpec) -> m.SubnetState:
        """Make a subnet."""
        return await self.admin.create_subnet(new)

    async def subnets(self) -> m.SubnetList:
        """Show all subnets."""
        wall = self._clock.wall()
        return await self._store.read(
            lambda repo: m.SubnetList(
                revision=repo.revision,
                subnets=tuple(subnet_state(repo, row, wall=wall) for row in repo.subnets()),
            )
        )

    async def subnet(self, name: m.SubnetName) -> m.SubnetState:
        """Show one subnet."""
        wall = self._clock.wall()
        return await self._store.read(lambda repo: subnet_state(repo, found(repo, name), wall=wall))

    async def utilization(self, name: m.SubnetName) -> list[m.Utilization]:
        """Show how full a subnet is."""
        return [await self._cache.get(name)]

    async def changes(self, cluster: str) -> AsyncGenerator[m.SubnetChange | None, None]:
        """Follow all subnets for a cluster: each as it is, then as it changes; None now and then, as a sign of life.

        What changes while somebody is slow is told once, as it then is.
        """
        pending: dict[int, None] = {}
        stirred = asyncio.Event()

        def listen(changed: Sequence[int]) -> None:
            pending.update(dict.fromkeys(changed))
            stirred.set()

        leave = self._store.subscribe(listen)
        ticket = next(self._tickets)
        self._streams[ticket] = stirred
        shown: dict[int, m.SubnetChange] = {}
        try:
            listen(await self._store.read(lambda repo: [row.number for row in repo.subnets()]))
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

    def _change(self, repo: Repository, number: int, cluster: str) -> m.SubnetChange | None:
        wall = self._clock.wall()
        try:
            row = repo.subnet_by_number(number)
        except LookupError:  # deleted
            return None
        desk = SubnetTransaction(repo, row, wall=wall)
        return m.SubnetChange(state=desk.state, servable=tuple(desk.servable(cluster)))

    async def _decide(self, work: Callable[[Repository], T | LedgerError]) -> T:
        outcome = await self._store.write(work)
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome


def _essence(change: m.SubnetChange) -> object:
    """Tell what makes a change worth telling: not every grant, and not the passing of time."""
    state = change.state
    return (
        state.subnet,
        state.scaler,
        state.exhausted,
        state.frozen,
        state.waiting,
        state.waiting_for_buffer,
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


def _listing_answer(repo: Repository, listing: m.Inventory, *, wall: float) -> m.InventoryResponse:
    disputed = {number for row in repo.conflicts() for number in (row.holder, row.claimant)}
    found = [repo.nc(each.nc_id) for each in listing.network_containers]
    ours = [row if row and row.cluster == listing.cluster else None for row in found]
    own = {row.id for row in ours if row}
    raised = tuple(each for each in conflicts(repo) if own & {each.holder, each.claimant})
    results = [_listed(repo, row, disputed, wall=wall) for row in ours]
    return m.InventoryResponse(revision=repo.revision, results=tuple(results), conflicts=raised)


def _listed(repo: Repository, row: NetworkContainerRow | None, disputed: set[int], *, wall: float) -> m.NetworkContainerResult:
    if row is None:
        return m.NetworkContainerResult(error=NotFound("the books do not have this container", field="nc_id").problem)
    if row.number in disputed:
        return m.NetworkContainerResult(error=OwnershipDisputed(f"container {row.id} has a part in an alarm", field="nc_id").problem)
    allocations = Allocations(repo, repo.subnet_by_number(row.subnet), wall=wall)
    return m.NetworkContainerResult(state=nc_state(allocations, row))

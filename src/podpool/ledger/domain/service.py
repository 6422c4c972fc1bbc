"""The ledger service: each call is a transaction on the store, with the clock and randomness that were passed in.

`start` checks for a rollback of the database; `run` runs the timers; `stop` ends the streams. Several services may
share one store. Administrative calls are in `admin`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger import messages as m
from podpool.ledger.admin_messages import PodReport, PodReportResponse
from podpool.ledger.domain.admin import AdminService
from podpool.ledger.domain.allocations import Allocations
from podpool.ledger.domain.change_feed import ChangeFeeds
from podpool.ledger.domain.cluster_usage import count_missing, uncounted_networks
from podpool.ledger.domain.controller_terms import begin_recovery, check_term, open_term
from podpool.ledger.domain.history import index_all, record_pods, trim
from podpool.ledger.domain.ledger_time import LedgerClock
from podpool.ledger.domain.networks import KnownNetworks
from podpool.ledger.domain.periodic_tasks import PeriodicTasks
from podpool.ledger.domain.reconcile import reconcile
from podpool.ledger.domain.recovery import apply_inventory, inventory_response
from podpool.ledger.domain.repository import BatchTransaction, LargeTransaction, LedgerStore, Repository, Rollback
from podpool.ledger.domain.row_to_message import nc_record, subnet_state, utilization
from podpool.ledger.domain.subnet_reevaluation import reevaluate_due
from podpool.ledger.domain.subnets import existing_subnet
from podpool.ledger.domain.token_scope import current_scope, with_refusals, within_scope
from podpool.ledger.errors import LedgerError
from podpool.runtime.clock import Clock
from podpool.runtime.logging import get_logger

T = TypeVar("T")

log = get_logger(__name__)

_TIMER_INTERVAL = 1.0
"""How late the end of a cooldown or a hold may be processed."""
_HISTORY_INTERVAL = 10.0
_UTILIZATION_EXPIRY = 600.0
"""Seconds after the last request in which a subnet's utilization is refreshed."""


class LedgerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the ledger as a whole, in seconds."""

    breaker: BreakerSettings = BreakerSettings()
    history_retention: float = 30 * 86_400.0
    utilization_refresh: float = 0.0
    """How often cached utilization is read again; 0 reads it for each request."""


class _CachedUtilization(msgspec.Struct, frozen=True):
    """A cached value, and when it was last requested."""

    utilization: m.Utilization
    requested_at: float


class UtilizationCache:
    """A pull-through cache of subnet utilization; with an interval of 0 every request reads the database.

    A subnet that was requested is read again at the interval, until it was not requested for `_UTILIZATION_EXPIRY`. So
    requests cost the database nothing; a value is as old as the interval, or as the last contact with the database.
    """

    def __init__(self, store: LedgerStore, *, clock: LedgerClock, interval: float) -> None:
        self._store = store
        self._clock = clock
        self._interval = interval
        self._entries: dict[m.SubnetName, _CachedUtilization] = {}

    async def get(self, name: m.SubnetName) -> m.Utilization:
        """Return the utilization of a subnet."""
        cached = self._entries.get(name)
        if cached:
            value = cached.utilization
        else:
            value = await self._store.read(lambda repo: self._read(repo, name), network=name.network)
        if self._interval:
            self._entries[name] = _CachedUtilization(value, self._clock.boot())
        return value

    def invalidate(self, name: m.SubnetName) -> None:
        """Drop a subnet from the cache."""
        self._entries.pop(name, None)

    async def refresh(self) -> None:
        """Read every recently requested subnet again, in one transaction."""
        since = self._clock.boot() - _UTILIZATION_EXPIRY
        recent = {name: each.requested_at for name, each in self._entries.items() if each.requested_at > since}
        values = await self._store.query(partial(self._read_all, names=recent)) if recent else {}
        self._entries = {name: _CachedUtilization(value, recent[name]) for name, value in values.items()}

    def _read_all(self, repo: Repository, names: Collection[m.SubnetName]) -> dict[m.SubnetName, m.Utilization]:
        now = self._clock.now(repo)
        return {row.name: utilization(repo, row, time=now) for row in repo.subnets() if row.name in names}

    def _read(self, repo: Repository, name: m.SubnetName) -> m.Utilization:
        return utilization(repo, existing_subnet(repo, name), time=self._clock.now(repo))


class LedgerService:
    """The authority for subnets, on one store."""

    def __init__(
        self, store: LedgerStore, *, clock: Clock, rng: random.Random, settings: LedgerSettings | None = None
    ) -> None:
        self._store = store
        self._clock = LedgerClock(clock)
        self._rng = rng
        self._settings = settings or LedgerSettings()
        self._utilization = UtilizationCache(store, clock=self._clock, interval=self._settings.utilization_refresh)
        self._networks = KnownNetworks(store)
        self._feeds = ChangeFeeds(store, clock=self._clock)
        self.tasks = PeriodicTasks()
        self.admin = AdminService(
            store,
            clock=self._clock,
            rng=rng,
            breaker=self._settings.breaker,
            retention=self._settings.history_retention,
            on_delete=self._utilization.invalidate,
        )

    async def start(self) -> None:
        """Begin recovery of the networks that were rolled back."""
        await self._store.begin(self._recover)
        await self._store.write(self._clock.save)
        for network in await self._store.query(uncounted_networks):
            await self._store.write(count_missing, network=network)

    def _recover(self, repo: Repository, rollback: Rollback) -> None:
        if not repo.network:  # it has nothing that a caller could hold
            repo.advance_revision(floor=rollback.revision)
            return
        log.warning(
            "database is older than the last response, recovery started; see `podpool ledger recovery status`",
            network=repo.network,
            revision=rollback.revision,
        )
        begin_recovery(repo, floor=rollback.revision, members=rollback.members, time=self._clock.now(repo))
        count_missing(repo)  # a backup of an earlier version may have been restored

    async def run(self) -> None:
        """Run the timers until cancelled."""
        tasks = self.tasks
        async with asyncio.TaskGroup() as group:
            group.create_task(tasks.run_periodically("timers", self.run_due_timers, seconds=_TIMER_INTERVAL))
            group.create_task(tasks.run_periodically("history", self.maintain_history, seconds=_HISTORY_INTERVAL))
            refresh = self._settings.utilization_refresh
            if refresh:
                group.create_task(tasks.run_periodically("utilization", self._utilization.refresh, seconds=refresh))

    def stop(self) -> None:
        """End every stream; clients reconnect to another replica."""
        self._feeds.stop()

    async def run_due_timers(self) -> None:
        """Re-evaluate the subnets whose timer has expired: cooldowns, holds, notices."""
        if self._clock.save_due:
            await self._store.write(self._clock.save)
        for network, number in await self._store.query(lambda repo: repo.due(self._clock.now(repo))):
            reevaluation = self._store.write(partial(self._reevaluate_due, number=number), network=network)
            await self.tasks.contain("timers", reevaluation, subnet=number)

    def _reevaluate_due(self, repo: Repository, number: int) -> None:
        reevaluate_due(repo, number, time=self._clock.now(repo))

    async def maintain_history(self) -> None:
        """Index new events into the history and delete expired history, a little at a time."""
        await index_all(self._store)
        while await self._store.write(self._trim):
            pass

    def _trim(self, repo: Repository) -> bool:
        return trim(repo, before=self._clock.now(repo) - self._settings.history_retention)

    async def open_term(self, request: m.OpenTermRequest) -> m.Term:
        """Issue a cluster's next term in a network."""
        network = await self._networks.existing(request.network)
        transaction = partial(self._open_term, request=request)
        term = await self._store.write(transaction, network=network)
        fields = {"network": network, "term": term.term, "inventory_required": term.inventory_required}
        log.info("controller leader registered, earlier leaders are fenced", cluster=request.cluster, **fields)
        return term

    def _open_term(self, repo: Repository, request: m.OpenTermRequest) -> m.Term:
        return open_term(repo, request, time=self._clock.now(repo))

    async def reconcile(self, request: m.ReconcileRequest) -> m.ReconcileResponse:
        """Bring NCs of a network to their desired state."""
        scope = current_scope()
        permitted = within_scope(request, scope)
        network = await self._networks.existing(request.network)
        transaction = BatchTransaction(self._reconcile, permitted, weight=len(permitted.items))
        return with_refusals(await self._write(transaction, network=network), request.items, scope)

    def _reconcile(
        self, repo: Repository, requests: Sequence[m.ReconcileRequest]
    ) -> list[m.ReconcileResponse | LedgerError]:
        return reconcile(repo, requests, time=self._clock.now(repo), rng=self._rng, breaker=self._settings.breaker)

    async def record_pods(self, report: PodReport) -> PodReportResponse:
        """Record which Pods of a cluster use which addresses."""
        return PodReportResponse(count=await self._store.write(lambda repo: record_pods(repo, report)))

    async def apply_inventory(self, inventory: m.Inventory) -> m.InventoryResponse:
        """Apply a cluster's inventory of a network, if it is required."""

        def transaction(repo: Repository) -> m.InventoryResponse | LedgerError:
            now, term, seen = self._clock.now(repo), inventory.term, inventory.known_revision
            cluster = check_term(repo, inventory.cluster, term=term, known_revision=seen, time=now)
            if isinstance(cluster, LedgerError):
                return cluster
            if cluster.epoch < repo.epoch:
                apply_inventory(repo, inventory, cluster, time=now)
            return inventory_response(repo, inventory, time=now)

        network = await self._networks.existing(inventory.network)
        return await self._write(
            LargeTransaction(transaction, weight=len(inventory.network_containers)), network=network
        )

    async def network_containers(self, cluster: str, *, network: str | None = None) -> m.NetworkContainerList:
        """Return the open NCs of a cluster, in one network or all."""

        def transaction(repo: Repository) -> m.NetworkContainerList:
            now = self._clock.now(repo)
            allocations = {row.number: Allocations(repo, row, time=now) for row in repo.subnets()}
            shown = ((allocations[nc.subnet], nc) for nc in repo.ncs(cluster))
            records = [nc_record(own, nc) for own, nc in shown if network in (None, own.subnet.name.network)]
            return m.NetworkContainerList(revision=repo.revision, network_containers=tuple(records))

        return await self._store.query(transaction)

    async def subnets(self) -> m.SubnetList:
        """Return all subnets that the caller may use."""
        scope = current_scope()

        def transaction(repo: Repository) -> m.SubnetList:
            now = self._clock.now(repo)
            rows = [row for row in repo.subnets() if scope.allows(row.name)]
            return m.SubnetList(
                revision=repo.revision, subnets=tuple(subnet_state(repo, row, time=now) for row in rows)
            )

        return await self._store.query(transaction)

    async def subnet(self, name: m.SubnetName) -> m.SubnetState:
        """Return one subnet."""
        current_scope().check(name)
        await self._networks.check_subnet(name)
        return await self._store.read(
            lambda repo: subnet_state(repo, existing_subnet(repo, name), time=self._clock.now(repo)),
            network=name.network,
        )

    async def utilization(self, name: m.SubnetName) -> list[m.Utilization]:
        """Return the utilization of a subnet."""
        current_scope().check(name)
        await self._networks.check_subnet(name)
        return [await self._utilization.get(name)]

    def changes(self, cluster: str, *, network: str = "") -> AsyncGenerator[m.SubnetChange | None, None]:
        """Yield the state of each subnet of a network or all, then its changes, for a cluster; None is a heartbeat."""
        return self._feeds.follow(cluster, network=network, scope=current_scope())

    async def _write(self, transaction: Callable[[Repository], T | LedgerError], *, network: str) -> T:
        """Run a transaction that may return an error, so that its changes are committed nevertheless."""
        result = await self._store.write(transaction, network=network)
        if isinstance(result, LedgerError):
            raise result
        return result

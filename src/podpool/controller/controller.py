"""The controller of one cluster: informers, leader election by Lease, and the tasks that run while it is the leader.

The informers run on every replica, so that a new leader starts with filled caches. What writes for the ledger runs
within a term of the ledger and stops with it. Slices need no ledger, and are reconciled as long as leadership lasts.
"""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps, ControllerInformers, SliceDeps
from podpool.controller.events import ControllerEvents
from podpool.controller.ledger_health import LedgerConditionWriter, LedgerHealth
from podpool.controller.ledger_term_runner import LedgerTermRunner
from podpool.controller.metrics import ControllerMetrics, ControllerSnapshot
from podpool.controller.nnc_conversion import subnet_of
from podpool.controller.reconcile_batcher import LeaderTerm
from podpool.controller.recovery_inventory import send_inventory
from podpool.controller.settings import ControllerSettings
from podpool.controller.slices.controller import SliceController
from podpool.controller.slices.informers import SliceControllerInformers
from podpool.controller.startup_check import LedgerCheck, with_flag
from podpool.controller.subnet_ranges import SubnetRanges
from podpool.core.errors import PodpoolError
from podpool.kube.backoff import Backoff
from podpool.kube.client import KubeClient
from podpool.kube.cluster_discovery import cluster_uid
from podpool.kube.events import EventRecorder
from podpool.kube.leader_election import LeaderElector, LeadershipLost
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import InventoryRequired, NotFound, StaleTerm
from podpool.ledger.messages import OpenTermRequest
from podpool.runtime.clock import Clock
from podpool.runtime.entropy import new_uuid
from podpool.runtime.logging import get_logger
from podpool.runtime.process import HealthCheck
from podpool.runtime.supervision import keep_running, report_defect

LEASE = "podpool-controller"
BACKOFF_BASE, BACKOFF_MAX = 0.2, 30.0

log = get_logger(__name__)


class Controller:
    """Runs until cancelled; without a ledger it reconciles only slices."""

    def __init__(
        self,
        kube: KubeClient,
        ledger: LedgerClient | None,
        *,
        settings: ControllerSettings,
        clock: Clock,
        rng: random.Random,
        host: str = "",
    ) -> None:
        self._kube = kube
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._identity = "_".join(filter(None, (host, new_uuid(rng))))
        self._informers = ControllerInformers(kube, settings=settings, rng=rng, ledger=ledger is not None)
        self._slice_informers = SliceControllerInformers(kube, settings=settings, rng=rng)
        self._recorder = EventRecorder(kube, component=LEASE, instance=self._identity, clock=clock, rng=rng)
        self._events = ControllerEvents(self._recorder)
        self._metrics = ControllerMetrics()
        self._subnet_ranges = SubnetRanges()
        self._health = LedgerHealth()
        self._check = (
            LedgerCheck(ledger, self._informers.nodes, self._health, settings=settings, rng=rng) if ledger else None
        )
        self._holder = ""
        """The replica that held the Lease when this one last read it as a standby; it may have crashed since."""
        self._term_failure = ""
        """Why the last term failed, or could not be opened."""
        self._elector = self._new_elector()
        self._allocations: LedgerTermRunner | None = None
        self._slices: SliceController | None = None
        self._cluster = ""
        self._terms: dict[str, LeaderTerm] = {}
        """The last term of this replica in each network, with the last revision that it has seen there."""

    async def run(self) -> None:
        """Run the informers, and reconcile while this replica is the leader."""
        async with asyncio.TaskGroup() as group:
            for part in (self._informers, self._slice_informers, self._recorder, self._check):
                if part:
                    group.create_task(keep_running(part.run, log, part=type(part).__name__))
            await self._informers.synced()
            self._cluster = await cluster_uid(self._kube, rng=self._rng)
            while True:
                try:
                    await self._elector.run(self._lead, on_standby=self._on_standby)
                except LeadershipLost as error:
                    log.warning("leadership lost, this replica does not reconcile before it leads again", error=error)
                self._elector = self._new_elector()

    def health_checks(self) -> Sequence[HealthCheck]:
        """Return the checks of `/readyz`. A standby is ready: it can take over."""
        caches = self._informers.failure() or ("" if self._cluster else "the cluster ID is not known yet")
        checks = [HealthCheck("caches", caches)]
        if self._check:
            checks += [*self._check.checks(), HealthCheck("ledger term", "" if self._terms else self._term_failure)]
        return (*checks, HealthCheck("leader election", note=self._role()))

    def render_metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        allocations, slices = self._allocations, self._slices
        return self._metrics.render(
            ControllerSnapshot(
                leader=self._elector.is_leader,
                ledger_unreachable_seconds=self._health.unreachable_seconds,
                node_gc_paused=allocations.node_gc_paused if allocations else False,
                queues={**(allocations.queues if allocations else {}), **(slices.queues if slices else {})},
                slices=slices.metrics() if slices else {},
                slices_inventory_pending=slices.inventory_pending if slices else 0,
                slices_node_gc_paused=slices.node_gc_paused if slices else False,
                subnets=allocations.subnet_metrics() if allocations else {},
                pod_addresses_pending=allocations.pod_addresses_pending if allocations else 0,
            )
        )

    def _role(self) -> str:
        if self._elector.is_leader:
            return "this replica leads"
        return f"waiting for the Lease, held by {self._holder}" if self._holder else "no leader known"

    def _on_standby(self, holder: str) -> None:
        self._holder = holder
        self._term_failure = ""  # a standby opens no term
        log.info("waiting for the Lease", identity=self._identity, holder=holder)

    def _new_elector(self) -> LeaderElector:
        return LeaderElector(
            self._kube,
            name=LEASE,
            namespace=self._settings.namespace,
            identity=self._identity,
            clock=self._clock,
            rng=self._rng,
            timing=self._settings.election,
        )

    def _require_leadership(self) -> None:
        """Refuse writes after the Lease has expired: a paused process resumes before any timer cancels its tasks."""
        if not self._elector.is_leader:
            raise LeadershipLost(LEASE)

    async def _lead(self) -> None:
        """Reconcile slices and run one ledger term after the other, as long as the leadership lasts."""
        self._holder = ""
        log.info("leadership acquired", identity=self._identity)
        kube = self._kube.with_write_guard(self._require_leadership)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_slices(kube))
            if self._ledger is not None:
                group.create_task(self._run_terms(kube, self._ledger))

    async def _run_slices(self, kube: KubeClient) -> None:
        self._subnet_ranges.seed(self._informers.nncs.values())
        deps = SliceDeps(**self._common_deps(kube), nodes=self._informers.nodes, informers=self._slice_informers)
        backoff = self._new_backoff()
        while True:
            self._slices = SliceController(deps)
            try:
                await self._slices.run()
            except* PodpoolError as errors:
                log.warning("slice controller failed, restarting", error=errors.exceptions[0])
            except* Exception as errors:  # noqa: BLE001  a defect must not end the controller
                report_defect(log, "slice controller failed unexpectedly, restarting", errors)
            finally:
                self._slices = None
            await backoff.wait()

    async def _run_terms(self, kube: KubeClient, ledger: LedgerClient) -> None:
        deps = ControllerDeps(**self._common_deps(kube), ledger=ledger, informers=self._informers)
        async with asyncio.TaskGroup() as group:
            condition = LedgerConditionWriter(kube, self._health, self._informers.subnets, clock=self._clock)
            group.create_task(condition.run())
            backoff = self._new_backoff()
            while True:
                try:
                    await self._run_term(deps)
                except* (StaleTerm, InventoryRequired) as errors:
                    backoff.reset()
                    log.warning(
                        "ledger rejected this leader's term, opening a new one",
                        error=errors.exceptions[0],
                    )
                except* PodpoolError as errors:
                    self._term_failure = with_flag(_first_error(errors))
                    log.warning("reconciling with the ledger failed, retrying", error=self._term_failure)
                except* Exception as errors:  # noqa: BLE001  a defect must not end the controller
                    self._term_failure = f"unexpected: {errors.exceptions[0]}"
                    report_defect(log, "reconciling with the ledger failed unexpectedly, retrying", errors)
                finally:
                    self._allocations = None
                await backoff.wait()

    async def _run_term(self, deps: ControllerDeps) -> None:
        terms = await self._open_terms(deps)
        allocations = AllocationCache()
        listed = await self._health.call(deps.ledger.network_containers(self._cluster))
        opened = {term.network for term in terms}
        allocations.load(tuple(each for each in listed.network_containers if each.state.subnet.network in opened))
        for network in dict.fromkeys(each.state.subnet.network for each in listed.network_containers):
            if network not in opened:  # what it had may have changed since it was listed
                terms.append(await self._open_term(deps, network))
                records = await self._health.call(deps.ledger.network_containers(self._cluster, network=network))
                allocations.load(records.network_containers, network=network)
        open_term = partial(self._open_term, deps)
        self._allocations = LedgerTermRunner(
            deps, self._health, allocations, terms, cluster=self._cluster, open_term=open_term
        )
        try:
            await self._allocations.run()
        finally:
            for network, seen in self._allocations.session.seen.items():
                self._terms[network] = replace(self._terms[network], seen=max(self._terms[network].seen, seen))

    async def _open_terms(self, deps: ControllerDeps) -> list[LeaderTerm]:
        """Open a term in each network that Nodes or NNCs name; one that does not exist is left out, unless all do."""
        informers, settings = self._informers, self._settings
        networks = {subnet_of(node, settings).network for node in informers.nodes.values()}
        networks |= {nc.vnet_id for nnc in informers.nncs.values() for nc in nnc.status.network_containers}
        terms: list[LeaderTerm] = []
        missing: NotFound | None = None
        for network in sorted({settings.subnet.network, *self._terms, *filter(None, networks)}):
            try:
                terms.append(await self._open_term(deps, network))
            except NotFound as error:
                missing = error
        if missing is not None and not terms:
            raise missing
        return terms

    async def _open_term(self, deps: ControllerDeps, network: str) -> LeaderTerm:
        """Open a term in a network, and send an inventory of the cluster if the ledger asks for it."""
        known = self._terms.get(network) or LeaderTerm(self._cluster, network, 0, 0)
        request = OpenTermRequest(
            cluster=self._cluster, network=network, known_term=known.term, known_revision=known.seen
        )
        opened = await self._health.call(deps.ledger.open_term(request))
        term = LeaderTerm(self._cluster, network, opened.term, max(known.seen, opened.revision))
        self._terms[network] = term
        event = "ledger term opened" + (
            ", the inventory of all nodes is sent first" if opened.inventory_required else ""
        )
        log.info(event, network=network, term=term.term)
        if opened.inventory_required:
            response = await send_inventory(
                deps.kube,
                deps.ledger,
                term,
                self._settings,
                health=self._health,
                backoff=self._new_backoff(),
                number=self._rng.getrandbits(48) + 1,
            )
            for conflict in response.conflicts:
                owners = {"subnet": conflict.subnet, "nc": conflict.holder, "claimant": conflict.claimant}
                event = "address has two owners, resolve it with `podpool ledger recovery resolve`"
                log.error(event, address=conflict.address, **owners)
        return term

    def _common_deps(self, kube: KubeClient) -> dict[str, Any]:
        recording = {"events": self._events, "metrics": self._metrics}
        shared = {"settings": self._settings, "subnet_ranges": self._subnet_ranges}
        return {"kube": kube, **recording, **shared, "clock": self._clock, "rng": self._rng}

    def _new_backoff(self) -> Backoff:
        return Backoff(rng=self._rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)


def _first_error(errors: ExceptionGroup[PodpoolError]) -> PodpoolError:
    first = errors.exceptions[0]
    return _first_error(first) if isinstance(first, ExceptionGroup) else first

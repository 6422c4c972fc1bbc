"""The controller of one cluster: mirrors on its objects, one leader by Lease, and a term of the ledger for each lead.

The mirrors are always kept, so that a new leader has them at once. What writes for the ledger runs inside a term, and
ends with it; what writes for slices needs no ledger, and goes on for as long as the lead lasts.
"""

import asyncio
import logging
import random

from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps
from podpool.controller.events import ControllerEvents
from podpool.controller.informers import ControllerInformers
from podpool.controller.inventory import send_listing
from podpool.controller.leader import AllocationController
from podpool.controller.ledger_health import LedgerConditionWriter, LedgerHealth
from podpool.controller.ledger_session import LeaderTerm
from podpool.controller.metrics import ControllerSnapshot, Metrics
from podpool.controller.settings import ControllerSettings
from podpool.controller.slices.controller import SliceController
from podpool.controller.slices.deps import SliceDeps
from podpool.controller.slices.events import ControllerEvents
from podpool.controller.slices.informers import SliceInformers
from podpool.core.errors import PodpoolError
from podpool.kube.backoff import backoff
from podpool.kube.client import KubeClient
from podpool.kube.cluster_id import cluster_uid
from podpool.kube.events import EventRecorder
from podpool.kube.leader_election import LeaderElector, LeadershipLost
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import InventoryRequired, StaleTerm
from podpool.ledger.messages import OpenTermRequest, Term
from podpool.runtime.clock import Clock
from podpool.runtime.entropy import new_uuid

LEASE = "podpool-controller"
BACKOFF_BASE, BACKOFF_MOST = 0.2, 30.0

_log = logging.getLogger(__name__)


class Controller:
    """`run` until cancelled; without a ledger it looks after slices alone."""

    def __init__(
        self,
        kube: KubeClient,
        ledger: LedgerClient | None,
        *,
        settings: ControllerSettings,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._kube = kube
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._identity = new_uuid(rng)
        self._mirrors = ControllerInformers(kube, settings=settings, rng=rng, ledger=ledger is not None)
        self._slice_mirrors = SliceInformers(kube, settings=settings, rng=rng)
        self._recorder = EventRecorder(kube, component=LEASE, instance=self._identity, clock=clock, rng=rng)
        self._metrics = Metrics()
        self._presence = LedgerHealth()
        self._elector = self._candidate()
        self._work: AllocationController | None = None
        self._slices: SliceController | None = None
        self._cluster = ""
        self._term = 0
        self._seen = 0

    async def run(self) -> None:
        """Mirror, and lead whenever it is this one's turn."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mirrors.run())
            group.create_task(self._slice_mirrors.run())
            group.create_task(self._recorder.run())
            await self._mirrors.synced()
            self._cluster = await cluster_uid(self._kube, rng=self._rng)
            while True:
                try:
                    await self._elector.run(self._lead)
                except LeadershipLost as error:
                    _log.warning("%s", error)
                self._elector = self._candidate()

    def missing(self) -> str | None:
        """Tell what stands in the way of being ready; following another leader is ready."""
        return None if self._cluster else "the cluster's objects have not been listed yet"

    def page(self) -> bytes:
        """Write down the metrics."""
        work, slices = self._work, self._slices
        return self._metrics.page(
            ControllerSnapshot(
                leading=self._elector.leading,
                ledger_away=self._presence.away,
                braked=work.braked if work else False,
                queues={**(work.queues if work else {}), **(slices.queues if slices else {})},
                slices=slices.meters() if slices else {},
                subnets=work.meters() if work else {},
                unreported_pods=work.unreported_pods if work else 0,
            )
        )

    def _candidate(self) -> LeaderElector:
        return LeaderElector(
            self._kube,
            name=LEASE,
            namespace=self._settings.namespace,
            identity=self._identity,
            clock=self._clock,
            rng=self._rng,
            timing=self._settings.election,
        )

    def _must_lead(self) -> None:
        """Refuse to write for one who does not lead any more: a paused process goes on before any timer ends it."""
        if not self._elector.leading:
            raise LeadershipLost(LEASE)

    async def _lead(self) -> None:
        """Look after slices, and serve one term of the ledger after the other, for as long as the lead lasts."""
        kube = self._kube.permitted(self._must_lead)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_after_slices(kube))
            if self._ledger is not None:
                group.create_task(self._serve_terms(kube, self._ledger))

    async def _look_after_slices(self, kube: KubeClient) -> None:
        ground = SliceDeps(
            kube=kube,
            nodes=self._mirrors.nodes,
            mirrors=self._slice_mirrors,
            telling=ControllerEvents(self._recorder),
            metrics=self._metrics,
            settings=self._settings,
            clock=self._clock,
            rng=self._rng,
        )
        failures = 0
        while True:
            self._slices = SliceController(ground)
            try:
                await self._slices.run()
            except* PodpoolError as trouble:
                failures += 1
                _log.warning("slices are looked after later: %s", trouble.exceptions[0])
            finally:
                self._slices = None
            await asyncio.sleep(self._patience(failures))

    async def _serve_terms(self, kube: KubeClient, ledger: LedgerClient) -> None:
        ground = ControllerDeps(
            kube=kube,
            ledger=ledger,
            mirrors=self._mirrors,
            herald=ControllerEvents(self._recorder),
            metrics=self._metrics,
            settings=self._settings,
            clock=self._clock,
            rng=self._rng,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(
                LedgerConditionWriter(kube, self._presence, self._mirrors.subnets, clock=self._clock).run()
            )
            failures = 0
            while True:
                try:
                    await self._serve_term(ground)
                except* (StaleTerm, InventoryRequired) as ended:
                    failures = 0
                    _log.warning("the term has ended: %s", ended.exceptions[0])
                except* PodpoolError as trouble:
                    failures += 1
                    _log.warning("the term broke off: %s", trouble.exceptions[0])
                finally:
                    self._work = None
                await asyncio.sleep(self._patience(failures + 1))

    async def _serve_term(self, ground: ControllerDeps) -> None:
        term = await self._open(ground)
        books = AllocationCache()
        books.load((await self._presence.ask(ground.ledger.containers(self._cluster))).containers)
        self._work = AllocationController(
            ground, self._presence, books, LeaderTerm(self._cluster, term.term, self._seen)
        )
        try:
            await self._work.run()
        finally:
            self._seen = max(self._seen, self._work.session.seen)

    async def _open(self, ground: ControllerDeps) -> Term:
        """Take a term, and tell what the cluster has if the ledger wants to know."""
        opening = OpenTermRequest(cluster=self._cluster, known=self._term, seen=self._seen)
        term = await self._presence.ask(ground.ledger.open_term(opening))
        self._term, self._seen = term.term, max(self._seen, term.revision)
        if term.listing_wanted:
            answer = await send_listing(
                ground.kube,
                ground.ledger,
                cluster=self._cluster,
                term=term.term,
                seen=self._seen,
                settings=self._settings,
            )
            for alarm in answer.alarms:
                _log.error("%s has two owners in %s: a person must settle it", alarm.address, alarm.subnet)
        return term

    def _patience(self, failures: int) -> float:
        return backoff(failures, rng=self._rng, base=BACKOFF_BASE, most=BACKOFF_MOST)

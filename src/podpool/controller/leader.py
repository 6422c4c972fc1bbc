"""All that writes, for one term of the ledger: it ends with the term, and leaves nothing behind."""

import asyncio
from collections.abc import Iterable

from podpool.api.meta import KubeObject
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.convert import subnet_of
from podpool.controller.deps import ControllerDeps
from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.ledger_session import LeaderTerm, LedgerSession
from podpool.controller.metrics import SubnetMetrics
from podpool.controller.nnc_gc import OrphanNNCGC
from podpool.controller.nnc_reconciler import NNCReconciler
from podpool.controller.node_gc import NodeGC
from podpool.controller.node_reconciler import NodeReconciler
from podpool.controller.pod_usage import PodUsageReporter
from podpool.controller.subnet_reconciler import SubnetReconciler
from podpool.kube.workqueue import WorkQueue, run_workers
from podpool.ledger.messages import NetworkContainerRecord, ReconcileResponse, SubnetChange

RESYNC = 300.0
"""Seconds after which every node is compared with the ledger again, whatever happened."""
AT_ONCE = 256
"""Nodes that are worked on at the same time; how many requests there are at once is the transport's business."""


class AllocationController:
    """Reconcilers on keys, and the session that they share."""

    def __init__(
        self, ground: ControllerDeps, presence: LedgerHealth, books: AllocationCache, lead: LeaderTerm
    ) -> None:
        self.queues = {"nodes": WorkQueue(rng=ground.rng), "subnets": WorkQueue(rng=ground.rng)}
        self._ground = ground
        self._mirrors = ground.mirrors
        self._books = books
        self._lead = lead
        self.session = LedgerSession(
            ground.ledger, lead, hear=self._hear, load=self._load, presence=presence, rng=ground.rng
        )
        self._subnets = SubnetReconciler(ground, presence, look=self.queues["subnets"].add, moved=self._moved)
        self._served = NNCReconciler(ground, self.session, books, self._subnets)
        self._nodes = NodeReconciler(ground, books, self._subnets, self._served)
        self._gone = NodeGC(ground, self.session, books, reconciler=self._nodes)
        self._garbage = OrphanNNCGC(ground, books, reconciler=self._nodes)
        self._pods = PodUsageReporter(ground, books, cluster=lead.cluster)

    @property
    def braked(self) -> bool:
        """Whether nothing is given up because too much was lost at once."""
        return self._gone.braked

    @property
    def unreported_pods(self) -> int:
        """Count the addresses of Pods that the ledger is still to be told."""
        return self._pods.unreported

    def meters(self) -> dict[str, SubnetMetrics]:
        """Tell how each subnet is, by its name."""
        told = {}
        for name, offer in self._subnets.offers().items():
            count, longest = self._served.waiting(name)
            told[name] = SubnetMetrics(
                exhausted=offer.exhausted, batch=offer.scaler.batch, nodes_waiting=count, longest_wait=longest
            )
        return told

    async def run(self) -> None:
        """Work until the term ends: raises why, in a group."""
        mirrors, metrics = self._mirrors, self._ground.metrics
        endings = [
            mirrors.nodes.subscribe(self._node_changed),
            mirrors.configs.subscribe(self._node_changed),
            mirrors.subnets.subscribe(self._subnet_changed),
            mirrors.states.subscribe(self._subnet_changed),
        ]
        self._subnets.use(self._ground.settings.subnet)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.session.run())
                for name, reconcile, workers in (
                    ("nodes", self._nodes.reconcile, AT_ONCE),
                    ("subnets", self._subnets.reconcile, 4),
                ):
                    group.create_task(run_workers(self.queues[name], metrics.timed(name, reconcile), workers=workers))
                group.create_task(self._subnets.follow(self._lead.cluster, self._serve))
                group.create_task(self._subnets.poll())
                group.create_task(self._gone.run())
                group.create_task(self._garbage.run())
                group.create_task(self._resync())
                if self._ground.settings.pod_history:
                    group.create_task(self._pods.run())
        finally:
            for end in endings:
                end()

    async def _resync(self) -> None:
        while True:
            known = (record.node for record in self._books.values())
            shown = (config.metadata.name for config in self._mirrors.configs.values())
            self._look_anyway((*self._mirrors.nodes, *known, *shown))
            await asyncio.sleep(RESYNC)

    def _look_anyway(self, names: Iterable[str]) -> None:
        """Look at nodes, and ask the ledger about each, whether something of theirs has changed or not."""
        names = tuple(names)
        self._served.doubt(names)
        for name in names:
            self.queues["nodes"].add(name)

    def _load(self, records: tuple[NetworkContainerRecord, ...]) -> None:
        self._books.load(records)
        self._look_anyway(record.node for record in records)

    def _hear(self, answer: ReconcileResponse) -> None:
        for state in answer.subnets:
            self._subnets.hear(state)
        self._serve_containers(answer.servable)

    def _serve(self, change: SubnetChange) -> None:
        if change.state.frozen:
            self.session.doubt()  # the ledger may have been restored, and wait for our list
        self._serve_containers(change.servable)

    def _serve_containers(self, containers: tuple[str, ...]) -> None:
        """Look again at nodes that were answered short and can be given something now."""
        records = (self._books.get(container) for container in containers)
        self._look_anyway(record.node for record in records if record is not None)

    def _moved(self, subnet: str) -> None:
        """Look again at the nodes of a subnet: what agents are told of it has changed."""
        for node in self._mirrors.nodes.values():
            record = self._books.of_name(node.metadata.name)
            if subnet == (record.state.subnet if record else subnet_of(node, self._ground.settings)).name:
                self.queues["nodes"].add(node.metadata.name)

    def _node_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        changed = new or old
        if changed is not None:
            self.queues["nodes"].add(changed.metadata.name)

    def _subnet_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        changed = new or old
        if changed is not None:
            self.queues["subnets"].add(changed.metadata.name)

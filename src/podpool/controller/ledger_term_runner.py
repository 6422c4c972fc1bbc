"""Runs the ledger-backed reconcilers and GCs for one term of the ledger; a new term starts with a new instance."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from podpool.api.meta import KubeObject
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps
from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.metrics import SubnetMetrics
from podpool.controller.network_sessions import NetworkSessions
from podpool.controller.nnc_conversion import subnet_of
from podpool.controller.nnc_reconciler import NNCReconciler
from podpool.controller.node_gc import NodeGC, OrphanNNCGC
from podpool.controller.node_reconciler import NodeReconciler
from podpool.controller.pod_history_reporter import PodUsageReporter
from podpool.controller.reconcile_batcher import LeaderTerm, ReconcileBatcher
from podpool.controller.subnet_reconciler import SubnetReconciler
from podpool.kube.workqueue import WorkQueue
from podpool.ledger.messages import NetworkContainerRecord, ReconcileResponse, SubnetChange
from podpool.runtime.logging import get_logger
from podpool.runtime.supervision import keep_running

RESYNC_INTERVAL = 300.0
"""Seconds after which every node is compared with the ledger again."""
NODE_WORKERS = 256
"""Nodes that are reconciled at the same time; the transport limits concurrent requests."""
SUBNET_WORKERS = 4

log = get_logger(__name__)


class LedgerTermRunner:
    """Workqueues of nodes and subnets, their reconcilers, and the ledger sessions that they share."""

    def __init__(
        self,
        deps: ControllerDeps,
        health: LedgerHealth,
        allocations: AllocationCache,
        terms: Sequence[LeaderTerm],
        *,
        cluster: str,
        open_term: Callable[[str], Awaitable[LeaderTerm]],
    ) -> None:
        self.queues = {"nodes": WorkQueue(rng=deps.rng), "subnets": WorkQueue(rng=deps.rng)}
        self._deps = deps
        self._health = health
        self._informers = deps.informers
        self._allocations = allocations
        self._cluster = cluster
        self.session = NetworkSessions(terms, open_term=open_term, new_session=self._new_session)
        enqueue = self.queues["subnets"].add
        self._subnets = SubnetReconciler(deps, health, enqueue=enqueue, on_publish=self._enqueue_nodes_of)
        self._nncs = NNCReconciler(deps, self.session, allocations, self._subnets)
        self._nodes = NodeReconciler(deps, allocations, self._subnets, self._nncs)
        self._node_gc = NodeGC(deps, self.session, allocations, reconciler=self._nodes)
        self._nnc_gc = OrphanNNCGC(deps, allocations, reconciler=self._nodes)
        self._pod_usage = PodUsageReporter(deps, allocations, cluster=cluster)

    @property
    def node_gc_paused(self) -> bool:
        """Whether the ledger's circuit breaker stops node GC."""
        return self._node_gc.paused

    @property
    def pod_addresses_pending(self) -> int:
        """Number of Pod addresses that are not reported to the ledger yet."""
        return self._pod_usage.pending

    def subnet_metrics(self) -> dict[str, SubnetMetrics]:
        """Return the metrics of each subnet by name."""
        metrics = {}
        for name, each in self._subnets.all_published().items():
            count, longest = self._nncs.waiting(name)
            metrics[name] = SubnetMetrics(
                exhausted=each.exhausted, batch=each.scaler.batch, nodes_waiting=count, longest_wait_seconds=longest
            )
        return metrics

    async def run(self) -> None:
        """Run until the term ends; raises the reason in an exception group."""
        informers, metrics = self._informers, self._deps.metrics
        unsubscribe = [
            informers.nodes.subscribe(partial(self._enqueue, "nodes")),
            informers.nncs.subscribe(partial(self._enqueue, "nodes")),
            informers.subnets.subscribe(partial(self._enqueue, "subnets")),
            informers.subnet_states.subscribe(partial(self._enqueue, "subnets")),
        ]
        self._subnets.track(self._deps.settings.subnet)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.session.run())
                for name, reconcile, workers in (
                    ("nodes", self._nodes.reconcile, NODE_WORKERS),
                    ("subnets", self._subnets.reconcile, SUBNET_WORKERS),
                ):
                    group.create_task(metrics.run_workers(name, self.queues[name], reconcile, workers=workers))
                for name, run in self._parts().items():
                    group.create_task(keep_running(run, log, part=name))
        finally:
            for each in unsubscribe:
                each()

    def _new_session(self, term: LeaderTerm) -> ReconcileBatcher:
        deps = self._deps
        return ReconcileBatcher(
            deps.ledger,
            term,
            on_response=self._on_response,
            on_reload=self._on_reload,
            health=self._health,
            rng=deps.rng,
        )

    def _parts(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return what runs beside the workqueues, by name; a defect of one does not end the others."""
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "subnet stream": partial(self._subnets.follow, self._cluster, self._on_subnet_change),
            "subnet poll": self._subnets.poll,
            "node GC": self._node_gc.run,
            "NNC GC": self._nnc_gc.run,
            "resync": self._resync,
        }
        if self._deps.settings.pod_history:
            parts["Pod history"] = self._pod_usage.run
        return parts

    async def _resync(self) -> None:
        while True:
            known = (record.node for record in self._allocations.values())
            nncs = (nnc.metadata.name for nnc in self._informers.nncs.values())
            self._resync_nodes((*self._informers.nodes, *known, *nncs))
            await asyncio.sleep(RESYNC_INTERVAL)

    def _resync_nodes(self, names: Iterable[str]) -> None:
        """Enqueue nodes, and send their requests to the ledger even if unchanged."""
        names = tuple(names)
        self._nncs.resync(names)
        for name in names:
            self.queues["nodes"].add(name)

    def _on_reload(self, network: str, records: tuple[NetworkContainerRecord, ...]) -> None:
        self._allocations.load(records, network=network)
        self._resync_nodes(record.node for record in records)

    def _on_response(self, response: ReconcileResponse) -> None:
        for state in response.subnets:
            self._subnets.on_state(state)
        self._resync_ncs(response.servable)

    def _on_subnet_change(self, change: SubnetChange) -> None:
        if change.state.frozen:
            self.session.reload(change.state.subnet.network)  # it may wait for an inventory
        self._resync_ncs(change.servable)

    def _resync_ncs(self, ncs: tuple[str, ...]) -> None:
        """Resync the nodes of NCs that are short and can get addresses now."""
        records = (self._allocations.get(nc) for nc in ncs)
        self._resync_nodes(record.node for record in records if record is not None)

    def _enqueue_nodes_of(self, subnet: str) -> None:
        """Enqueue the nodes of a subnet whose published state has changed."""
        for node in self._informers.nodes.values():
            record = self._allocations.by_node_name(node.metadata.name)
            if subnet == (record.state.subnet if record else subnet_of(node, self._deps.settings)).name:
                self.queues["nodes"].add(node.metadata.name)

    def _enqueue(self, queue: str, old: KubeObject | None, new: KubeObject | None) -> None:
        changed = new or old
        if changed is not None:
            self.queues[queue].add(changed.metadata.name)

"""Prometheus metrics of the controller: counters where things happen, gauges from a snapshot at scrape time."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, exposition
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from podpool.kube.workqueue import Reconcile, Requeue, WorkQueue, run_workers
from podpool.runtime.logging import log_context
from podpool.runtime.transport import Handler, Request, Response

METRICS_PATH = "/metrics"

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class SubnetMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One subnet as it is published to agents."""

    exhausted: bool
    batch: int
    nodes_waiting: int
    longest_wait_seconds: float


class SliceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One slice table."""

    assigned: int
    free: int
    nodes_waiting: int
    resizing: int
    conflicts: int


class ControllerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of a controller at scrape time."""

    leader: bool
    ledger_unreachable_seconds: float
    node_gc_paused: bool
    queues: Mapping[str, WorkQueue]
    subnets: Mapping[str, SubnetMetrics]
    pod_addresses_pending: int
    slices: Mapping[tuple[str, str], SliceMetrics] = {}
    """By network and range."""
    slices_inventory_pending: int = 0
    slices_node_gc_paused: bool = False


class ControllerMetrics:
    """Counters of one controller, and the text that Prometheus scrapes."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        prefix, labels = "podpool_controller_", ("controller",)
        measured = "Duration of one reconciliation of an object, or of one GC pass"
        self._seconds = Histogram(f"{prefix}reconcile_seconds", measured, labels, buckets=_BUCKETS, registry=registry)
        failed = "Failed reconciliations and GC passes, which are retried"
        self.errors = Counter(f"{prefix}reconcile_errors", failed, labels, registry=registry)
        cleaned = "Orphaned objects cleaned up by node GC and orphan GC"
        self.orphans = Counter(f"{prefix}orphans_released", cleaned, ("kind",), registry=registry)
        reported = "Pod addresses reported to the ledger's history"
        self.pod_addresses = Counter(f"{prefix}pod_addresses_reported", reported, registry=registry)
        dropped = "Pod addresses that were not reported, because the ledger rejected them or was unreachable too long"
        self.pod_addresses_dropped = Counter(f"{prefix}pod_addresses_dropped", dropped, registry=registry)

    @contextmanager
    def measure(self, controller: str) -> Iterator[None]:
        """Measure one reconciliation or GC pass, and count its failure."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except Exception:
            self.errors.labels(controller).inc()
            raise
        finally:
            self._seconds.labels(controller).observe(asyncio.get_running_loop().time() - began)

    async def run_workers(self, controller: str, queue: WorkQueue, reconcile: Reconcile, *, workers: int) -> None:
        """Reconcile the keys of a queue until cancelled, measured; log lines have `controller` and `key`."""
        self.errors.labels(controller)  # exports 0 before the first error

        async def measured(key: str) -> Requeue | None:
            with log_context(key=key), self.measure(controller):
                return await reconcile(key)

        with log_context(controller=controller):  # also of what the workers log after a failure
            await run_workers(queue, measured, workers=workers)

    def render(self, snapshot: ControllerSnapshot) -> bytes:
        """Return all metrics in Prometheus' text format."""
        gauges = CollectorRegistry()
        gauges.register(_SnapshotCollector(snapshot))
        return exposition.generate_latest(self._registry) + exposition.generate_latest(gauges)


def with_metrics(handler: Handler, render: Callable[[], bytes]) -> Handler:
    """Return a handler that serves /metrics, and passes on all other requests."""

    async def handle(request: Request) -> Response:
        if (request.method, request.path) != ("GET", METRICS_PATH):
            return await handler(request)
        return Response(200, render(), headers={"content-type": exposition.CONTENT_TYPE_PLAIN_0_0_4})

    return handle


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: ControllerSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        snapshot = self._snapshot
        yield _gauge("leader", "1 on the replica that is the leader", snapshot.leader)
        unreachable = "Seconds since the ledger stopped answering, 0 while it answers"
        yield _gauge("ledger_unreachable_seconds", unreachable, snapshot.ledger_unreachable_seconds)
        paused = "1 while the ledger's circuit breaker stops node GC because too many Nodes are missing"
        yield _gauge("node_gc_paused", paused, snapshot.node_gc_paused)
        pending = "Pod addresses not yet reported to the ledger"
        yield _gauge("pod_addresses_pending", pending, snapshot.pod_addresses_pending)
        pending = "Nodes whose answer to the slice inventory the leader awaits before it assigns slices"
        yield _gauge("slices_inventory_pending", pending, snapshot.slices_inventory_pending)
        paused = "1 while the mass-loss breaker stops node GC of slices because too many Nodes are missing"
        yield _gauge("slices_node_gc_paused", paused, snapshot.slices_node_gc_paused)
        queues = {(name,): queue.metrics() for name, queue in snapshot.queues.items()}
        subnets = {(name,): each for name, each in snapshot.subnets.items()}
        yield from _gauges("queue", ("controller",), _QUEUE_GAUGES, queues.items())
        yield from _gauges("subnet", ("subnet",), _SUBNET_GAUGES, subnets.items())
        yield from _gauges("slices", ("network", "range"), _SLICE_GAUGES, snapshot.slices.items())


_QUEUE_GAUGES = {
    "depth": "Objects waiting in the workqueue",
    "active": "Objects being reconciled",
    "failing": "Objects whose last reconciliation failed",
    "longest_running_seconds": "Seconds that the oldest running reconciliation has taken",
}
_SUBNET_GAUGES = {
    "exhausted": "1 while the subnet is published to agents as exhausted",
    "batch": "Batch that is published to agents",
    "nodes_waiting": "Nodes without a network container, or with fewer addresses than requested",
    "longest_wait_seconds": "Seconds that the longest waiting of these nodes has waited",
}
_SLICE_GAUGES = {
    "assigned": "Nodes that have a slice of the range",
    "free": "Slices of the range that can be assigned",
    "nodes_waiting": "Nodes that wait for a slice",
    "resizing": "Nodes that still have a slice of a former size",
    "conflicts": "Pairs of slices that overlap",
}


def _gauges(
    prefix: str, labels: tuple[str, ...], gauges: Mapping[str, str], values: Iterable[tuple[tuple[str, ...], object]]
) -> Iterator[Metric]:
    for name, text in gauges.items():
        gauge = GaugeMetricFamily(f"podpool_controller_{prefix}_{name}", text, labels=labels)
        for key, value in values:
            gauge.add_metric(key, float(getattr(value, name)))
        yield gauge


def _gauge(name: str, text: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(f"podpool_controller_{name}", text)
    gauge.add_metric((), float(value))
    return gauge

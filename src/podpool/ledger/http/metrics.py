"""Prometheus metrics: counters of requests and commits, and the `/metrics` page.

Grants and releases are counted in the database, by subnet: every replica exports the same numbers. A scrape reads no
database: subnets are as of the last refresh of `LedgerStatus`.
"""

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from podpool.ledger.domain.repository import LedgerStore
from podpool.ledger.errors import LedgerError
from podpool.ledger.http.routes import find_route
from podpool.ledger.http.status_cache import LedgerStatus
from podpool.runtime.transport import Handler, Request, Response

PATH = "/metrics"

_LABELS = ("network", "subnet")
_DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_GROUP_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)


class LedgerMetrics:
    """Counts requests, and renders the `/metrics` page from what was read last."""

    def __init__(self, store: LedgerStore, status: LedgerStatus) -> None:
        self._status = status
        self._registry = CollectorRegistry()
        labels = ("method", "path", "status")
        counted = "Requests by method, path and status"
        self._requests = Counter("podpool_ledger_requests", counted, labels, registry=self._registry)
        self._durations = Histogram(
            "podpool_ledger_request_duration_seconds",
            "Duration of requests; of streams, until their beginning",
            ("method", "path"),
            buckets=_DURATION_BUCKETS,
            registry=self._registry,
        )
        group_sizes = Histogram(
            "podpool_ledger_commit_transactions",
            "Transactions that share a commit",
            buckets=_GROUP_SIZE_BUCKETS,
            registry=self._registry,
        )
        store.on_commit(group_sizes.observe)
        for collector in (_SubnetCollector(status), _TaskCollector(status), _QueueCollector(store)):
            self._registry.register(collector)

    def counted(self, handler: Handler) -> Handler:
        """Return a handler whose requests are counted."""

        async def count(request: Request) -> Response:
            started = time.perf_counter()
            response = await handler(request)
            self._count(request, response.status, time.perf_counter() - started)
            return response

        return count

    def page(self, otherwise: Handler) -> Handler:
        """Return a handler that serves the metrics, and passes other requests on."""

        async def serve(request: Request) -> Response:
            if request.path != PATH:
                return await otherwise(request)
            headers = {"content-type": exposition.CONTENT_TYPE_PLAIN_0_0_4}
            return Response(200, exposition.generate_latest(self._registry), headers=headers)

        return serve

    def _count(self, request: Request, status: int, seconds: float) -> None:
        try:
            path = find_route(request.method, request.path)[0].path
        except LedgerError:  # unknown paths must not become labels
            path = "other"
        self._requests.labels(request.method if path != "other" else "other", path, status).inc()
        if path != "other":
            self._durations.labels(request.method, path).observe(seconds)


class _QueueCollector(Collector):
    """The queue of the writer."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    def collect(self) -> Iterable[Metric]:
        queue = self._store.queue()
        yield GaugeMetricFamily("podpool_ledger_queue_depth", "Transactions that wait for a commit", queue.waiting)
        dropped = "Transactions that were not run, because their callers had gone or their deadlines had passed"
        yield CounterMetricFamily("podpool_ledger_transactions_dropped", dropped, queue.dropped)
        refused = "Transactions that were turned away with status 503, because the queue was full"
        yield CounterMetricFamily("podpool_ledger_transactions_refused", refused, queue.refused)


class _SubnetCollector(Collector):
    """The subnets when they were read last."""

    def __init__(self, status: LedgerStatus) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        counters = self._status.counters
        for name, description in _GAUGES.items():
            gauge = GaugeMetricFamily(f"podpool_subnet_{name}", description, labels=_LABELS)
            for state, _ in counters:
                gauge.add_metric((state.subnet.network, state.subnet.name), float(getattr(state, name)))
            yield gauge
        batch = GaugeMetricFamily("podpool_subnet_batch", "Batch in force: nodes hold a multiple of it", labels=_LABELS)
        granted = CounterMetricFamily("podpool_subnet_grants", "Addresses granted", labels=_LABELS)
        released = CounterMetricFamily("podpool_subnet_releases", "Addresses released", labels=_LABELS)
        for state, row in counters:
            labels = (state.subnet.network, state.subnet.name)
            batch.add_metric(labels, state.scaler.batch)
            granted.add_metric(labels, row.granted)
            released.add_metric(labels, row.released)
        yield from (batch, granted, released)


class _TaskCollector(Collector):
    """The errors of periodic tasks."""

    def __init__(self, status: LedgerStatus) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        errors = CounterMetricFamily(
            "podpool_ledger_task_errors", "Runs of periodic tasks that failed, by task", labels=("task",)
        )
        for task, count in sorted(self._status.task_errors.items()):
            errors.add_metric((task,), count)
        yield errors


_GAUGES = {
    "capacity": "Addresses that can be granted in total",
    "reserved": "Addresses that cannot be granted now: held or cooling down",
    "cooling_down": "Addresses that cool down",
    "projected": "Addresses that all network containers will hold with the scaler in force",
    "waiting": "Addresses that waiting Pods lack",
    "waiting_for_buffer": "Addresses that buffers lack",
    "exhausted": "1 while the subnet is exhausted",
    "frozen": "1 while nothing is granted because the ledger recovers or an owner is disputed",
    "draining": "1 while nothing is granted because the subnet is draining",
}

"""What the ledger does, for Prometheus: a layer before the service that counts calls, and the page they are read from.

Grants and releases are counted in the books, by subnet: every replica tells the same numbers.
"""

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from podpool.ledger.domain.service import Ledger
from podpool.ledger.errors import LedgerError
from podpool.ledger.http.handler import refuse
from podpool.ledger.http.routes import find
from podpool.ledger.messages import SubnetState
from podpool.ledger.storage.rows import SubnetRow
from podpool.ledger.storage.store import Store
from podpool.runtime.transport import Handler, Request, Response

PATH = "/metrics"

_LABELS = ("network", "subnet")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WORKS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metered:
    """A `Handler` before another, with a page of its own."""

    def __init__(self, handler: Handler, ledger: Ledger, store: Store) -> None:
        self._handler = handler
        self._ledger = ledger
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "podpool_ledger_calls",
            "Calls by what became of them",
            ("method", "path", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "podpool_ledger_call_seconds",
            "How long calls take, streams up to their beginning",
            ("method", "path"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        works = Histogram(
            "podpool_ledger_commit_works", "How many works share a commit", buckets=_WORKS, registry=self._registry
        )
        store.count_commits(works.observe)

    async def __call__(self, request: Request) -> Response:
        """Count a call, and pass it on."""
        if (request.method, request.path) == ("GET", PATH):
            return await self._page()
        began = time.perf_counter()
        response = await self._handler(request)
        try:
            path = find(request.method, request.path)[0].path
        except LedgerError:  # whatever strangers ask for must not become a label
            path = "other"
        self._calls.labels(request.method if path != "other" else "other", path, response.status).inc()
        if path != "other":
            self._seconds.labels(request.method, path).observe(time.perf_counter() - began)
        return response

    async def _page(self) -> Response:
        try:
            meters = await self._ledger.administration.meters()
        except LedgerError as error:
            return refuse(error)
        subnets = CollectorRegistry()
        subnets.register(_Subnets(meters))
        page = exposition.generate_latest(self._registry) + exposition.generate_latest(subnets)
        return Response(200, page, headers={"content-type": exposition.CONTENT_TYPE_PLAIN_0_0_4})


class _Subnets(Collector):
    """All subnets at one moment."""

    def __init__(self, meters: list[tuple[SubnetState, SubnetRow]]) -> None:
        self._meters = meters

    def collect(self) -> Iterable[Metric]:
        for name, sentence in _GAUGES.items():
            gauge = GaugeMetricFamily(f"podpool_subnet_{name}", sentence, labels=_LABELS)
            for state, _ in self._meters:
                gauge.add_metric((state.subnet.network, state.subnet.name), float(getattr(state, name)))
            yield gauge
        batch = GaugeMetricFamily("podpool_subnet_batch", "Addresses move in multiples of it", labels=_LABELS)
        granted = CounterMetricFamily("podpool_subnet_grants", "Addresses given", labels=_LABELS)
        released = CounterMetricFamily("podpool_subnet_releases", "Addresses taken back", labels=_LABELS)
        for state, row in self._meters:
            labels = (state.subnet.network, state.subnet.name)
            batch.add_metric(labels, state.scaler.batch)
            granted.add_metric(labels, row.granted)
            released.add_metric(labels, row.released)
        yield from (batch, granted, released)


_GAUGES = {
    "capacity": "Addresses that can be given",
    "reserved": "Addresses that cannot be given now: held, or resting",
    "resting": "Addresses that rest",
    "projected": "Addresses that all containers will hold with the scaler in force",
    "waiting": "Addresses that waiting Pods are short of",
    "wishing": "Addresses that buffers are short of",
    "exhausted": "1 while the subnet is exhausted",
    "frozen": "1 while nothing is granted because the ledger recovers",
    "draining": "1 while nothing is granted because the subnet is being emptied",
}

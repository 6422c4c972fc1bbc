"""What the controller does, for Prometheus. Everything is counted where it happens, and read when it is asked for."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, exposition
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from podpool.kube.workqueue import Reconcile, Requeue, WorkQueue
from podpool.runtime.logging import log_context
from podpool.runtime.transport import Handler, Request, Response

PATH = "/metrics"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class SubnetMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One subnet, as agents are told of it."""

    exhausted: bool
    batch: int
    nodes_waiting: int
    longest_wait: float


class SliceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One slice table."""

    held: int
    nodes_waiting: int
    moving: int
    disputed: int


class ControllerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A controller at one moment."""

    leading: bool
    ledger_away: float
    braked: bool
    queues: Mapping[str, WorkQueue]
    subnets: Mapping[str, SubnetMetrics]
    unreported_pods: int
    slices: Mapping[tuple[str, str], SliceMetrics] = {}
    """By network and range."""


class Metrics:
    """Counters of one controller, and the page that they are read from."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "podpool_controller_reconcile_seconds",
            "How long a piece of work takes: on one object, or one look at all of them",
            ("controller",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.errors = Counter(
            "podpool_controller_reconcile_errors",
            "Pieces of work that failed, and are tried again",
            ("controller",),
            registry=self._registry,
        )
        self.mended = Counter(
            "podpool_controller_garbage_mended",
            "What was left behind and put in order",
            ("kind",),
            registry=self._registry,
        )
        self.pods = Counter(
            "podpool_controller_pods_reported", "Addresses of Pods told to the ledger", registry=self._registry
        )
        self.pods_dropped = Counter(
            "podpool_controller_pods_dropped", "Addresses of Pods that were never told", registry=self._registry
        )

    @contextmanager
    def working(self, controller: str) -> Iterator[None]:
        """Count one piece of work."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except Exception:
            self.errors.labels(controller).inc()
            raise
        finally:
            self._seconds.labels(controller).observe(asyncio.get_running_loop().time() - began)

    def timed(self, controller: str, reconcile: Reconcile) -> Reconcile:
        """Count the work of a controller, and have what it logs say what it is about."""
        self.errors.labels(controller)  # so that there is a 0 to be seen

        async def counted(key: str) -> Requeue | None:
            with log_context(controller=controller, key=key), self.working(controller):
                return await reconcile(key)

        return counted

    def page(self, view: ControllerSnapshot) -> bytes:
        """Write everything down."""
        now = CollectorRegistry()
        now.register(_Moment(view))
        return exposition.generate_latest(self._registry) + exposition.generate_latest(now)


def metered(handler: Handler, page: Callable[[], bytes]) -> Handler:
    """Put the page of metrics before another handler."""

    async def answer(request: Request) -> Response:
        if (request.method, request.path) != ("GET", PATH):
            return await handler(request)
        return Response(200, page(), headers={"content-type": exposition.CONTENT_TYPE_PLAIN_0_0_4})

    return answer


class _Moment(Collector):
    """What is true now."""

    def __init__(self, view: ControllerSnapshot) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        view = self._view
        yield _gauge("leading", "1 while this one leads", view.leading)
        yield _gauge("ledger_away_seconds", "For how long the ledger has not answered", view.ledger_away)
        yield _gauge("braked", "1 while too many nodes are lost for any to be given up", view.braked)
        yield _gauge("pods_unreported", "Addresses of Pods that wait to be told to the ledger", view.unreported_pods)
        for name, sentence in _QUEUES.items():
            queue = GaugeMetricFamily(f"podpool_controller_queue_{name}", sentence, labels=("controller",))
            for controller, each in view.queues.items():
                queue.add_metric((controller,), float(getattr(each.metrics(), name)))
            yield queue
        for name, sentence in _SUBNETS.items():
            gauge = GaugeMetricFamily(f"podpool_controller_subnet_{name}", sentence, labels=("subnet",))
            for subnet, meter in view.subnets.items():
                gauge.add_metric((subnet,), float(getattr(meter, name)))
            yield gauge
        for name, sentence in _SLICES.items():
            gauge = GaugeMetricFamily(f"podpool_controller_slices_{name}", sentence, labels=("network", "range"))
            for key, table in view.slices.items():
                gauge.add_metric(key, float(getattr(table, name)))
            yield gauge


_QUEUES = {
    "waiting": "Objects that wait for work",
    "busy": "Objects that are worked on",
    "failing": "Objects whose last work failed",
    "longest_busy": "Seconds for which the oldest work has been going on",
}
_SUBNETS = {
    "exhausted": "1 while agents are told that the subnet is exhausted",
    "batch": "The batch that agents are told",
    "nodes_waiting": "Nodes without a container, or with fewer addresses than they asked for",
    "longest_wait": "Seconds for which the first of them has waited",
}
_SLICES = {
    "held": "Nodes that have a slice of the range",
    "nodes_waiting": "Nodes for which there is no slice",
    "moving": "Nodes that still have a slice of an earlier size",
    "disputed": "Pairs of slices that share an address",
}


def _gauge(name: str, sentence: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(f"podpool_controller_{name}", sentence)
    gauge.add_metric((), float(value))
    return gauge

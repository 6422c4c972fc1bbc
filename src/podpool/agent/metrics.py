"""What the agent does, for Prometheus: gauges under the names that Azure's CNS has them, and our own.

Everything but the latency of ADDs is read from the agent when somebody asks. Azure's dashboards work on its names and
labels as they are.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from podpool.agent.metrics_snapshot import Picture, SlicePicture
from podpool.api.azure import NetworkContainer
from podpool.runtime.transport import Handler, Request, Response

PATH = "/metrics"

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 10.0)
_AZURE = ("subnet", "subnet_cidr", "podnet_arm_id", "customer_metric")
_CUSTOMER = "customer metric"
_SLICE = ("network", "range", "slice")
SLICE_GAUGES: Mapping[str, tuple[str, Callable[[SlicePicture], float]]] = {
    "size_ips": ("Addresses of a slice of this node", lambda each: each.size),
    "assigned_ips": ("Addresses of a slice that Pods have", lambda each: each.assigned),
    "resting_ips": ("Addresses of a slice that rest", lambda each: each.resting),
    "lag_seconds": ("For how long the IPPool of a slice has been behind", lambda each: each.lag),
}


class Meters:
    """Measures an agent's answers, and writes the page."""

    def __init__(self, handle: Callable[[bytes], Awaitable[bytes]], picture: Callable[[], Picture]) -> None:
        self._handle = handle
        self._registry = CollectorRegistry()
        self._registry.register(_Pictured(picture))
        self._seconds = Histogram(
            "podpool_agent_add_seconds",
            "From the frame of an ADD to its answer, waiting included",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._refused = Counter(
            "podpool_agent_calls_refused", "Calls that were answered with an error", registry=self._registry
        )

    async def handle(self, frame: bytes) -> bytes:
        """Answer a plugin's frame, as the agent does."""
        began = time.perf_counter()
        answer = await self._handle(frame)
        if frame.split(b"\0", 2)[1:2] == [b"ADD"]:
            self._seconds.observe(time.perf_counter() - began)
        if answer[:1] != b"\0":
            self._refused.inc()
        return answer

    def page(self, otherwise: Handler) -> Handler:
        """Answer whoever asks for the metrics, and pass the rest on."""

        async def answer(request: Request) -> Response:
            if request.path != PATH:
                return await otherwise(request)
            headers = {"content-type": exposition.CONTENT_TYPE_PLAIN_0_0_4}
            return Response(200, exposition.generate_latest(self._registry), headers=headers)

        return answer


class _Pictured(Collector):
    """The agent as it is when somebody asks."""

    def __init__(self, picture: Callable[[], Picture]) -> None:
        self._picture = picture

    def collect(self) -> Iterable[Metric]:
        now = self._picture()
        labels = _labels(now.containers)
        for name, (sentence, value) in azure(now).items():
            gauge = GaugeMetricFamily(f"cx_ipam_{name}", sentence, labels=_AZURE)
            gauge.add_metric(labels, value)
            yield gauge
        seen = CounterMetricFamily(
            "cx_ipam_subnet_exhaustion_state_count",
            "How often the subnet's exhaustion changed",
            labels=(*_AZURE, "subnet_exhaustion_state"),
        )
        for exhausted, count in now.exhaustions.items():
            seen.add_metric((*labels, str(exhausted).lower()), count)
        yield seen
        for name, (sentence, value) in own(now).items():
            yield GaugeMetricFamily(f"podpool_agent_{name}", sentence, value=value)
        lag = GaugeMetricFamily(
            "podpool_agent_watch_lag_seconds",
            "Since a watch last told anything: about a minute at most while all is well",
            labels=("watch",),
        )
        for watch, seconds in now.silence.items():
            lag.add_metric((watch,), seconds)
        yield lag
        for name, (sentence, value_of) in SLICE_GAUGES.items():
            gauge = GaugeMetricFamily(f"podpool_agent_slice_{name}", sentence, labels=_SLICE)
            for each in now.slices:
                gauge.add_metric((each.network, each.range, each.slice), value_of(each))
            yield gauge
        records = CounterMetricFamily("podpool_agent_journal_records", "Records written since the start")
        records.add_metric((), now.journal_records)
        yield records


def azure(now: Picture) -> dict[str, tuple[str, float]]:
    """Tell the numbers that Azure's CNS tells, by its names."""
    batch = now.terms.scaler.batch if now.terms else 0
    return {
        "pod_allocated_ips": ("Addresses that Pods have", now.assigned),
        "available_ips": ("Addresses that can be given at once", now.available),
        "batch_size": ("Addresses move in multiples of it", batch),
        "current_available_ips": (
            "Addresses less those of Pods and those named",
            now.listed - now.assigned - now.named,
        ),
        "expect_available_ips": ("The request less the addresses of Pods", now.requested - now.assigned),
        "max_ips": ("The most addresses of this node", now.terms.maximum if now.terms else 0),
        "pending_programming_ips": ("Addresses that the underlay does not know yet", now.unprogrammed),
        "pending_release_ips": ("Addresses that were named for release", now.named),
        "primary_ips": ("Addresses that are not for Pods", now.primaries),
        "requested_ips": ("What the node asked for", now.requested),
        "secondary_ips": ("Addresses for Pods", now.listed),
        "total_ips": ("All addresses of the node", now.listed + now.primaries),
        "subnet_exhaustion_state": ("1 while the subnet is exhausted", bool(now.terms and now.terms.exhausted)),
    }


def own(now: Picture) -> dict[str, tuple[str, float]]:
    """Tell what Azure's has no name for."""
    return {
        "resting_ips": ("Addresses that rest", now.resting),
        "left_out_ips": ("Addresses that the status lists and nobody can use", now.left_out),
        "dropped_ips": ("Addresses of Pods that the status no longer lists", now.dropped),
        "waiting_adds": ("ADDs that wait for an address", now.waiting_adds),
        "waiting_pods": ("Pods that wait for what the subnet does not have", now.waiting_pods),
        "fence_age_seconds": ("Since this Node was last confirmed", _finite(now.fence_age)),
        "fenced": ("1 while no new address is given because the Node is not confirmed", now.fenced),
        "journal_bytes": ("Size of the segment that is being written", now.journal_bytes),
    }


def _finite(age: float | None) -> float:
    return math.inf if age is None else age


def _labels(containers: tuple[NetworkContainer, ...]) -> tuple[str, str, str, str]:
    own = containers[0] if containers else NetworkContainer()
    return own.subnet_name, own.subnet_address_space, _arm_id(own), _CUSTOMER


def _arm_id(container: NetworkContainer) -> str:
    where = (container.subscription_id, container.resource_group_id, container.vnet_id, container.subnet_id)
    if not all(where):
        return ""
    subscription, group, network, subnet = where
    provider = f"providers/Microsoft.Network/virtualNetworks/{network}/subnets/{subnet}"
    return f"/subscriptions/{subscription}/resourceGroups/{group}/{provider}"

"""Prometheus metrics of the agent: gauges under the names of Azure's CNS, and podpool's own.

All but the ADD latency are read from the agent on scrape. Azure's dashboards work with its names and labels unchanged.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from podpool.agent.scaling_decision import ScalingParameters
from podpool.api.azure import NetworkContainer
from podpool.runtime.transport import Handler, Request, Response

PATH = "/metrics"

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 10.0)
_AZURE_LABELS = ("subnet", "subnet_cidr", "podnet_arm_id", "customer_metric")
_SLICE_LABELS = ("network", "range", "slice")


class SliceMetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one slice."""

    network: str
    range: str
    slice: str
    size: int
    """Addresses without the first and last."""
    assigned: int
    cooling_down: int
    lag: float
    """Seconds for which its IPPool has been behind."""


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of an agent at one moment."""

    ncs: tuple[NetworkContainer, ...]
    parameters: ScalingParameters | None
    requested: int
    primaries: int
    granted: int
    assigned: int
    available: int
    cooling_down: int
    pending_programming: int
    pending_release: int
    unusable: int
    """Grants that the NNC lists and that cannot be used."""
    revoked: int
    """Addresses in use that the NNC no longer lists."""
    waiting_adds: int
    waiting_pods: int
    """Pods that wait for addresses which the subnet does not have."""
    fence_age: float | None
    fenced: bool
    journal_bytes: int
    journal_records: int
    watch_lag: dict[str, float]
    """Seconds since each watch last received anything; infinite before the first time."""
    slices: tuple[SliceMetricsSnapshot, ...] = ()
    lost_dels: int
    """Sandboxes whose addresses were released without a DEL, since the start."""
    listed_sandboxes: int
    """Sandboxes with addresses that the runtime listed last."""
    runtime_unreachable: bool
    """The runtime has a CRI socket, and does not list its sandboxes."""
    lost_dels_held_back: int
    """Sandboxes that seem to have ended without a DEL and are too many to be released."""
    proxied: int = 0
    """Addresses for which the kernel answers ARP and NDP on the uplink."""
    proxy_failures: int = 0
    """Attempts to change or announce these that failed, since the start."""
    exhaustion_changes: dict[bool, int]
    """How often the subnet became exhausted, and no longer exhausted."""


SLICE_GAUGES: Mapping[str, tuple[str, Callable[[SliceMetricsSnapshot], float]]] = {
    "size_ips": ("Addresses of a slice", lambda each: each.size),
    "assigned_ips": ("Addresses of a slice assigned to Pods", lambda each: each.assigned),
    "cooling_down_ips": ("Recently used addresses of a slice, not yet assignable", lambda each: each.cooling_down),
    "lag_seconds": ("Seconds for which the IPPool of a slice has been behind", lambda each: each.lag),
}


class AgentMetrics:
    """Measures an agent's responses, and serves the metrics page."""

    def __init__(self, handle: Callable[[bytes], Awaitable[bytes]], snapshot: Callable[[], MetricsSnapshot]) -> None:
        self._handle = handle
        self._registry = CollectorRegistry()
        self._registry.register(_SnapshotCollector(snapshot))
        registry, about = self._registry, "Seconds from the request of an ADD to its response, waiting included"
        self._add_seconds = Histogram("podpool_agent_add_seconds", about, buckets=_BUCKETS, registry=registry)
        self._errors = Counter("podpool_agent_cni_errors", "CNI requests answered with an error", registry=registry)

    async def handle(self, body: bytes) -> bytes:
        """Answer a plugin's request, as the agent does."""
        started = time.perf_counter()
        response = await self._handle(body)
        if body.split(b"\0", 2)[1:2] == [b"ADD"]:
            self._add_seconds.observe(time.perf_counter() - started)
        if response[:1] != b"\0":
            self._errors.inc()
        return response

    def page(self, otherwise: Handler) -> Handler:
        """Return an HTTP handler that serves the metrics, and passes other requests on."""

        async def handler(request: Request) -> Response:
            if request.path != PATH:
                return await otherwise(request)
            headers = {"content-type": exposition.CONTENT_TYPE_PLAIN_0_0_4}
            return Response(200, exposition.generate_latest(self._registry), headers=headers)

        return handler


class _SnapshotCollector(Collector):
    """Reads the agent on each scrape."""

    def __init__(self, snapshot: Callable[[], MetricsSnapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        now = self._snapshot()
        yield from _azure_metrics(now)
        for name, (text, value) in own_gauges(now).items():
            yield GaugeMetricFamily(f"podpool_agent_{name}", text, value=value)
        lag = GaugeMetricFamily(
            "podpool_agent_watch_lag_seconds",
            "Seconds since a watch last received anything: normally at most a minute",
            labels=("watch",),
        )
        for watch, seconds in now.watch_lag.items():
            lag.add_metric((watch,), seconds)
        yield lag
        for name, (text, value_of) in SLICE_GAUGES.items():
            gauge = GaugeMetricFamily(f"podpool_agent_slice_{name}", text, labels=_SLICE_LABELS)
            for each in now.slices:
                gauge.add_metric((each.network, each.range, each.slice), value_of(each))
            yield gauge
        for name, (text, value) in own_counters(now).items():
            counter = CounterMetricFamily(f"podpool_agent_{name}", text)
            counter.add_metric((), value)
            yield counter


def _azure_metrics(now: MetricsSnapshot) -> Iterable[Metric]:
    own = now.ncs[0] if now.ncs else NetworkContainer()
    labels = (own.subnet_name, own.subnet_address_space, _arm_id(own), "customer metric")
    for name, (text, value) in azure_gauges(now).items():
        gauge = GaugeMetricFamily(f"cx_ipam_{name}", text, labels=_AZURE_LABELS)
        gauge.add_metric(labels, value)
        yield gauge
    changes = CounterMetricFamily(
        "cx_ipam_subnet_exhaustion_state_count",
        "Changes of the subnet's exhaustion",
        labels=(*_AZURE_LABELS, "subnet_exhaustion_state"),
    )
    for exhausted, count in now.exhaustion_changes.items():
        changes.add_metric((*labels, str(exhausted).lower()), count)
    yield changes


def azure_gauges(now: MetricsSnapshot) -> dict[str, tuple[str, float]]:
    """Return the gauges of Azure's CNS, by its names."""
    parameters, free = now.parameters, now.granted - now.assigned - now.pending_release
    return {
        "pod_allocated_ips": ("Addresses assigned to Pods", now.assigned),
        "available_ips": ("Addresses that can be assigned at once", now.available),
        "batch_size": ("Batch size of the subnet", parameters.scaler.batch if parameters else 0),
        "current_available_ips": ("Addresses neither assigned nor pending release", free),
        "expect_available_ips": ("Requested addresses less assigned ones", now.requested - now.assigned),
        "max_ips": ("Maximum number of addresses of this node", parameters.maximum if parameters else 0),
        "pending_programming_ips": ("Addresses pending programming by the underlay", now.pending_programming),
        "pending_release_ips": ("Addresses pending release", now.pending_release),
        "primary_ips": ("Primary addresses", now.primaries),
        "requested_ips": ("Addresses requested by the node", now.requested),
        "secondary_ips": ("Secondary addresses, which are for Pods", now.granted),
        "total_ips": ("All addresses of the node", now.granted + now.primaries),
        "subnet_exhaustion_state": ("1 while the subnet is exhausted", bool(parameters and parameters.exhausted)),
    }


def own_gauges(now: MetricsSnapshot) -> dict[str, tuple[str, float]]:
    """Return the gauges that Azure's CNS does not have."""
    age = math.inf if now.fence_age is None else now.fence_age
    return {
        "cooling_down_ips": ("Recently used addresses, not yet assignable", now.cooling_down),
        "unusable_ips": ("Addresses that the NNC lists and that cannot be used", now.unusable),
        "revoked_ips": ("Addresses of Pods that the NNC no longer lists", now.revoked),
        "waiting_adds": ("ADDs that wait for an address", now.waiting_adds),
        "waiting_pods": ("Pods that wait for addresses which the subnet does not have", now.waiting_pods),
        "fence_age_seconds": ("Seconds since this Node was last confirmed", age),
        "fenced": ("1 while no new address is assigned because the Node is not confirmed", now.fenced),
        "runtime_unreachable": (
            "1 while the runtime does not list its sandboxes on its CRI socket: lost DELs are found by Pods alone",
            now.runtime_unreachable,
        ),
        "listed_sandboxes": ("Sandboxes with addresses that the runtime lists", now.listed_sandboxes),
        "lost_dels_held_back": (
            "Sandboxes that seem to have ended without a DEL, too many at once to be released",
            now.lost_dels_held_back,
        ),
        "proxied_ips": ("Addresses for which the kernel answers ARP and NDP on the uplink", now.proxied),
        "journal_bytes": ("Size of the current journal segment", now.journal_bytes),
    }


def own_counters(now: MetricsSnapshot) -> dict[str, tuple[str, int]]:
    """Return the counters that Azure's CNS does not have."""
    return {
        "journal_records": ("Journal records written since the start", now.journal_records),
        "lost_dels": ("Sandboxes that ended without a DEL and whose addresses were released", now.lost_dels),
        "proxy_failures": (
            "Failed attempts to let the kernel answer ARP and NDP for a Pod on the uplink, or to announce its address",
            now.proxy_failures,
        ),
    }


def _arm_id(nc: NetworkContainer) -> str:
    parts = (nc.subscription_id, nc.resource_group_id, nc.vnet_id, nc.subnet_id)
    if not all(parts):
        return ""
    subscription, group, network, subnet = parts
    provider = f"providers/Microsoft.Network/virtualNetworks/{network}/subnets/{subnet}"
    return f"/subscriptions/{subscription}/resourceGroups/{group}/{provider}"

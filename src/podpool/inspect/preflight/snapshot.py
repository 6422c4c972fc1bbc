"""What preflight reads of the cluster and its ledger, once. What cannot be read is recorded, the rest is checked."""

import asyncio
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar

import msgspec

from podpool.api.builtin import NAMESPACES
from podpool.api.crds import CRDS
from podpool.api.meta import KeyedObject, Kind
from podpool.api.multus import NETWORK_ATTACHMENTS, NetworkAttachmentDefinition
from podpool.core.errors import PodpoolError
from podpool.inspect.observer import LEDGER
from podpool.inspect.preflight import objects as o
from podpool.inspect.status import error_text, list_objects
from podpool.inspect.view_models import INSPECTED_PODS, InspectedPod
from podpool.kube.client import KubeClient, PathContent
from podpool.kube.errors import ApiError
from podpool.ledger.admin_messages import Occupancy, SubnetDetails
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import Forbidden, Unauthorized
from podpool.runtime.clock import Clock

K = TypeVar("K", bound=KeyedObject)
V = TypeVar("V")
MAX_VERSION_BYTES = 64 << 10
API_SERVER = "the API server"


class RawCrd(KeyedObject, frozen=True, kw_only=True):
    """A CRD with its whole spec."""

    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}


_RAW_CRDS = Kind(
    group=CRDS.group, version=CRDS.version, plural=CRDS.plural, kind=CRDS.kind, type=RawCrd, namespaced=False
)


class Read(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """A value, or why it could not be read."""

    value: V
    problem: str = ""


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """The time of another machine, and the local time around it. In seconds."""

    remote: float | None = None
    """From a Date header, in whole seconds; None if there was none."""
    before: float = 0.0
    after: float = 0.0

    @property
    def skew(self) -> float:
        """How far the other clock is ahead at least: nothing if it may be the same."""
        if self.remote is None:
            return 0.0
        return max(0.0, self.remote - self.after) + min(0.0, self.remote + 1 - self.before)


class LedgerReading(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's subnets."""

    subnets: Mapping[str, SubnetDetails] = {}
    occupancies: Mapping[str, Occupancy] = {}
    clock: ClockReading = ClockReading()
    problem: str = ""
    rejected: bool = False
    """Whether the ledger answered, and rejected the token."""


class PreflightSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All inputs."""

    version: str
    """Of the API server, such as v1.36.3."""
    clock: ClockReading
    cluster: Read[str]
    """The ID of the cluster."""
    nodes: Read[tuple[o.Machine, ...]]
    pods: Read[tuple[InspectedPod, ...]]
    crds: Read[tuple[RawCrd, ...]]
    services: Read[tuple[o.Service, ...]]
    service_ranges: Read[tuple[o.ServiceRange, ...]]
    nads: Read[tuple[NetworkAttachmentDefinition, ...]]
    daemon_sets: Read[tuple[KeyedObject, ...]]
    policies: Read[tuple[KeyedObject, ...]]
    ledger: LedgerReading | None = None
    """None without a ledger."""


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


async def read_preflight_snapshot(kube: KubeClient, ledger: LedgerClient | None, *, clock: Clock) -> PreflightSnapshot:
    """Read everything; raises an error if the API server is unreachable."""
    before = clock.wall()
    try:
        content = await kube.read_path("/version", max_bytes=MAX_VERSION_BYTES)
    except ApiError:  # it answers, but not this
        content = PathContent(body=b"{}", headers={})
    reading = ClockReading(remote=_wall(content.headers.get("date", "")), before=before, after=clock.wall())
    try:
        version = msgspec.json.decode(content.body, type=_Version).git_version
    except ValueError:  # another server answers at this address
        version = ""
    return PreflightSnapshot(
        version=version,
        clock=reading,
        cluster=await _read_cluster(kube),
        nodes=await _read_all(kube, o.MACHINES),
        pods=await _read_all(kube, INSPECTED_PODS),
        crds=await _read_all(kube, _RAW_CRDS),
        services=await _read_all(kube, o.SERVICES),
        service_ranges=await _read_all(kube, o.SERVICE_RANGES),
        nads=await _read_all(kube, NETWORK_ATTACHMENTS),
        daemon_sets=await _read_all(kube, o.DAEMON_SETS),
        policies=await _read_all(kube, o.ADMISSION_POLICIES),
        ledger=await _read_ledger(ledger, clock) if ledger else None,
    )


async def _read_all(kube: KubeClient, kind: Kind[K]) -> Read[tuple[K, ...]]:
    try:
        return Read(value=await list_objects(kube, kind))
    except PodpoolError as error:
        return Read(value=(), problem=error_text(API_SERVER, error))


async def _read_cluster(kube: KubeClient) -> Read[str]:
    try:
        return Read(value=(await kube.get(NAMESPACES, "kube-system")).metadata.uid)
    except PodpoolError as error:
        return Read(value="", problem=error_text(API_SERVER, error))


async def _read_ledger(ledger: LedgerClient, clock: Clock) -> LedgerReading:
    subnets, occupancies, reading = dict[str, SubnetDetails](), dict[str, Occupancy](), ClockReading()
    try:
        before = clock.wall()
        async with asyncio.timeout(10):
            date = await ledger.date()
        reading = ClockReading(remote=_wall(date), before=before, after=clock.wall())
        for each in (await ledger.subnets()).subnets:
            subnets[str(each.subnet)] = await ledger.details(each.subnet)
            occupancies[str(each.subnet)] = await ledger.occupancy(each.subnet)
    except TimeoutError:
        return LedgerReading(problem=f"{LEDGER} did not answer within 10 s")
    except PodpoolError as error:
        rejected = isinstance(error, Unauthorized | Forbidden)
        return LedgerReading(problem=error_text(LEDGER, error), rejected=rejected, clock=reading)
    return LedgerReading(subnets=subnets, occupancies=occupancies, clock=reading)


def _wall(date: str) -> float | None:
    """Parse a Date header as seconds since 1970; None if it is none."""
    try:
        return float(parsedate_to_datetime(date).timestamp())
    except (ValueError, TypeError, OverflowError):
        return None

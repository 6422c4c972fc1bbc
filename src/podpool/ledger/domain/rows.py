"""The rows of the database other than blocks: subnets, network containers (NCs), clusters, tokens, history.

Rows are frozen; a change makes a new one. Times are seconds of ledger time (`ledger_time`), stamps are whole
milliseconds. Those of a subnet are in its own time, which never goes back (`time_at`), not even if replicas differ.
"""

import math
from typing import Literal

import msgspec

from podpool.core.batch_ladder import BatchGrade, Load
from podpool.core.demand_from_request import InferredDemand
from podpool.core.scaling import Scaler
from podpool.ledger.domain.address_block import UNUSED
from podpool.ledger.domain.subnet_layout import SubnetLayout, subnet_layout
from podpool.ledger.messages import DemandReport, SubnetGrowth, SubnetName, SubnetSpec, TokenLimits

_encoder = msgspec.json.Encoder()

_MAX_CLOCK_SKEW = 300.0
"""Seconds. A clock that is further behind was set back; less is the skew between two replicas."""


class ClusterUse(msgspec.Struct, frozen=True, array_like=True):
    """What one cluster has of a subnet."""

    network_containers: int = 0
    """Open NCs."""
    held: int = 0
    """Addresses, primaries included."""


class SubnetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A subnet: its spec, its counters, and the scaling decisions for it."""

    number: int
    spec: SubnetSpec
    growths: tuple[SubnetGrowth, ...] = ()
    draining: bool = False
    """Nothing is granted; addresses return as nodes release them."""
    revision: int = 0
    latest_time: float = 0.0
    """The highest value of the subnet's time so far."""
    clock_offset: float = 0.0
    """The subnet's time less the ledger time."""
    held: int = 0
    """Addresses that NCs hold, primaries included."""
    cooling: tuple[tuple[int, int], ...] = ()
    """Stamps and the number of addresses that cool down from each, in order; all are above `reusable_stamp`."""
    reusable_stamp: int = UNUSED
    """Every address freed at this stamp or before has cooled down for the shortest level. Never goes back."""
    paused_until: float = 0.0
    """Nothing is granted before: after a restore the last releases are not known."""
    granted: int = 0
    """Addresses granted since the subnet was created."""
    released: int = 0
    """Addresses released since the subnet was created."""
    next_block: int | None = 0
    """The first block that was not created yet."""
    totals: tuple[int, ...] = ()
    """The addresses that all NCs will hold, for each scaler of the ladder."""
    network_containers: int = 0
    """Open NCs, in all clusters."""
    usage: dict[str, ClusterUse] | None = None
    """What each cluster has; None in a row of an earlier version, until the ledger starts (`cluster_usage`)."""
    unsettled: int = 0
    """Third-party NCs whose request may not reflect the scaler yet."""
    reinterpret_at: float | None = None
    """When to infer the demand of third-party NCs again."""
    pod_shortage: int = 0
    """Addresses that waiting Pods lack."""
    buffer_shortage: int = 0
    """Addresses that buffers lack."""
    notice_expires_at: float | None = None
    """When the first notified NC loses its place in the queue."""
    conflicts: int = 0
    grade: BatchGrade = BatchGrade()
    exhausted: bool = False
    due: float | None = None
    """The ledger time at which a timer of the subnet expires."""

    @property
    def name(self) -> SubnetName:
        """Its network and name."""
        return SubnetName(network=self.spec.network, name=self.spec.name)

    @property
    def layout(self) -> SubnetLayout:
        """Its addresses and blocks."""
        return subnet_layout(self.spec.cidr, self.spec.gateway, self.spec.excluded_ranges, self.growths)

    @property
    def cooldown(self) -> float:
        """The level in force; only the order in which free addresses are granted depends on it."""
        return self.spec.cooldown_levels.of_subnet(exhausted=self.exhausted, configured_batch=self.grade.rung == 0)

    def reusable_at(self, now: float) -> int:
        """Return `reusable_stamp` as of this time."""
        return max(self.reusable_stamp, stamp(now - self.spec.cooldown_exhausted))

    def cooling_down(self, now: float) -> int:
        """Count the addresses that cannot be granted at this time although no NC holds them."""
        reusable_stamp = self.reusable_at(now)
        return sum(count for since, count in self.cooling if since > reusable_stamp)

    def time_at(self, time: float) -> tuple[float, float]:
        """Return the subnet's time and clock offset at a ledger time.

        The time stops while the clock is slightly behind, and continues after a clock was set back. If it continued
        after every small step back, two replicas would push each other's time ahead.
        """
        now = time + self.clock_offset
        if now >= self.latest_time - _MAX_CLOCK_SKEW:
            return max(now, self.latest_time), self.clock_offset
        return self.latest_time, self.latest_time - time


class LedgerTimeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger time when it was last stored, the clocks at that time, and the wall clock at each ledger time."""

    time: float | None = None
    wall: float | None = None
    boot: float | None = None
    offsets: tuple[tuple[float, float], ...] = ()
    """Ledger times, and the wall clock less the ledger time from each on; before the first there was none."""

    def offset_at(self, time: float) -> float:
        """Return the wall clock less the ledger time at a ledger time."""
        return next((offset for since, offset in reversed(self.offsets) if since <= time), 0.0)

    def wall_at(self, time: float) -> float:
        """Return what the wall clock showed at a ledger time."""
        return time + self.offset_at(time)

    def time_of(self, wall: float) -> float:
        """Return the last ledger time at which the wall clock showed this; if it never did, the next one."""
        end, skipped = math.inf, math.inf
        for since, offset in ((-math.inf, 0.0), *self.offsets)[::-1]:
            if since <= wall - offset < end:
                return wall - offset
            if wall - offset >= end:
                skipped = min(skipped, end)
            end = since
        return skipped


class NcRow(msgspec.Struct, frozen=True, kw_only=True):
    """A network container: its owner, the last request, and what it lacks."""

    number: int
    """The owner number in slots."""
    id: str
    cluster: str
    subnet: int
    node: str
    node_uid: str
    boot_id: str | None = None
    version: int = 0
    epoch: int = 0
    """The last recovery in which its cluster has listed it. An inventory overrides what an older one holds."""
    blocks: tuple[int, ...] = ()
    """The blocks that contain its addresses, in order."""
    wanted: int = 0
    released: tuple[str, ...] = ()
    cooled_seconds: float = 0.0
    report: DemandReport | None = None
    served: int = 0
    """Addresses granted since this report was first received: Pods that it counts as waiting have them."""
    pinned: Scaler | None = None
    load: Load | None = None
    """Its part in the subnet's totals."""
    inferred: InferredDemand | None = None
    """The demand inferred from the request of a third-party agent."""
    pod_shortage: int = 0
    pod_short_since: float | None = None
    """Since when its Pods wait, see `fair_queue`."""
    buffer_shortage: int = 0
    buffer_short_since: float | None = None
    quota_shortage: int = 0
    """Addresses that it lacks because its cluster has reached its quota; it does not queue for them."""
    notified_at: float | None = None
    """When it was first notified since its last request that addresses are available."""
    closed: bool = False

    @property
    def unsettled(self) -> bool:
        """Whether its request may not reflect the scaler yet."""
        return self.inferred is not None and not self.inferred.settled

    def close(self) -> "NcRow":
        """Return it closed for good; its addresses must have been released."""
        no_request = {
            "boot_id": None,
            "wanted": 0,
            "released": (),
            "report": None,
            "served": 0,
            "load": None,
            "inferred": None,
            "quota_shortage": 0,
        }
        no_shortage = {"pod_shortage": 0, "pod_short_since": None, "buffer_shortage": 0, "buffer_short_since": None}
        return msgspec.structs.replace(self, closed=True, notified_at=None, **no_request, **no_shortage)


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster in one network: its term, last request, and whether it sent its inventory since the last restore."""

    id: str
    network: str = ""
    term: int = 0
    number: int = 0
    open: bool = True
    """False once a restore has ended the term."""
    epoch: int = 0
    losses: tuple[float, ...] = ()
    """When NCs were recently released because their nodes were gone, see `mass_loss_breaker`."""
    breaker_open_since: float | None = None
    """Since when the circuit breaker is open."""
    limits: TokenLimits = TokenLimits()
    """Of its newest token, see `cluster_limits`."""
    loss_confirmed_until: float | None = None
    """Until when an operator's confirmation keeps it closed."""


class OwnershipConflictRow(msgspec.Struct, frozen=True, kw_only=True):
    """An inventory claims an address that another inventory has claimed before."""

    subnet: int
    address: int
    holder: int
    claimant: int
    grant: bytes


class AllocationEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one NC in one request; all events of a request are one row."""

    nc_id: str
    granted: tuple[tuple[str, str], ...] = ()
    """Addresses with their grant IDs; a primary has an empty one."""
    released: tuple[tuple[str, str], ...] = ()
    closed: bool = False
    note: str = ""


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """The logged changes of one request."""

    number: int
    at: float
    cluster: str
    events: tuple[AllocationEvent, ...]


class AllocationPeriodRow(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which an NC holds an address."""

    number: int = 0
    network: str
    subnet: str
    address: str
    cluster: str
    node: str
    nc_id: str
    grant: str
    """Empty for a primary."""
    since: float
    until: float | None = None


class PodUsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a Pod uses an address, as its cluster reported."""

    network: str
    address: str
    cluster: str
    uid: str
    namespace: str
    name: str
    since: float
    until: float | None = None
    node: str = ""


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of the history; results come the latest first."""

    by: Literal["address", "node", "name"]
    """`name` is that of a Pod."""
    value: str
    namespace: str | None = None
    """Of the Pod; None for all namespaces."""
    cluster: str | None = None
    begin: float
    end: float
    limit: int

    @property
    def terms(self) -> tuple[object, ...]:
        """The parameters of the SQL statements, in their order; only Pods have a namespace."""
        return self.value, self.cluster, self.end, self.begin, self.limit


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A token; the secret itself is not stored."""

    id: str
    name: str
    digest: bytes
    """SHA-256 of the whole token."""
    created_at: float
    admin: bool = False
    cluster: str | None = None
    """The cluster that it is bound to, when created or by its first use."""
    revoked: bool = False
    expires_at: float | None = None
    """The ledger time from which on it is invalid."""
    scope: tuple[str, ...] | None = None
    """The networks and subnets that it may use, see `token_scope`; None for all."""
    limits: TokenLimits = TokenLimits()


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """An administrative call."""

    number: int = 0
    at: float
    token: str
    """The name of the caller's token."""
    token_id: str
    action: str
    """Method and path of the route, such as `POST /v1/tokens`."""
    object: str
    """What it was about; empty if the request does not name it."""
    result: str
    """`ok`, or the code of the error."""


def stamp(seconds: float) -> int:
    """Convert a time to a stamp."""
    return round(seconds * 1_000)


def encode_row(row: object) -> str:
    """Encode a row as JSON."""
    return _encoder.encode(row).decode()

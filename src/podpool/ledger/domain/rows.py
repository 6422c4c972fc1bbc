"""What the books hold beside the blocks: subnets, containers, clusters.

Rows are frozen; a change makes a new one. Times are seconds, stamps are whole milliseconds, both of the subnet's own
time, which never goes back (`steady`): rest must not become shorter because somebody set a clock.
"""

from typing import Literal

import msgspec

from podpool.core.batch_policy import BatchGrade, Load
from podpool.core.inferred_demand import InferredDemand
from podpool.core.scaling import Scaler
from podpool.ledger.domain.block import UNUSED
from podpool.ledger.domain.subnet_layout import SubnetLayout, subnet_layout
from podpool.ledger.messages import DemandReport, SubnetGrowth, SubnetName, SubnetSpec

_encoder = msgspec.json.Encoder()

_SET_BACK = 300.0
"""A clock that is further back than this was set; less is how far the clocks of two replicas run apart."""


class SubnetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A subnet: as it was made, its counters, and what was decided for it."""

    number: int
    made: SubnetSpec
    grown: tuple[SubnetGrowth, ...] = ()
    draining: bool = False
    """Nothing is granted any more; what is held comes back as nodes let go of it."""
    revision: int = 0
    latest: float = 0.0
    """The latest moment that its time has reached,"""
    shift: float = 0.0
    """and how far its time is ahead of the wall clock."""
    held: int = 0
    """Addresses that containers have, primaries too."""
    resting: tuple[tuple[int, int], ...] = ()
    """How many addresses rest from which stamp on, earliest first; the stamps are above `awake`."""
    awake: int = UNUSED
    """The rest of every address stamped at this or before is over. Never goes back: a rest that is over stays over."""
    quiet_until: float = 0.0
    """Nothing is granted before: after a restore nobody knows what was released just before it."""
    granted: int = 0
    released: int = 0
    """How often an address was given and taken back, ever."""
    next_block: int | None = 0
    """The first block that was not made yet."""
    totals: tuple[int, ...] = ()
    """What all containers will hold, on each rung of the ladder."""
    unsettled: int = 0
    """Foreign containers whose request may not answer the scaler yet,"""
    reread_at: float | None = None
    """and when to look again."""
    need: int = 0
    """Addresses that waiting Pods are short of,"""
    wish: int = 0
    """and that buffers are."""
    lapse_at: float | None = None
    """When the first of those who were called has let its turn pass."""
    alarms: int = 0
    grade: BatchGrade = BatchGrade()
    exhausted: bool = False
    due: float | None = None
    """The wall clock's time at which something changes by itself."""

    @property
    def name(self) -> SubnetName:
        """How others call it."""
        return SubnetName(network=self.made.network, name=self.made.name)

    @property
    def ground(self) -> SubnetLayout:
        """Its addresses."""
        return subnet_layout(self.made.cidr, self.made.gateway, self.made.keep_back, self.grown)

    @property
    def cooldown(self) -> float:
        """The cooldown in force."""
        return self.made.cooldown_exhausted if self.exhausted else self.made.cooldown

    def asleep(self, now: float) -> int:
        """Count the addresses that rest at this moment."""
        awake = max(self.awake, stamp(now - self.cooldown))
        return sum(count for since, count in self.resting if since > awake)

    def steady(self, wall: float) -> tuple[float, float]:
        """Tell the subnet's time and shift: it stands still while clocks disagree, and goes on after one was set back.

        Going on at once after every small step back would let two replicas push each other's time ahead.
        """
        now = wall + self.shift
        if now >= self.latest - _SET_BACK:
            return max(now, self.latest), self.shift
        return self.latest, self.latest - wall


class NetworkContainerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A container: whose it is, what was last asked for it, and what it is short of."""

    number: int
    """What slots call it by."""
    id: str
    cluster: str
    subnet: int
    node: str
    node_uid: str
    boot_id: str | None = None
    version: int = 0
    epoch: int = 0
    """The recovery since which its cluster has vouched for it; an older one's claims give way to a list."""
    blocks: tuple[int, ...] = ()
    """Where its addresses are, in order."""
    wanted: int = 0
    released: tuple[str, ...] = ()
    rested: float = 0.0
    report: DemandReport | None = None
    pinned: Scaler | None = None
    load: Load | None = None
    """What it counts for in the subnet's totals."""
    reading: InferredDemand | None = None
    """How its request is read, when its agent is a foreign one."""
    need: int = 0
    need_since: float | None = None
    """Since when Pods of it wait; see `turns`."""
    wish: int = 0
    wish_since: float | None = None
    called: float | None = None
    """When it could be served first, since its last call."""
    closed: bool = False

    @property
    def unsettled(self) -> bool:
        """Its request may not answer the scaler yet."""
        return self.reading is not None and not self.reading.settled

    def shut(self) -> "NetworkContainerRow":
        """Close it for good; whatever it had must have been taken from it."""
        return msgspec.structs.replace(
            self,
            closed=True,
            boot_id=None,
            wanted=0,
            released=(),
            report=None,
            load=None,
            reading=None,
            need=0,
            need_since=None,
            wish=0,
            wish_since=None,
            called=None,
        )


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster: its term, its last call, and whether it has listed since the last restore."""

    id: str
    term: int = 0
    number: int = 0
    open: bool = True
    """False when a restore ended the term."""
    epoch: int = 0
    losses: tuple[float, ...] = ()
    """When containers were given up because their nodes were gone, of late; see `brake`."""
    braked: float | None = None
    """Since when too many are lost at once: none is given up,"""
    agreed_until: float | None = None
    """and until when a person agrees to it all the same."""


class OwnershipConflictRow(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that a list made on an address which another list had claimed before."""

    subnet: int
    address: int
    holder: int
    claimant: int
    grant: bytes


class AllocationEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What one container went through in one call; a batch of them is one row."""

    container: str
    granted: tuple[tuple[str, str], ...] = ()
    """Address and grant; a primary has no grant."""
    released: tuple[tuple[str, str], ...] = ()
    closed: bool = False
    note: str = ""


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one call did, as it was logged."""

    number: int
    at: float
    cluster: str
    events: tuple[AllocationEvent, ...]


class AllocationPeriodRow(msgspec.Struct, frozen=True, kw_only=True):
    """An address in one container's hands, from when to when."""

    number: int = 0
    network: str
    subnet: str
    address: str
    cluster: str
    node: str
    container: str
    grant: str
    """Empty for a primary."""
    since: float
    until: float | None = None


class PodUsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """An address in a Pod's hands, as its cluster reported."""

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
    """Which part of the past is asked for, the latest first."""

    by: Literal["address", "node", "name"]
    """The last is a Pod's."""
    value: str
    namespace: str | None = None
    """Of the Pod; without, of any."""
    cluster: str | None = None
    begin: float
    end: float
    limit: int

    @property
    def terms(self) -> tuple[object, ...]:
        """Tell what the stores ask for, in their order; the namespace is for Pods alone."""
        return self.value, self.cluster, self.end, self.begin, self.limit


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who may call. The secret itself is with its owner alone."""

    id: str
    name: str
    digest: bytes
    """SHA-256 of the whole token."""
    made: float
    admin: bool = False
    cluster: str | None = None
    """Whom it speaks for: said when it was made, or by its first use."""
    revoked: bool = False


def stamp(seconds: float) -> int:
    """Turn a moment into a stamp."""
    return round(seconds * 1_000)


def text_of(row: object) -> str:
    """Write a row as JSON."""
    return _encoder.encode(row).decode()

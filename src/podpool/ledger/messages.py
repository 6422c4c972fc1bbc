"""What is said to the ledger and what it answers, as JSON.

The one call that matters is `ReconcileRequest`: many containers, each with what it wants, which grants it lets go of and what
its agent reports. It may be lost, repeated, reordered or late: `term` and `number` say which call is newer, and a grant
is released by its identity, never by its address. `held = (held - released) topped up to wanted`: asking for less
without naming grants takes nothing away, and a name that is not held (any more) is ignored.

`seen` is the highest revision that the caller has had from the ledger. Books that are older than that were restored:
then every term ends, and a cluster that opens its next one may be told to send a full `Inventory` first.
"""

from typing import Annotated, Self

import msgspec

from podpool.core.scaling import Scaler
from podpool.core.settings import Settings

SafeInt = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""Beyond that, not every reader of JSON counts right."""


class LedgerMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that travels; what is as it always is need not be written."""


class SubnetName(LedgerMessage, frozen=True, kw_only=True):
    """A subnet, by the network that it is in and its name there."""

    network: str
    name: str

    def __str__(self) -> str:
        return f"{self.network}.{self.name}"


class Grant(LedgerMessage, frozen=True, kw_only=True):
    """One address given to one container; the identity is a UUID that is new each time."""

    id: str
    address: str


class DemandReport(LedgerMessage, frozen=True, kw_only=True):
    """What an agent tells in its annotation."""

    demand: int = 0
    """Addresses that Pods of the node use, let rest, or wait for."""
    waiting: int = 0
    """Pods that wait although the node's last request was answered short."""
    batch: int = 0
    """The batch that the agent scaled with."""
    version: int = 0
    """The highest version of its container that the agent accepted."""


class ErrorResponse(LedgerMessage, frozen=True, kw_only=True):
    """Why something was not done: a code for programs, a sentence for people, and the field that is to blame."""

    error: str
    message: str
    field: str | None = None


# The reconcile call


class ReconcileItem(LedgerMessage, frozen=True, kw_only=True):
    """One container: what it should have. Without `container` one is opened, or found if it was opened before."""

    subnet: SubnetName
    node: str
    node_uid: str
    """Opened by cluster, node, node UID and subnet; a container that is kept takes the UID of its new Node."""
    nc_id: str | None = None
    boot_id: str | None = None
    """As the agent wrote it; None when it has not, or is a foreign one. What is known is not forgotten by a None."""
    wanted: int = 0
    """Secondary addresses; none at all is normal."""
    released: tuple[str, ...] = ()
    """Grants that the node never uses again."""
    cooled_seconds: float = 0.0
    """For how many seconds the most recently used of them has rested; the ledger rests the remainder."""
    report: DemandReport | None = None
    """None from a foreign agent: its demand is then bounded from what it wants."""
    pinned: Scaler | None = None
    """The scaler that the cluster insists on."""
    maximum: int = 250
    """The most secondaries that the node may want: for the projection."""
    gone: bool = False
    """The node is gone: close the container for good, and free all of it after rest."""


class ReconcileRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/reconcile`: many containers of one cluster."""

    cluster: str
    """The UID of the cluster's kube-system namespace."""
    term: SafeInt
    number: SafeInt
    """Rises with each call of a term, from 1; one that is not above the last changes nothing and shows what is."""
    seen: SafeInt = 0
    missing: SafeInt = 0
    """How many of the cluster's containers have no Node at this moment, those that are gone included: for the brake."""
    items: tuple[ReconcileItem, ...] = ()


class NetworkContainerState(LedgerMessage, frozen=True, kw_only=True):
    """What a container has. A status is written from this, and written again when its version differs."""

    nc_id: str
    subnet: SubnetName
    version: int
    """Rises with each change of the set; given by the ledger alone."""
    primary: str = ""
    grants: tuple[Grant, ...] = ()
    """In the order of their addresses."""
    short: int = 0
    """How many fewer secondaries than wanted: the ledger remembers who waits, and since when."""
    closed: bool = False
    """Given up for good: it has nothing, and never will."""


class NetworkContainerResult(LedgerMessage, frozen=True, kw_only=True):
    """What became of one item: its state, or the reason why it was left as it is."""

    state: NetworkContainerState | None = None
    error: ErrorResponse | None = None


class ReconcileResponse(LedgerMessage, frozen=True, kw_only=True):
    """One result per item, in their order."""

    revision: int
    results: tuple[NetworkContainerResult, ...] = ()
    subnets: tuple["SubnetState", ...] = ()
    """Each subnet that the items are in."""
    servable: tuple[str, ...] = ()
    """The caller's containers in these subnets that are short and would be given something now, first come first."""
    changed: bool = True
    """False when the number was not above the last: nothing was done, and this is what is."""


# Terms, and recovery after a restore


class OpenTermRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/terms`: what each new leader does first."""

    cluster: str
    known: SafeInt = 0
    """The highest term that the cluster has seen."""
    seen: SafeInt = 0


class Term(LedgerMessage, frozen=True, kw_only=True):
    """The caller's term: above any that the cluster has seen. Every earlier one has ended."""

    term: int
    revision: int
    listing_wanted: bool = False
    """The books may be older than what the cluster has: write to each NNC, read them, and send a `Inventory`."""


class InventoryItem(LedgerMessage, frozen=True, kw_only=True):
    """A container as the cluster's own objects show it."""

    nc_id: str
    subnet: SubnetName
    node: str
    node_uid: str
    boot_id: str | None = None
    version: SafeInt
    primary: str
    grants: tuple[Grant, ...] = ()
    wanted: int = 0
    released: tuple[str, ...] = ()
    cooled_seconds: float = 0.0
    report: DemandReport | None = None
    pinned: Scaler | None = None
    maximum: int = 250


class Inventory(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/listings`: all containers of a cluster, read after a write to each, so that no older one can follow.

    Counts only while the ledger wants it; at other times the books decide, and it changes nothing.
    """

    cluster: str
    term: SafeInt
    seen: SafeInt = 0
    network_containers: tuple[InventoryItem, ...] = ()


class OwnershipConflict(LedgerMessage, frozen=True, kw_only=True):
    """Two lists claim one address: nothing is granted in its subnet until a person has settled it."""

    subnet: SubnetName
    address: str
    holder: str
    """The container that has it in the books,"""
    claimant: str
    """and the one that lists it too."""


class InventoryResponse(LedgerMessage, frozen=True, kw_only=True):
    """What each listed container has now, in their order; a container in an alarm has an error instead."""

    revision: int
    results: tuple[NetworkContainerResult, ...] = ()
    conflicts: tuple[OwnershipConflict, ...] = ()


class PendingInventory(LedgerMessage, frozen=True, kw_only=True):
    """A subnet that grants nothing until a cluster has listed."""

    subnet: SubnetName
    cluster: str


class RecoveryStatus(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/recovery`: whom the ledger waits for, and what a person must settle."""

    revision: int
    pending_inventories: tuple[PendingInventory, ...] = ()
    conflicts: tuple[OwnershipConflict, ...] = ()


class ExcuseRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/recovery/excuse`: a person says that a cluster need not be waited for. It lists when it returns."""

    cluster: str


class ResolveConflictRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/recovery/settle`: a person says to which of the two an address belongs."""

    subnet: SubnetName
    address: str
    nc_id: str


# Containers, as the ledger remembers them


class NetworkContainerRecord(LedgerMessage, frozen=True, kw_only=True):
    """What an NNC can be made again from: the ledger's copy of what the controller last sent, and the state."""

    state: NetworkContainerState
    node: str
    node_uid: str
    boot_id: str | None = None
    wanted: int = 0
    released: tuple[str, ...] = ()
    cooled_seconds: float = 0.0
    report: DemandReport | None = None
    pinned: Scaler | None = None


class NetworkContainerList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/containers?cluster=...`: every container of a cluster that is not closed."""

    revision: int
    network_containers: tuple[NetworkContainerRecord, ...] = ()


# Subnets


class SubnetSpec(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/subnets`. Shares are in hundredths, durations in seconds."""

    network: str
    name: str
    cidr: str
    gateway: str | None = None
    excluded_ranges: tuple[str, ...] = ()
    """Never given: addresses, `10.0.0.0/28`, or `10.0.0.4-10.0.0.9`."""
    reserved_for_primaries: int = 4
    """This many free addresses are given as primaries only."""
    cooldown: float = 30.0
    cooldown_exhausted: float = 5.0
    """In force while the subnet is exhausted."""
    batch: int = 16
    buffer: int = 50
    upper_threshold: int = 90
    lower_threshold: int = 80
    step_up_margin: int = 5
    """The batch goes up when the higher one leaves this share of the subnet free below `upper_threshold`,"""
    step_up_hold: float = 60.0
    """for this long."""

    def with_settings(self, settings: Settings) -> Self:
        """Take what a subnet has of them."""
        return msgspec.structs.replace(
            self,
            reserved_for_primaries=settings.reserved_for_primaries,
            cooldown=settings.cooldown,
            cooldown_exhausted=settings.cooldown_exhausted,
            batch=settings.batch,
            buffer=settings.buffer,
            upper_threshold=settings.upper_threshold,
            lower_threshold=settings.lower_threshold,
            step_up_margin=settings.step_up_margin,
            step_up_hold=settings.step_up_hold,
        )


class SubnetGrowth(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/networks/{network}/subnets/{subnet}/grow`: a CIDR around one that the subnet has, or a further one."""

    cidr: str
    excluded_ranges: tuple[str, ...] = ()
    """Of what is new."""


class SubnetState(LedgerMessage, frozen=True, kw_only=True):
    """A subnet as it is now, with what the ledger decided for it. `GET /v1/networks/{network}/subnets/{subnet}`."""

    subnet: SubnetName
    revision: int
    """When its books last changed."""
    timestamp: str
    cidr: str
    further: tuple[str, ...] = ()
    """CIDRs that it was given beside the first."""
    gateway: str | None = None
    capacity: int
    """The CIDRs less network and broadcast address (IPv4), gateway, and what is kept back."""
    reserved: int
    """Everything that cannot be granted now: primaries, secondaries, resting."""
    cooling: int = 0
    excluded: int = 0
    """Never given: the gateway, and what a person keeps back. Not part of the capacity."""
    reserved_for_primaries: int = 0
    cooldown: float
    """The one in force."""
    scaler: Scaler
    """Batch and buffer that nodes scale with now."""
    exhausted: bool = False
    projected: int = 0
    """What all containers, in all clusters, will hold with this scaler."""
    waiting: int = 0
    """Addresses that waiting Pods are short of,"""
    waiting_for_buffer: int = 0
    """and that buffers are."""
    frozen: bool = False
    """Nothing is granted: the ledger recovers, or an address has two owners."""
    draining: bool = False
    """Nothing is granted: the subnet is being emptied."""


class SubnetList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/subnets`: all of them, by network and name."""

    revision: int
    subnets: tuple[SubnetState, ...] = ()


class Utilization(LedgerMessage, frozen=True, kw_only=True):
    """`GET /networks/{network}/subnets/{subnet}/utilization` answers an array of these."""

    timestamp: str
    capacity: int
    reserved: int


class SubnetChange(LedgerMessage, frozen=True, kw_only=True):
    """An event of `GET /v1/changes?cluster=...`: first each subnet as it is, then whatever changes."""

    state: SubnetState
    servable: tuple[str, ...] = ()
    """The caller's containers that are short and would be given something now."""
    removed: bool = False
    """The subnet was deleted; the state is its last."""

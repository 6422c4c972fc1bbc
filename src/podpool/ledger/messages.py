"""Requests and responses of the ledger, as JSON.

The central call is `ReconcileRequest`: many network containers (NCs), each with the number of addresses wanted, the
grants released, and its agent's report. It may be lost, repeated, reordered or late: `term` and `number` order the
requests, and a grant is released by its ID, never by its address. The result is `held = (held - released), topped up
to wanted`: wanting less without releasing grants takes nothing away, and an ID that is not held is ignored.

Terms and revisions are those of one network. `known_revision` is the highest revision that the caller has received in
it. A database with a lower one was restored: every term of the network ends, and a cluster that opens its next term
there may have to send its `Inventory` first.
"""

from typing import Annotated, Self

import msgspec

from podpool.core.cooldown_levels import CooldownLevels
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings

SafeInt = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""Not every JSON parser reads larger integers exactly."""
TIMEOUT_HEADER = "request-timeout"
"""For how many seconds the caller waits for the response; what has not begun by then is not processed."""


class LedgerMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all messages; defaults are omitted on the wire."""


class SubnetName(LedgerMessage, frozen=True, kw_only=True):
    """A subnet, by its network and its name there."""

    network: str
    name: str

    def __str__(self) -> str:
        return f"{self.network}.{self.name}"


class Grant(LedgerMessage, frozen=True, kw_only=True):
    """One address assigned to one NC; the ID is a UUID, new each time."""

    id: str
    address: str


class DemandReport(LedgerMessage, frozen=True, kw_only=True):
    """The part of an agent's report that the ledger uses."""

    demand: int = 0
    """Addresses that Pods of the node use or wait for, or that cool down on it."""
    waiting: int = 0
    """Pods that wait although the node's last request was answered with too few addresses."""
    batch: int = 0
    """The batch that the agent scaled with."""
    version: int = 0
    """The highest version of its NC that the agent accepted."""


class ErrorResponse(LedgerMessage, frozen=True, kw_only=True):
    """An error: a code for programs, a message for people, and the field at fault."""

    error: str
    message: str
    field: str | None = None


class TokenLimits(LedgerMessage, frozen=True, kw_only=True):
    """The quota of a cluster in each network, and its weight while addresses are short."""

    max_addresses: int | None = None
    """Primaries included; None for no limit."""
    max_network_containers: int | None = None
    """None for no limit."""
    priority: int = 1
    """With 2 its share of a subnet without enough addresses is twice that of a cluster with 1."""


# Reconcile


class ReconcileItem(LedgerMessage, frozen=True, kw_only=True):
    """The desired state of one NC. Without `nc_id` an NC is opened, or found if it was opened before."""

    subnet: SubnetName
    node: str
    node_uid: str
    """An NC is opened by cluster, node, node UID and subnet; one that is kept takes the UID of its new Node."""
    nc_id: str | None = None
    boot_id: str | None = None
    """As the agent reported it; None from a third-party agent. None does not delete a known one."""
    wanted: int = 0
    """Secondary addresses; may be 0."""
    released: tuple[str, ...] = ()
    """IDs of grants that the node will not use again."""
    cooled_seconds: float = 0.0
    """How long the most recently used of them has cooled down; the ledger adds the remainder."""
    report: DemandReport | None = None
    """None from a third-party agent: its demand is inferred from `wanted`."""
    pinned: Scaler | None = None
    """The scaler that the cluster has pinned."""
    maximum: int = 250
    """The most secondaries that the node may want: for the projection."""
    node_gone: bool = False
    """The node is gone: close the NC for good, and free its addresses after the cooldown."""


class ReconcileRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/reconcile`: many NCs of one cluster in one network."""

    cluster: str
    """The UID of the cluster's kube-system namespace."""
    network: str = ""
    """The network of all items. Empty, as earlier versions send it, while the ledger has only one."""
    term: SafeInt
    number: SafeInt
    """Rises with each request of a term, from 1; one that is not above the last changes nothing."""
    known_revision: SafeInt = 0
    missing: SafeInt = 0
    """How many of the cluster's NCs have no Node now, those that are gone included: for the circuit breaker."""
    items: tuple[ReconcileItem, ...] = ()


class NetworkContainerState(LedgerMessage, frozen=True, kw_only=True):
    """The addresses of an NC. Its status is written from this, and again when its version differs."""

    nc_id: str
    subnet: SubnetName
    version: int
    """Rises with each change of the addresses; issued by the ledger alone."""
    primary: str = ""
    grants: tuple[Grant, ...] = ()
    """In order of their addresses."""
    shortage: int = 0
    """Secondaries wanted but not granted; the NC keeps its place in the fair queue."""
    shortage_reason: str | None = None
    """Why they are not granted, if it is not the subnet that lacks them: a quota, or the scope of the token."""
    closed: bool = False
    """Closed for good: it holds nothing, and never will again."""


class NetworkContainerResult(LedgerMessage, frozen=True, kw_only=True):
    """The result of one item: the state of its NC, or the error that left it unchanged."""

    state: NetworkContainerState | None = None
    error: ErrorResponse | None = None


class ReconcileResponse(LedgerMessage, frozen=True, kw_only=True):
    """One result per item, in their order."""

    revision: int
    results: tuple[NetworkContainerResult, ...] = ()
    subnets: tuple["SubnetState", ...] = ()
    """The subnets of the items."""
    servable: tuple[str, ...] = ()
    """The caller's NCs in these subnets that would be granted addresses now, in order of the fair queue."""
    changed: bool = True
    """False if the number was not above the last: the response is the current state."""


# Terms, and recovery after a restore


class OpenTermRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/terms`: the first call of each new leader in a network."""

    cluster: str
    network: str = ""
    """Empty, as earlier versions send it, while the ledger has only one."""
    known_term: SafeInt = 0
    """The highest term that the cluster has seen in the network."""
    known_revision: SafeInt = 0


class Term(LedgerMessage, frozen=True, kw_only=True):
    """The caller's fencing token: above any term that the cluster has seen. Every earlier term has ended."""

    term: int
    revision: int
    inventory_required: bool = False
    """The database may be older than the cluster's state: write to each NNC, read them, and send an `Inventory`."""


class InventoryItem(LedgerMessage, frozen=True, kw_only=True):
    """An NC as the cluster's objects show it."""

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
    """`POST /v1/inventory`: all NCs of a cluster in a network, read after a write to each: no older state can follow.

    It counts only while the ledger requires it; at other times the database decides, and it changes nothing.
    """

    cluster: str
    network: str = ""
    """Empty, as earlier versions send it, while the ledger has only one."""
    term: SafeInt
    known_revision: SafeInt = 0
    network_containers: tuple[InventoryItem, ...] = ()


class OwnershipConflict(LedgerMessage, frozen=True, kw_only=True):
    """Two inventories claim one address: nothing is granted in its subnet until an operator resolves it."""

    subnet: SubnetName
    address: str
    holder: str
    """The NC that holds it in the database."""
    claimant: str
    """The NC whose inventory claims it too."""


class InventoryResponse(LedgerMessage, frozen=True, kw_only=True):
    """The result of each item, in their order; an NC with an ownership conflict has an error."""

    revision: int
    results: tuple[NetworkContainerResult, ...] = ()
    conflicts: tuple[OwnershipConflict, ...] = ()


class PendingInventory(LedgerMessage, frozen=True, kw_only=True):
    """A subnet that grants nothing until a cluster has sent its inventory."""

    subnet: SubnetName
    cluster: str


class RecoveryStatus(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/recovery`: the inventories that are missing, and the conflicts that an operator must resolve."""

    revision: int
    pending_inventories: tuple[PendingInventory, ...] = ()
    conflicts: tuple[OwnershipConflict, ...] = ()


class ExcuseRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/recovery/excuse`: recover without a cluster's inventory. It sends one when it returns."""

    cluster: str
    network: str = ""
    """Empty for all networks that wait for it."""


class ResolveConflictRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/recovery/resolve`: assign a disputed address to one of its two owners."""

    subnet: SubnetName
    address: str
    nc_id: str


# Network containers


class NetworkContainerRecord(LedgerMessage, frozen=True, kw_only=True):
    """An NC's state and the last request for it: enough to create its NNC again."""

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
    """`GET /v1/network-containers?cluster=...`: the open NCs of a cluster."""

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
    """Never granted: addresses, `10.0.0.0/28`, or `10.0.0.4-10.0.0.9`."""
    reserved_for_primaries: int = 4
    """This many free addresses are granted as primaries only."""
    cooldown_roomy: float = 130.0
    """Cooldown while the subnet has its configured batch."""
    cooldown_filling: float = 30.0
    """Cooldown while the subnet has a smaller batch."""
    cooldown_exhausted: float = 5.0
    """Cooldown while the subnet is exhausted. A used address is never granted before it has passed."""
    batch: int = 16
    buffer: int = 50
    upper_threshold: int = 90
    lower_threshold: int = 80
    step_up_margin: int = 5
    """The batch rises when the higher one leaves this share of the subnet free below `upper_threshold`."""
    step_up_hold: float = 60.0
    """Time for which the higher batch must fit before the batch rises."""

    def with_settings(self, settings: Settings) -> Self:
        """Return the spec with the subnet's part of the settings."""
        shared = set(self.__struct_fields__) & set(settings.__struct_fields__)
        return msgspec.structs.replace(self, **{name: getattr(settings, name) for name in shared})

    @property
    def cooldown_levels(self) -> CooldownLevels:
        """The three cooldowns."""
        return CooldownLevels(self.cooldown_roomy, self.cooldown_filling, self.cooldown_exhausted)


class SubnetGrowth(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/networks/{network}/subnets/{subnet}/grow`: a CIDR around one of the subnet's, or an additional one."""

    cidr: str
    excluded_ranges: tuple[str, ...] = ()
    """Of the new addresses."""


class SubnetState(LedgerMessage, frozen=True, kw_only=True):
    """A subnet now, with the scaling decisions for it. `GET /v1/networks/{network}/subnets/{subnet}`."""

    subnet: SubnetName
    revision: int
    """Of the subnet's last change."""
    timestamp: str
    cidr: str
    additional_cidrs: tuple[str, ...] = ()
    gateway: str | None = None
    capacity: int
    """The CIDRs less network and broadcast address (IPv4), gateway, and excluded ranges."""
    reserved: int
    """Addresses that cannot be granted now: primaries, secondaries, and those used most recently."""
    cooling_down: int = 0
    """Free addresses that were used within the shortest cooldown."""
    excluded: int = 0
    """Never granted: the gateway and the excluded ranges. Not part of the capacity."""
    reserved_for_primaries: int = 0
    cooldown: float
    """The level in force: addresses that have cooled down for so long are granted before others."""
    shortest_cooldown: float | None = None
    """No address is granted or assigned before, even if there is no other. Ledgers before this version lack it."""
    network_containers: int = 0
    """NCs on the subnet, in all clusters."""
    scaler: Scaler
    """Batch and buffer that nodes scale with now."""
    exhausted: bool = False
    projected: int = 0
    """Addresses that all NCs, in all clusters, will hold with this scaler."""
    waiting: int = 0
    """Addresses that waiting Pods lack."""
    waiting_for_buffer: int = 0
    """Addresses that buffers lack."""
    frozen: bool = False
    """Nothing is granted: the ledger recovers, or an address has two owners."""
    draining: bool = False
    """Nothing is granted: the subnet is being emptied."""


class SubnetList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/subnets`: all subnets, by network and name."""

    revision: int
    subnets: tuple[SubnetState, ...] = ()


class Utilization(LedgerMessage, frozen=True, kw_only=True):
    """`GET /networks/{network}/subnets/{subnet}/utilization` returns an array of these."""

    timestamp: str
    capacity: int
    reserved: int


class SubnetChange(LedgerMessage, frozen=True, kw_only=True):
    """An event of `GET /v1/changes?cluster=...`: first the state of each subnet, then its changes."""

    state: SubnetState
    servable: tuple[str, ...] = ()
    """The caller's NCs that would be granted addresses now."""
    removed: bool = False
    """The subnet was deleted; the state is its last."""

"""Requests and responses of the administrative calls: subnet details, tokens, clusters, history."""

from podpool.ledger.messages import LedgerMessage, SubnetGrowth, SubnetName, SubnetSpec, SubnetState, TokenLimits

# Subnets


class ClusterUsage(LedgerMessage, frozen=True, kw_only=True):
    """The usage of a subnet by one cluster."""

    cluster: str
    network_containers: int
    held: int
    """Addresses, primaries included."""
    waiting: int = 0
    """Addresses that its waiting Pods lack."""
    waiting_for_buffer: int = 0
    """Addresses that its buffers lack."""


class SubnetDetails(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/networks/{network}/subnets/{subnet}/details`: spec, growths and usage per cluster."""

    state: SubnetState
    spec: SubnetSpec
    growths: tuple[SubnetGrowth, ...] = ()
    clusters: tuple[ClusterUsage, ...] = ()
    """A cluster sees only itself."""


class Occupant(LedgerMessage, frozen=True, kw_only=True):
    """A node's NC and its addresses."""

    cluster: str = ""
    """Empty if it belongs to another cluster than the caller's, like `node`."""
    node: str = ""
    primaries: tuple[str, ...] = ()
    secondaries: tuple[str, ...] = ()


class CoolingAddress(LedgerMessage, frozen=True, kw_only=True):
    """An address that cools down."""

    address: str
    until: str


class Occupancy(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/networks/{network}/subnets/{subnet}/addresses`: every address that is not free."""

    revision: int
    cidrs: tuple[str, ...]
    members: tuple[str, ...]
    """The ranges that can be granted: `10.0.0.2-10.0.0.254`."""
    occupants: tuple[Occupant, ...] = ()
    cooling_down: tuple[CoolingAddress, ...] = ()
    complete: bool = True
    """False if there are more addresses than one response contains."""


class NetworkSummary(LedgerMessage, frozen=True, kw_only=True):
    """A network and its subnets, which do not overlap."""

    name: str
    subnets: tuple[str, ...]
    capacity: int
    reserved: int


class NetworkList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/networks`: all networks, by name."""

    networks: tuple[NetworkSummary, ...] = ()


class DeletedSubnet(LedgerMessage, frozen=True, kw_only=True):
    """`DELETE /v1/networks/{network}/subnets/{subnet}`."""

    subnet: SubnetName


# Tokens


class CreateTokenRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/tokens`."""

    name: str
    cluster: str | None = None
    """The cluster that it is bound to; None binds it by its first use."""
    admin: bool = False
    """It manages subnets, tokens and clusters, and is bound to no cluster."""
    scope: tuple[str, ...] | None = None
    """The networks (`vnet`) and subnets (`vnet.pods`) that it may use; None for all, also those created later."""
    lifetime: float | None = None
    """Seconds for which it is valid; None until it is revoked."""
    limits: TokenLimits = TokenLimits()


class RotateTokenRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/tokens/{token}/rotate`: a new secret for the same cluster. Fields that are None stay as they are."""

    overlap: float = 86_400.0
    """Seconds for which the former token stays valid too."""
    scope: tuple[str, ...] | None = None
    """The networks and subnets that the new token may use."""
    lifetime: float | None = None
    """Seconds for which the new token is valid; None until it is revoked."""
    limits: TokenLimits | None = None


class TokenInfo(LedgerMessage, frozen=True, kw_only=True):
    """A token; the secret is returned only when it is created."""

    id: str
    name: str
    created_at: str
    admin: bool = False
    cluster: str | None = None
    revoked: bool = False
    expires_at: str | None = None
    expired: bool = False
    scope: tuple[str, ...] | None = None
    """The networks and subnets that it may use; None for all."""
    limits: TokenLimits = TokenLimits()
    secret: str | None = None
    """Sent as `Authorization: Bearer ...`. Only its hash is stored."""


class TokenList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/tokens`: all tokens, revoked ones included."""

    tokens: tuple[TokenInfo, ...] = ()


class AuditEntry(LedgerMessage, frozen=True, kw_only=True):
    """An administrative call."""

    at: str
    token: str
    """Name of the caller's token."""
    token_id: str
    action: str
    """Method and path of the route."""
    object: str = ""
    """What it was about."""
    result: str
    """`ok`, or the code of the error."""


class AuditLog(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/audit-log`: the latest administrative calls, the latest first."""

    entries: tuple[AuditEntry, ...] = ()


# Clusters


class ClusterSummary(LedgerMessage, frozen=True, kw_only=True):
    """A cluster and its state in one of its networks."""

    id: str
    """The UID of its kube-system namespace."""
    network: str = ""
    tokens: tuple[str, ...] = ()
    """Names of the tokens bound to it."""
    term: int = 0
    network_containers: int = 0
    inventory_pending: bool = False
    """The ledger was restored and requires its inventory."""
    breaker_open_since: str | None = None
    """Since when the mass-loss circuit breaker is open: too many nodes are gone at once, and none is released."""


class ClusterList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/clusters`: all clusters."""

    clusters: tuple[ClusterSummary, ...] = ()


class RetiredCluster(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/clusters/{cluster}/retire`: what was released."""

    cluster: str
    network_containers: int
    addresses: int
    tokens: int
    """Revoked."""


# History


class PodUsage(LedgerMessage, frozen=True, kw_only=True):
    """A Pod used an address. Times are RFC 3339."""

    network: str
    address: str
    namespace: str
    name: str
    uid: str
    since: str
    until: str | None = None
    node: str = ""
    """The Pod's node; empty if not reported."""


class PodReport(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/pods`: addresses that Pods of a cluster use or used. A repeated report changes nothing."""

    cluster: str
    pods: tuple[PodUsage, ...] = ()


class PodReportResponse(LedgerMessage, frozen=True, kw_only=True):
    """How many usages were recorded."""

    count: int


class AllocationPeriod(LedgerMessage, frozen=True, kw_only=True):
    """The time in which a node's NC holds an address."""

    subnet: SubnetName
    address: str
    cluster: str
    node: str
    nc_id: str
    grant: str | None = None
    """None for the NC's primary."""
    since: str
    until: str | None = None
    """None while it is held."""
    pods: tuple[PodUsage, ...] = ()
    """The latest first."""


class ReportedPodUsage(PodUsage, frozen=True, kw_only=True):
    """A Pod used an address, with its cluster."""

    cluster: str


class AddressHistory(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/history/{addresses,nodes,pods}/...`: the latest first."""

    retention_seconds: float
    """For how long history is kept."""
    periods: tuple[AllocationPeriod, ...] = ()
    """Of an address or a node; for a Pod see `pod_usages`."""
    pod_usages: tuple[ReportedPodUsage, ...] = ()
    """All of a Pod; of an address or a node only those in secondary networks, which the ledger does not manage."""

"""What a person asks of the ledger and is told: subnets in detail, clusters, tokens, history."""

from podpool.ledger.messages import SubnetGrowth, LedgerMessage, SubnetSpec, SubnetName, SubnetState

# Subnets


class ClusterUsage(LedgerMessage, frozen=True, kw_only=True):
    """What one cluster has in a subnet."""

    cluster: str
    network_containers: int
    held: int
    """Addresses, primaries too."""
    waiting: int = 0
    """Addresses that its waiting Pods are short of,"""
    waiting_for_buffer: int = 0
    """and that its buffers are."""


class SubnetDetails(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/networks/{network}/subnets/{subnet}/details`: as it was made, what it was given since, who holds it."""

    state: SubnetState
    spec: SubnetSpec
    growths: tuple[SubnetGrowth, ...] = ()
    holders: tuple[ClusterUsage, ...] = ()
    """A cluster sees only itself."""


class Occupant(LedgerMessage, frozen=True, kw_only=True):
    """A node's container and the addresses that it has."""

    cluster: str = ""
    node: str = ""
    """Both are empty when it is another cluster's."""
    primaries: tuple[str, ...] = ()
    secondaries: tuple[str, ...] = ()


class CoolingAddress(LedgerMessage, frozen=True, kw_only=True):
    """An address that nobody has, and nobody is given yet."""

    address: str
    until: str


class Occupancy(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/networks/{network}/subnets/{subnet}/addresses`: every address that is not free."""

    revision: int
    cidrs: tuple[str, ...]
    members: tuple[str, ...]
    """What may be given, as stretches: `10.0.0.2-10.0.0.254`."""
    occupants: tuple[Occupant, ...] = ()
    cooling: tuple[CoolingAddress, ...] = ()
    complete: bool = True
    """False when there are more than one answer holds."""


class NetworkSummary(LedgerMessage, frozen=True, kw_only=True):
    """A network: nothing but the subnets in it, which do not overlap."""

    name: str
    subnets: tuple[str, ...]
    capacity: int
    reserved: int


class NetworkList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/networks`: all of them, by name."""

    networks: tuple[NetworkSummary, ...] = ()


class DeletedSubnet(LedgerMessage, frozen=True, kw_only=True):
    """`DELETE /v1/networks/{network}/subnets/{subnet}`: which one is no more."""

    subnet: SubnetName


# Tokens


class CreateTokenRequest(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/tokens`: let somebody call."""

    name: str
    """For people: whose it is."""
    cluster: str | None = None
    """Whom it speaks for; None lets its first use say so. To exchange a cluster's token, name the cluster."""
    admin: bool = False
    """It manages subnets, tokens and clusters, and speaks for none."""


class TokenInfo(LedgerMessage, frozen=True, kw_only=True):
    """A token as it may be shown; the secret is told once, when it is made."""

    id: str
    name: str
    created_at: str
    admin: bool = False
    cluster: str | None = None
    revoked: bool = False
    secret: str | None = None
    """What the caller sends as `Authorization: Bearer ...`. Only its hash is kept."""


class TokenList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/tokens`: all of them, revoked ones too."""

    tokens: tuple[TokenInfo, ...] = ()


# Clusters


class ClusterSummary(LedgerMessage, frozen=True, kw_only=True):
    """A cluster as the ledger knows it."""

    id: str
    """The UID of its kube-system namespace."""
    tokens: tuple[str, ...] = ()
    """Names of the tokens that speak for it."""
    term: int = 0
    network_containers: int = 0
    pending_inventories: bool = False
    """The ledger was restored and waits for its list."""
    breaker_open_since: str | None = None
    """Since when too many of its nodes are lost at once, so that none is given up."""


class ClusterList(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/clusters`: all of them."""

    clusters: tuple[ClusterSummary, ...] = ()


class RetiredCluster(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/clusters/{cluster}/retire`: what a destroyed cluster gave back."""

    cluster: str
    network_containers: int
    addresses: int
    tokens: int
    """Revoked."""


# History


class PodUsage(LedgerMessage, frozen=True, kw_only=True):
    """A Pod had an address. Moments are RFC 3339."""

    network: str
    address: str
    namespace: str
    name: str
    uid: str
    since: str
    until: str | None = None
    node: str = ""
    """Where the Pod is, or was; empty when nobody reported it."""


class PodReport(LedgerMessage, frozen=True, kw_only=True):
    """`POST /v1/pods`: which Pods of a cluster have, or had, which addresses. The same again changes nothing."""

    cluster: str
    pods: tuple[PodUsage, ...] = ()


class PodReportResponse(LedgerMessage, frozen=True, kw_only=True):
    """How much of a report was written down."""

    count: int


class AllocationPeriod(LedgerMessage, frozen=True, kw_only=True):
    """An address in one node's hands."""

    subnet: SubnetName
    address: str
    cluster: str
    node: str
    nc_id: str
    grant: str | None = None
    """None for the container's primary."""
    since: str
    until: str | None = None
    """None while it lasts."""
    pods: tuple[PodUsage, ...] = ()
    """The latest first."""


class ReportedPodUsage(PodUsage, frozen=True, kw_only=True):
    """A Pod had an address, as its cluster reported it."""

    cluster: str


class AddressHistory(LedgerMessage, frozen=True, kw_only=True):
    """`GET /v1/history/{addresses,nodes,pods}/...`: the latest first."""

    kept: float
    """For how many seconds the past is kept."""
    periods: tuple[AllocationPeriod, ...] = ()
    """Not of a Pod: it has `uses`."""
    uses: tuple[ReportedPodUsage, ...] = ()
    """All that a Pod had; of an address or a node only what is of further networks, which the ledger does not give."""

"""Quotas: how many addresses and network containers a cluster may hold in one network, and its weight.

They belong to tokens; those of a cluster's newest token count, and are kept in the cluster's row, so that they are read
and checked in the transaction that grants. A quota limits what is granted: a lower one takes nothing away. What a
cluster lacks because of its quota queues for nothing, and neither exhausts a subnet nor makes its batch smaller.
"""

from msgspec.structs import replace

from podpool.ledger.domain.allocations import Allocations
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import ClusterRow, ClusterUse, TokenRow
from podpool.ledger.errors import Invalid, QuotaReached
from podpool.ledger.messages import TokenLimits

MAX_QUOTA = 1 << 32
MAX_PRIORITY = 100

_REMEDY = "release some, or let an administrator raise it: `podpool ledger token rotate NAME {option} N`"


class Quota:
    """What a cluster may still get in one subnet, while a request is processed."""

    def __init__(self, cluster: ClusterRow, allocations: Allocations, *, elsewhere: ClusterUse) -> None:
        self._cluster = cluster
        self._allocations = allocations
        self._elsewhere = elsewhere
        """What it has in other subnets of the network."""

    @property
    def addresses_left(self) -> int | None:
        """How many more addresses it may hold; None without a limit."""
        limit = self._cluster.limits.max_addresses
        if limit is None:
            return None
        return max(0, limit - self._elsewhere.held - self._allocations.use(self._cluster.id).held)

    def error(self, *, opened: int) -> QuotaReached | None:
        """Return why no further NC can be opened, or no further address granted; `opened` are not written yet."""
        limits, network = self._cluster.limits, self._allocations.subnet.spec.network
        ncs = self._elsewhere.network_containers + self._allocations.use(self._cluster.id).network_containers + opened
        if limits.max_network_containers is not None and ncs >= limits.max_network_containers:
            remedy = _REMEDY.format(option="--max-network-containers")
            has = f"cluster {self._cluster.id} has {ncs} network containers in network {network}"
            return QuotaReached(f"{has}, and its quota is {limits.max_network_containers}: {remedy}", field="nc_id")
        if self.addresses_left == 0:
            return QuotaReached(address_reason(self._cluster, network), field="wanted")
        return None


def address_reason(cluster: ClusterRow | None, network: str) -> str:
    """Return why a cluster gets no more addresses."""
    limit = cluster.limits.max_addresses if cluster else None
    quota = f"of {limit} addresses " if limit is not None else ""
    who = f"cluster {cluster.id}" if cluster else "the cluster"
    return f"{who} has reached its quota {quota}in network {network}: {_REMEDY.format(option='--max-addresses')}"


def check_limits(limits: TokenLimits) -> TokenLimits:
    """Check the limits of a new token; returns them."""
    for field in ("max_addresses", "max_network_containers"):
        value = getattr(limits, field)
        if value is not None and not 0 <= value <= MAX_QUOTA:
            raise Invalid(f"{field} {value}: must be from 0 to {MAX_QUOTA}", field=f"limits.{field}")
    if not 1 <= limits.priority <= MAX_PRIORITY:
        raise Invalid(f"priority {limits.priority}: must be from 1 to {MAX_PRIORITY}", field="limits.priority")
    return limits


def limits_of(repo: Repository, cluster: str, *, former: TokenLimits) -> TokenLimits:
    """Return the limits of a cluster: of its newest token that was not revoked; without one they stay."""
    rows: list[TokenRow] = [row for row in repo.tokens() if row.cluster == cluster and not row.revoked]
    newest = max(rows, key=lambda row: (row.created_at, row.id), default=None)
    return newest.limits if newest else former


def networks_to_refresh(repo: Repository, id_: str) -> list[str]:
    """Return the networks in which a cluster has a row with other limits than its tokens."""
    rows = [row for row in repo.clusters() if row.id == id_]
    return [row.network for row in rows if row.limits != limits_of(repo, id_, former=row.limits)]


def refresh_limits(repo: Repository, id_: str) -> None:
    """Write the limits of a cluster whose tokens have changed, in one network."""
    cluster = repo.cluster(id_)
    if cluster is not None:
        limits = limits_of(repo, cluster.id, former=cluster.limits)
        if limits != cluster.limits:
            repo.put_cluster(replace(cluster, limits=limits))

"""Administration of clusters: list, confirm a loss, retire."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from msgspec.structs import replace

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger.admin_messages import ClusterSummary, RetiredCluster
from podpool.ledger.domain.allocations import Allocations, event_entries
from podpool.ledger.domain.ledger_time import timestamp
from podpool.ledger.domain.mass_loss_breaker import confirm
from podpool.ledger.domain.recovery import clear_pending_inventories
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import AllocationEvent, NcRow
from podpool.ledger.domain.subnet_reevaluation import reevaluate
from podpool.ledger.errors import NotFound


def clusters(repo: Repository) -> list[ClusterSummary]:
    """Return all clusters but retired ones, in each of their networks."""
    tokens = [row for row in repo.tokens() if not row.revoked]
    pending = {(id_, network) for id_, network, _ in repo.pending_inventories()}
    ncs = Counter(
        (nc.cluster, subnet.spec.network) for subnet in repo.subnets() for nc in repo.ncs_in_subnet(subnet.number)
    )
    return [
        ClusterSummary(
            id=row.id,
            network=row.network,
            tokens=tuple(token.name for token in tokens if token.cluster == row.id),
            term=row.term,
            network_containers=ncs[row.id, row.network],
            inventory_pending=(row.id, row.network) in pending,
            breaker_open_since=None if row.breaker_open_since is None else timestamp(repo, row.breaker_open_since),
        )
        for row in repo.clusters()
        if row.open or (row.id, row.network) in pending or ncs[row.id, row.network]
    ]


def confirm_loss(repo: Repository, id_: str, *, breaker: BreakerSettings, time: float) -> None:
    """Close a cluster's circuit breaker in a network: its lost nodes are really gone."""
    cluster = repo.cluster(id_)
    if cluster is None:
        return
    repo.advance_revision()
    repo.put_cluster(confirm(cluster, settings=breaker, time=time))
    repo.log(at=time, cluster=id_, kind="loss confirmed", events=())


def retire(repo: Repository, id_: str, *, time: float) -> RetiredCluster:
    """Release everything of a destroyed cluster in a network: addresses cool down, NCs are closed."""
    cluster = repo.cluster(id_)
    if cluster is None:
        return RetiredCluster(cluster=id_, network_containers=0, addresses=0, tokens=0)
    repo.advance_revision()
    ncs = sorted(repo.ncs(id_), key=lambda nc: (nc.subnet, nc.number))
    events = []
    for number, group in groupby(ncs, key=lambda nc: nc.subnet):
        events += _close(repo, number, group, time=time)
    clear_pending_inventories(repo, id_, time=time)
    repo.put_cluster(replace(cluster, open=False, losses=(), breaker_open_since=None))
    repo.log(at=time, cluster=id_, kind="retired", events=events)
    return RetiredCluster(
        cluster=id_,
        network_containers=len(ncs),
        addresses=sum(len(event.released) for event in events),
        tokens=0,
    )


def networks_of(repo: Repository, id_: str) -> list[str]:
    """Return the networks of a cluster; raises NotFound if it has none."""
    networks = [row.network for row in repo.clusters() if row.id == id_]
    if not networks:
        raise NotFound(f"there is no cluster {id_}", field="cluster")
    return networks


def _close(repo: Repository, number: int, ncs: Iterable[NcRow], *, time: float) -> list[AllocationEvent]:
    before = repo.subnet_by_number(number)
    allocations = Allocations(repo, before, time=time)
    events = [AllocationEvent(nc_id=nc.id, released=event_entries(allocations.close(nc)), closed=True) for nc in ncs]
    reevaluate(allocations, before=before)
    return events

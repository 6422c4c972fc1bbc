"""Administration of clusters: list, confirm a loss, retire."""

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
from podpool.ledger.domain.rows import AllocationEvent, ClusterRow, NcRow
from podpool.ledger.domain.subnet_reevaluation import reevaluate
from podpool.ledger.errors import NotFound


def clusters(repo: Repository) -> list[ClusterSummary]:
    """Return all clusters but retired ones."""
    tokens = [row for row in repo.tokens() if not row.revoked]
    pending = {id_ for id_, _, _ in repo.pending_inventories()}
    return [
        ClusterSummary(
            id=row.id,
            tokens=tuple(token.name for token in tokens if token.cluster == row.id),
            term=row.term,
            network_containers=repo.nc_count(row.id),
            inventory_pending=row.id in pending,
            breaker_open_since=None if row.breaker_open_since is None else timestamp(repo, row.breaker_open_since),
        )
        for row in repo.clusters()
        if row.open or row.id in pending or repo.nc_count(row.id)
    ]


def confirm_loss(repo: Repository, id_: str, *, breaker: BreakerSettings, time: float) -> None:
    """Close a cluster's circuit breaker: its lost nodes are really gone."""
    cluster = _existing(repo, id_)
    repo.advance_revision()
    repo.put_cluster(confirm(cluster, settings=breaker, time=time))
    repo.log(at=time, cluster=id_, kind="loss confirmed", events=())


def retire(repo: Repository, id_: str, *, time: float) -> RetiredCluster:
    """Release everything of a destroyed cluster: addresses cool down, NCs are closed, tokens are revoked, Pods end."""
    cluster = _existing(repo, id_)
    repo.advance_revision()
    ncs = sorted(repo.ncs(id_), key=lambda nc: (nc.subnet, nc.number))
    events = []
    for number, group in groupby(ncs, key=lambda nc: nc.subnet):
        events += _close(repo, number, group, time=time)
    clear_pending_inventories(repo, id_, time=time)
    repo.end_pod_usages(id_, until=time)  # so that they are trimmed with the history
    revoked = [row for row in repo.tokens() if row.cluster == id_ and not row.revoked]
    for token in revoked:
        repo.put_token(replace(token, revoked=True))
    repo.put_cluster(replace(cluster, open=False, losses=(), breaker_open_since=None))
    repo.log(at=time, cluster=id_, kind="retired", events=events)
    return RetiredCluster(
        cluster=id_,
        network_containers=len(ncs),
        addresses=sum(len(event.released) for event in events),
        tokens=len(revoked),
    )


def _existing(repo: Repository, id_: str) -> ClusterRow:
    cluster = repo.cluster(id_)
    if cluster is None:
        raise NotFound(f"there is no cluster {id_}", field="cluster")
    return cluster


def _close(repo: Repository, number: int, ncs: Iterable[NcRow], *, time: float) -> list[AllocationEvent]:
    before = repo.subnet_by_number(number)
    allocations = Allocations(repo, before, time=time)
    events = [AllocationEvent(nc_id=nc.id, released=event_entries(allocations.close(nc)), closed=True) for nc in ncs]
    reevaluate(allocations, before=before)
    return events

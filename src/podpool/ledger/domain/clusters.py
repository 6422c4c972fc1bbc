"""Clusters as a person manages them: list, agree to a loss, retire."""

from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from podpool.ledger.admin_messages import ClusterSummary, RetiredCluster
from podpool.ledger.domain.allocations import Allocations, told
from podpool.ledger.domain.circuit_breaker import BreakerSettings, agreed
from podpool.ledger.domain.convert import timestamp
from podpool.ledger.domain.settle import finish, tend
from podpool.ledger.errors import NotFound
from podpool.ledger.messages import SubnetName
from podpool.ledger.domain.rows import ClusterRow, NetworkContainerRow, AllocationEvent
from podpool.ledger.domain.repository import Repository


def clusters(repo: Repository) -> list[ClusterSummary]:
    """Show all clusters but those that were retired."""
    tokens = [row for row in repo.tokens() if not row.revoked]
    pending_inventories = {id_ for id_, _, _ in repo.pending_inventories()}
    return [
        ClusterSummary(
            id=row.id,
            tokens=tuple(token.name for token in tokens if token.cluster == row.id),
            term=row.term,
            network_containers=repo.nc_count(row.id),
            pending_inventories=row.id in pending_inventories,
            breaker_open_since=None if row.breaker_open_since is None else timestamp(row.breaker_open_since),
        )
        for row in repo.clusters()
        if row.open or row.id in pending_inventories or repo.nc_count(row.id)
    ]


def confirm_loss(repo: Repository, id_: str, *, brake: BreakerSettings, wall: float) -> None:
    """Agree that the nodes which a cluster lost are lost."""
    cluster = _found(repo, id_)
    repo.advance_revision()
    repo.put_cluster(agreed(cluster, brake=brake, wall=wall))
    repo.log(at=wall, cluster=id_, kind="loss confirmed", events=())


def retire(repo: Repository, id_: str, *, wall: float) -> RetiredCluster:
    """Take back what a destroyed cluster held: its addresses rest, its containers close, its tokens end."""
    cluster = _found(repo, id_)
    repo.advance_revision()
    rows = repo.ncs(id_)
    events = []
    for number, group in groupby(sorted(rows, key=lambda row: (row.subnet, row.number)), key=lambda row: row.subnet):
        events += _close(repo, number, list(group), wall=wall)
    _stop_waiting_for(repo, id_, wall=wall)
    ended = [row for row in repo.tokens() if row.cluster == id_ and not row.revoked]
    for token in ended:
        repo.put_token(replace(token, revoked=True))
    repo.put_cluster(replace(cluster, open=False, losses=(), breaker_open_since=None))
    repo.log(at=wall, cluster=id_, kind="retired", events=events)
    return RetiredCluster(
        cluster=id_,
        network_containers=len(rows),
        addresses=sum(len(event.released) for event in events),
        tokens=len(ended),
    )


def _found(repo: Repository, id_: str) -> ClusterRow:
    cluster = repo.cluster(id_)
    if cluster is None:
        raise NotFound(f"there is no cluster {id_}", field="cluster")
    return cluster


def _close(repo: Repository, number: int, rows: Sequence[NetworkContainerRow], *, wall: float) -> list[AllocationEvent]:
    before = repo.subnet_by_number(number)
    allocations = Allocations(repo, before, wall=wall)
    events = []
    for row in rows:
        held, after = allocations.held(row), row
        for each in held:
            after = allocations.release(after, each, cooled_seconds=0.0)
        allocations.save(row, replace(after.shut(), version=row.version + 1))
        events.append(AllocationEvent(nc_id=row.id, released=told(held), closed=True))
    finish(allocations, before=before)
    return events


def _stop_waiting_for(repo: Repository, id_: str, *, wall: float) -> None:
    names = [SubnetName(network=network, name=name) for cluster, network, name in repo.pending_inventories() if cluster == id_]
    repo.clear_pending_inventories(id_)
    for name in names:
        subnet = repo.subnet(name)
        if subnet is not None:
            tend(repo, subnet.number, wall=wall, announce=True)

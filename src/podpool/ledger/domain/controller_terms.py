"""Fencing of controllers by terms, and the detection of a restored database.

Each new leader gets a term above any that its cluster has seen; every earlier one has ended. Terms are taken from the
revision, which never goes back: a leader whose term a restored database lacks still has a lower one.

A restore is detected by the rollback detector at start, or by a caller that knows a higher revision or term than the
database. Then every term ends, and nothing is granted before the inventories are in (`recovery`).
"""

from collections.abc import Iterable
from itertools import product

from msgspec.structs import replace

from podpool.ledger.domain.quota import limits_of
from podpool.ledger.domain.repository import Membership, Repository
from podpool.ledger.domain.rows import ClusterRow
from podpool.ledger.errors import InventoryRequired, LedgerError, StaleTerm
from podpool.ledger.messages import OpenTermRequest, Term

RESTORE_REVISION_GAP = 1_000_000
"""Added to the revision by a restore: more than the lost commits, also if the rollback detector's record is lost."""


def open_term(repo: Repository, request: OpenTermRequest, *, time: float) -> Term:
    """Issue a cluster's next term."""
    id_ = request.cluster
    _detect_restore(repo, id_, known_revision=request.known_revision, term=request.known_term, time=time)
    revision = repo.advance_revision()
    cluster = repo.cluster(id_) or ClusterRow(id=id_, epoch=repo.epoch)
    term = max(request.known_term + 1, cluster.term + 1, revision)
    limits = limits_of(repo, id_, former=cluster.limits)
    repo.put_cluster(replace(cluster, term=term, number=0, open=True, limits=limits))
    repo.log(at=time, cluster=id_, kind=f"term {term}", events=())
    return Term(term=term, revision=revision, inventory_required=cluster.epoch < repo.epoch)


def check_term(repo: Repository, id_: str, *, term: int, known_revision: int, time: float) -> ClusterRow | LedgerError:
    """Return the cluster if its term is current. An error is returned, not raised: a detected restore must commit."""
    _detect_restore(repo, id_, known_revision=known_revision, term=term, time=time)
    cluster = repo.cluster(id_)
    if cluster is None:
        return StaleTerm(f"cluster {id_} is unknown: open a term first", field="cluster")
    if not cluster.open:
        return StaleTerm(f"term {term} ended when the ledger was restored: open a new one", field="term")
    if term != cluster.term:
        return StaleTerm(f"term {term} has ended, the current one is {cluster.term}: open a new one", field="term")
    return cluster


def check_recovered(
    repo: Repository, id_: str, *, term: int, known_revision: int, time: float
) -> ClusterRow | LedgerError:
    """Return the cluster if its term is current and it has sent its inventory since the last restore."""
    cluster = check_term(repo, id_, term=term, known_revision=known_revision, time=time)
    if isinstance(cluster, ClusterRow) and cluster.epoch < repo.epoch:
        return InventoryRequired("the ledger was restored: send the cluster's inventory first", field="cluster")
    return cluster


def begin_recovery(repo: Repository, *, floor: int, members: Iterable[Membership] | None, time: float) -> None:
    """End every term, and require the inventories of all members.

    Without members it is unknown who came after the copy was made: then every cluster is awaited in every subnet.
    """
    repo.advance_revision(floor=max(repo.revision, floor) + RESTORE_REVISION_GAP)
    repo.start_epoch()
    repo.delete_conflicts()
    for cluster, _, _ in members or ():
        if repo.cluster(cluster) is None:
            repo.put_cluster(ClusterRow(id=cluster, epoch=-1))
    clusters, subnets = repo.clusters(), repo.subnets()
    for row in clusters:
        repo.put_cluster(replace(row, open=False))
    for subnet in subnets:
        now, clock_offset = subnet.time_at(time)
        paused = replace(
            subnet,
            conflicts=0,
            latest_time=now,
            clock_offset=clock_offset,
            # an address released in the lost commits was retained by its node: after this it has cooled down for longer
            paused_until=now + subnet.spec.cooldown_filling,
            due=time,
        )
        repo.put_subnet(replace(paused, revision=repo.revision))
    everywhere = ((row.id, each.spec.network, each.spec.name) for row, each in product(clusters, subnets))
    repo.require_inventories(everywhere if members is None else (*members, *repo.members()))
    repo.log(at=time, cluster="", kind=f"restore detected, epoch {repo.epoch}", events=())


def _detect_restore(repo: Repository, id_: str, *, known_revision: int, term: int, time: float) -> None:
    """Begin recovery if a caller knows more than the database."""
    cluster = repo.cluster(id_)
    # a cluster that has yet to send its inventory is known to have newer terms than the database
    newer_term = term > cluster.term and cluster.epoch == repo.epoch if cluster else term > 0
    if known_revision <= repo.revision and not newer_term:
        return
    if cluster is None:  # the database has lost it: it must send its inventory like the others
        repo.put_cluster(ClusterRow(id=id_, epoch=-1))
    begin_recovery(repo, floor=max(known_revision, term), members=None, time=time)

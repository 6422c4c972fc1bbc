"""Who may speak for a cluster, and how the ledger notices that its books were restored.

A term is given to each new leader, above any that the cluster has seen; every earlier one has ended. Terms are taken
from the revision, which never goes back: so even a leader whose term the restored books have forgotten has a lower one.

A restore is noticed by the witness at the start, or by a caller that has seen a higher revision, or a higher term, than
the books know of. Then every term ends, and nothing is granted before the lists are in (`recovery`).
"""

from collections.abc import Iterable
from itertools import product

from msgspec.structs import replace

from podpool.ledger.errors import LedgerError, ListingWanted, TermEnded
from podpool.ledger.messages import OpenTerm, Term
from podpool.ledger.storage.rows import ClusterRow
from podpool.ledger.storage.store import Books, Member

LEAP = 1_000_000
"""How far the revision jumps with a restore: further than the lost tail can have come, if the witness is lost too."""


def open_term(books: Books, opening: OpenTerm, *, wall: float) -> Term:
    """Give a cluster its next term."""
    _heed(books, opening.cluster, seen=opening.seen, term=opening.known, wall=wall)
    revision = books.advance()
    cluster = books.cluster(opening.cluster) or ClusterRow(id=opening.cluster, epoch=books.epoch)
    term = max(opening.known + 1, cluster.term + 1, revision)
    books.put_cluster(replace(cluster, term=term, number=0, open=True))
    books.log(at=wall, cluster=opening.cluster, kind=f"term {term}", events=())
    return Term(term=term, revision=revision, listing_wanted=cluster.epoch < books.epoch)


def admit(books: Books, id_: str, *, term: int, seen: int, wall: float) -> ClusterRow | LedgerError:
    """Let a caller in, or tell why not. The refusal is returned: what its call revealed must be kept."""
    _heed(books, id_, seen=seen, term=term, wall=wall)
    cluster = books.cluster(id_)
    if cluster is None:
        return TermEnded(f"cluster {id_} is not known here: open a term first", field="cluster")
    if not cluster.open:
        return TermEnded(f"term {term} ended when the ledger was restored: open a new one", field="term")
    if term != cluster.term:
        return TermEnded(f"term {term} has ended, the current one is {cluster.term}: open a new one", field="term")
    return cluster


def admit_listed(books: Books, id_: str, *, term: int, seen: int, wall: float) -> ClusterRow | LedgerError:
    """Let a caller in whose cluster has listed since the last restore."""
    cluster = admit(books, id_, term=term, seen=seen, wall=wall)
    if isinstance(cluster, ClusterRow) and cluster.epoch < books.epoch:
        return ListingWanted("the ledger was restored: list every container of the cluster first", field="cluster")
    return cluster


def begin_recovery(books: Books, *, floor: int, members: Iterable[Member] | None, wall: float) -> None:
    """End every term, and wait for the lists of those who have something in a subnet.

    Without members nobody knows who came after the copy was made: then each cluster is waited for everywhere.
    """
    books.advance(floor=max(books.revision, floor) + LEAP)
    books.begin_epoch()
    books.drop_alarms()
    for cluster, _, _ in members or ():
        if books.cluster(cluster) is None:
            books.put_cluster(ClusterRow(id=cluster, epoch=-1))
    clusters, subnets = books.clusters(), books.subnets()
    for row in clusters:
        books.put_cluster(replace(row, open=False))
    for subnet in subnets:
        now, shift = subnet.steady(wall)
        quiet_until = now + subnet.made.cooldown  # what was released just before the restore may still rest
        changed = replace(subnet, alarms=0, latest=now, shift=shift, quiet_until=quiet_until, due=wall)
        books.put_subnet(replace(changed, revision=books.revision))
    everywhere = ((row.id, each.made.network, each.made.name) for row, each in product(clusters, subnets))
    books.await_lists(everywhere if members is None else (*members, *books.members()))
    books.log(at=wall, cluster="", kind=f"restore noticed, epoch {books.epoch}", events=())


def _heed(books: Books, id_: str, *, seen: int, term: int, wall: float) -> None:
    """Notice that a caller knows more than the books."""
    cluster = books.cluster(id_)
    # that the books have forgotten its last term is no news of a cluster that is to list anyway
    forgotten = term > cluster.term and cluster.epoch == books.epoch if cluster else term > 0
    if seen <= books.revision and not forgotten:
        return
    if cluster is None:  # it has a past that the books have lost: it must list like the others
        books.put_cluster(ClusterRow(id=id_, epoch=-1))
    begin_recovery(books, floor=max(seen, term), members=None, wall=wall)

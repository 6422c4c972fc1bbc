"""Clusters as a person manages them: list, agree to a loss, retire."""

from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from podpool.ledger.admin_messages import Cluster, Retired
from podpool.ledger.domain.allocations import Holdings, told
from podpool.ledger.domain.circuit_breaker import Brake, agreed
from podpool.ledger.domain.convert import timestamp
from podpool.ledger.domain.settle import finish, tend
from podpool.ledger.errors import NotFound
from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.rows import ClusterRow, ContainerRow, Event
from podpool.ledger.storage.store import Books


def clusters(books: Books) -> list[Cluster]:
    """Show all clusters but those that were retired."""
    tokens = [row for row in books.tokens() if not row.revoked]
    awaited = {id_ for id_, _, _ in books.awaited()}
    return [
        Cluster(
            id=row.id,
            tokens=tuple(token.name for token in tokens if token.cluster == row.id),
            term=row.term,
            containers=books.container_count(row.id),
            awaited=row.id in awaited,
            braked=None if row.braked is None else timestamp(row.braked),
        )
        for row in books.clusters()
        if row.open or row.id in awaited or books.container_count(row.id)
    ]


def confirm_loss(books: Books, id_: str, *, brake: Brake, wall: float) -> None:
    """Agree that the nodes which a cluster lost are lost."""
    cluster = _found(books, id_)
    books.advance()
    books.put_cluster(agreed(cluster, brake=brake, wall=wall))
    books.log(at=wall, cluster=id_, kind="loss confirmed", events=())


def retire(books: Books, id_: str, *, wall: float) -> Retired:
    """Take back what a destroyed cluster held: its addresses rest, its containers close, its tokens end."""
    cluster = _found(books, id_)
    books.advance()
    rows = books.containers(id_)
    events = []
    for number, group in groupby(sorted(rows, key=lambda row: (row.subnet, row.number)), key=lambda row: row.subnet):
        events += _close(books, number, list(group), wall=wall)
    _stop_waiting_for(books, id_, wall=wall)
    ended = [row for row in books.tokens() if row.cluster == id_ and not row.revoked]
    for token in ended:
        books.put_token(replace(token, revoked=True))
    books.put_cluster(replace(cluster, open=False, losses=(), braked=None))
    books.log(at=wall, cluster=id_, kind="retired", events=events)
    return Retired(
        cluster=id_,
        containers=len(rows),
        addresses=sum(len(event.released) for event in events),
        tokens=len(ended),
    )


def _found(books: Books, id_: str) -> ClusterRow:
    cluster = books.cluster(id_)
    if cluster is None:
        raise NotFound(f"there is no cluster {id_}", field="cluster")
    return cluster


def _close(books: Books, number: int, rows: Sequence[ContainerRow], *, wall: float) -> list[Event]:
    before = books.subnet_at(number)
    holdings = Holdings(books, before, wall=wall)
    events = []
    for row in rows:
        held, after = holdings.held(row), row
        for each in held:
            after = holdings.release(after, each, rested=0.0)
        holdings.save(row, replace(after.shut(), version=row.version + 1))
        events.append(Event(container=row.id, released=told(held), closed=True))
    finish(holdings, before=before)
    return events


def _stop_waiting_for(books: Books, id_: str, *, wall: float) -> None:
    names = [SubnetName(network=network, name=name) for cluster, network, name in books.awaited() if cluster == id_]
    books.stop_awaiting(id_)
    for name in names:
        subnet = books.subnet(name)
        if subnet is not None:
            tend(books, subnet.number, wall=wall, announce=True)

"""The one call: bring many containers to what they should be.

What must hold: atomic per container, and one bad item fails alone; `held = (held - released) topped up to wanted`; a
grant that was not named stays; a version rises with each change of its container's set; a call whose number is not
above the last changes nothing and shows what is.

Calls that come together are settled one after the other, and then each subnet is brought to rest once for all of them:
nobody sees what is in between, as they share a commit.
"""

import random
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from podpool.ledger.domain.allocator import Seating
from podpool.ledger.domain.circuit_breaker import Brake, heed_losses
from podpool.ledger.domain.fencing import admit_listed
from podpool.ledger.domain.subnet_transaction import Desk
from podpool.ledger.errors import LedgerError, NotFound
from podpool.ledger.messages import Item, Reconcile, ReconcileAnswer, Result, SubnetName
from podpool.ledger.storage.rows import ClusterRow, Event
from podpool.ledger.storage.store import Books


def reconcile(
    books: Books, calls: Sequence[Reconcile], *, wall: float, rng: random.Random, brake: Brake
) -> list[ReconcileAnswer | LedgerError]:
    """Do what calls ask for; a refusal of a whole one is returned, so that what it revealed is kept."""
    admitted = _admit(books, calls, wall=wall)
    sitting = _Sitting(books, wall=wall, rng=rng, brake=brake)
    settled = [
        cluster if isinstance(cluster, LedgerError) else sitting.settle(call, cluster)
        for call, cluster in zip(calls, admitted, strict=True)
    ]
    sitting.close()
    return [each if isinstance(each, LedgerError) else sitting.answer(each) for each in settled]


def _admit(books: Books, calls: Sequence[Reconcile], *, wall: float) -> list[ClusterRow | LedgerError]:
    """Let callers in, or tell why not; a restore that one of them reveals ends the terms of all."""
    epoch = books.epoch
    admitted = [admit_listed(books, call.cluster, term=call.term, seen=call.seen, wall=wall) for call in calls]
    return admitted if books.epoch == epoch else _admit(books, calls, wall=wall)


class _Settled(msgspec.Struct, frozen=True):
    """What a call came to."""

    call: Reconcile
    new: bool
    results: Sequence[Result]
    desks: Sequence[Desk]
    events: Sequence[Event]


class _Sitting:
    """Calls that are decided together: their clusters as they are by now, and a desk for each subnet."""

    def __init__(self, books: Books, *, wall: float, rng: random.Random, brake: Brake) -> None:
        self._books = books
        self._wall = wall
        self._rng = rng
        self._brake = brake
        self._clusters: dict[str, ClusterRow] = {}
        self._desks: dict[SubnetName, Desk | None] = {}

    def settle(self, call: Reconcile, cluster: ClusterRow) -> _Settled:
        """Bring the containers of one call to what they should be."""
        cluster = self._clusters.get(call.cluster, cluster)
        new = call.number > cluster.number
        if new:
            cluster = replace(cluster, number=call.number)
            cluster = heed_losses(self._books, cluster, call, brake=self._brake, wall=self._wall)
        desks: list[Desk] = []
        events: list[Event] = []
        results: dict[int, Result] = {}
        for name, places in _by_subnet(call.items):
            desk = self._desk(name)
            if desk is None:
                results.update(dict.fromkeys(places, _nowhere(name)))
                continue
            seating = Seating(desk, cluster=cluster, rng=self._rng)
            items = [call.items[place] for place in places]
            outcomes = seating.settle(items) if new else seating.show(items)
            results.update(zip(places, outcomes, strict=True))
            desks.append(desk)
            events += seating.events
        if new:
            closed = sum(event.closed for event in events)
            losses = cluster.losses + (self._wall,) * closed
            self._clusters[cluster.id] = replace(cluster, losses=losses) if closed else cluster
        return _Settled(call, new, [results[place] for place in range(len(call.items))], desks, events)

    def close(self) -> None:
        """Bring to rest what was changed, and write it."""
        for cluster in self._clusters.values():
            self._books.put_cluster(cluster)
        for desk in self._desks.values():
            if desk is not None:
                desk.rest()

    def answer(self, settled: _Settled) -> ReconcileAnswer:
        """Tell a caller what is, and write down what happened."""
        call, books, desks = settled.call, self._books, settled.desks
        if settled.events:
            kind = f"reconcile {call.term}.{call.number}"
            books.log(at=self._wall, cluster=call.cluster, kind=kind, events=settled.events)
        return ReconcileAnswer(
            revision=books.revision,
            results=tuple(settled.results),
            subnets=tuple(desk.state for desk in desks),
            servable=tuple(id_ for desk in desks for id_ in desk.servable(call.cluster)),
            changed=settled.new,
        )

    def _desk(self, name: SubnetName) -> Desk | None:
        if name not in self._desks:
            subnet = self._books.subnet(name)
            self._desks[name] = None if subnet is None else Desk(self._books, subnet, wall=self._wall)
        return self._desks[name]


def _by_subnet(items: Sequence[Item]) -> list[tuple[SubnetName, list[int]]]:
    """Sort the places of items by their subnets, which are locked in this order."""
    places: dict[SubnetName, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(item.subnet, []).append(place)
    return sorted(places.items(), key=lambda each: (each[0].network, each[0].name))


def _nowhere(name: SubnetName) -> Result:
    missing = NotFound(f"there is no subnet {name}: create it, or correct the name", field="subnet")
    return Result(error=missing.problem)

"""The one call: bring many containers to what they should be.

What must hold: atomic per container, and one bad item fails alone; `held = (held - released) topped up to wanted`; a
grant that was not named stays; a version rises with each change of its container's set; a call whose number is not
above the last changes nothing and shows what is.
"""

import random
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from podpool.ledger.brake import Brake, heed_losses
from podpool.ledger.errors import LedgerError, NotFound
from podpool.ledger.messages import Item, Reconcile, ReconcileAnswer, Result, SubnetName, SubnetState
from podpool.ledger.rows import Event
from podpool.ledger.seats import Seating
from podpool.ledger.store import Books
from podpool.ledger.terms import admit_listed
from podpool.ledger.upkeep import finish, servable
from podpool.ledger.views import subnet_state


def reconcile(
    books: Books, call: Reconcile, *, wall: float, rng: random.Random, brake: Brake
) -> ReconcileAnswer | LedgerError:
    """Do what a call asks for; a refusal of the whole is returned, so that what it revealed is kept."""
    cluster = admit_listed(books, call.cluster, term=call.term, seen=call.seen, wall=wall)
    if isinstance(cluster, LedgerError):
        return cluster
    new = call.number > cluster.number
    if new:
        cluster = heed_losses(books, replace(cluster, number=call.number), call, brake=brake, wall=wall)
    parts: dict[int, _Part] = {}
    results: dict[int, Result] = {}
    for name, places in _by_subnet(call.items):
        subnet = books.subnet(name)
        if subnet is None:
            results.update(dict.fromkeys(places, _nowhere(name)))
            continue
        seating = Seating(books, subnet, cluster=cluster, wall=wall, rng=rng)
        items = [call.items[place] for place in places]
        outcomes = seating.settle(items) if new else seating.show(items)
        results.update(zip(places, outcomes, strict=True))
        if new:
            finish(seating.holdings, before=subnet)
        parts[subnet.number] = _part(books, seating, cluster=call.cluster, wall=wall)
    events = [event for part in parts.values() for event in part.events]
    if new:
        closed = sum(event.closed for event in events)
        books.put_cluster(replace(cluster, losses=cluster.losses + (wall,) * closed))
    if events:
        books.log(at=wall, cluster=call.cluster, kind=f"reconcile {call.term}.{call.number}", events=events)
    return ReconcileAnswer(
        revision=books.revision,
        results=tuple(results[place] for place in range(len(call.items))),
        subnets=tuple(part.state for part in parts.values()),
        servable=tuple(id_ for part in parts.values() for id_ in part.servable),
        changed=new,
    )


class _Part(msgspec.Struct, frozen=True):
    """What one subnet adds to the answer."""

    state: SubnetState
    servable: Sequence[str]
    events: Sequence[Event]


def _part(books: Books, seating: Seating, *, cluster: str, wall: float) -> _Part:
    holdings = seating.holdings
    state = subnet_state(books, holdings.subnet, wall=wall)
    spare = 0 if state.frozen else holdings.spare
    ids = servable(books, holdings.subnet, spare=spare, cluster=cluster)
    return _Part(state, ids, seating.events)


def _by_subnet(items: Sequence[Item]) -> list[tuple[SubnetName, list[int]]]:
    """Sort the places of items by their subnets, which are locked in this order."""
    places: dict[SubnetName, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(item.subnet, []).append(place)
    return sorted(places.items(), key=lambda each: (each[0].network, each[0].name))


def _nowhere(name: SubnetName) -> Result:
    missing = NotFound(f"there is no subnet {name}: create it, or correct the name", field="subnet")
    return Result(error=missing.problem)

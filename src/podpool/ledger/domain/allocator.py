"""The items of one call in one subnet, from what is asked to what each container then has.

All releases come first, then new containers get their primaries, then everybody is topped up in turn: so addresses that
have rested may go back to who let go of them, as new grants, and a waiting Pod comes before a buffer of the same call.
An item is checked before anything is done for it; one that is refused leaves its container as it was.
"""

import random
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from podpool.ledger.domain.allocations import Held, told
from podpool.ledger.domain.circuit_breaker import refusal
from podpool.ledger.domain.convert import container_state
from podpool.ledger.domain.fair_queue import PASSED, shares
from podpool.ledger.domain.scaling_policy import scaler_of
from podpool.ledger.domain.settle import ask_of, waiters, with_load
from podpool.ledger.domain.subnet_transaction import Desk
from podpool.ledger.domain.validation import check
from podpool.ledger.errors import (
    Conflict,
    Draining,
    Frozen,
    Invalid,
    LedgerError,
    NotFound,
    SubnetFull,
    Superseded,
    TwoOwners,
)
from podpool.ledger.messages import Item, Result
from podpool.ledger.storage.block import PRIMARY
from podpool.ledger.storage.rows import ClusterRow, ContainerRow, Event
from podpool.runtime.entropy import new_uuid, new_uuids


class Seat:
    """One item, the container that it is about, and what has become of it so far."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.before: ContainerRow | None = None
        self.row: ContainerRow | None = None
        self.held: list[Held] = []
        self.granted: list[Held] = []
        self.released: list[Held] = []
        self.error: LedgerError | None = None

    @property
    def secondaries(self) -> int:
        """How many addresses it has for Pods."""
        return len([each for each in self.held if each.id])

    @property
    def short(self) -> int:
        """How many more it wants."""
        return max(0, self.row.wanted - self.secondaries) if self.row else 0

    @property
    def moved(self) -> bool:
        """Its set has changed."""
        return bool(self.granted or self.released)


class Seating:
    """One subnet's part of a call."""

    def __init__(self, desk: Desk, *, cluster: ClusterRow, rng: random.Random) -> None:
        self.books = desk.books
        self.holdings = desk.holdings
        self.events: list[Event] = []
        self._desk = desk
        self._cluster = cluster
        self._braked = refusal(cluster)
        self._rng = rng

    def show(self, items: Sequence[Item]) -> list[Result]:
        """Tell what each container has, and change nothing."""
        return [self._result(self._late(seat)) for seat in map(self._seat, items)]

    def settle(self, items: Sequence[Item]) -> list[Result]:
        """Bring each container to what it should have."""
        self._desk.settled = True
        seats = [self._seat(item) for item in items]
        _refuse_twins(seats)
        good = [seat for seat in seats if seat.error is None and not (seat.row and seat.row.closed)]
        for seat in good:
            self._let_go(seat)
        for seat in good:
            self._give_primary(seat)
        staying = [seat for seat in good if seat.row and not seat.item.gone and seat.error is None]
        self._top_up(staying, present={seat.row.number for seat in good if seat.row})
        for seat in good:
            self._write(seat)
        return [self._result(seat) for seat in seats]

    def _seat(self, item: Item) -> Seat:
        """Find an item's container, if there is one, and what is wrong with the item, if anything is."""
        seat = Seat(item)
        try:
            check(item)
            seat.before = seat.row = self._find(item)
        except LedgerError as error:
            seat.error = error
        if seat.row is not None:
            seat.held = self.holdings.held(seat.row)
        return seat

    def _find(self, item: Item) -> ContainerRow | None:
        subnet = self.holdings.subnet.number
        same_node = self.books.container_of(
            cluster=self._cluster.id, node=item.node, node_uid=item.node_uid, subnet=subnet
        )
        if item.container is None:
            if item.gone:
                raise Invalid("a container that is gone must be named", field="container")
            row = same_node
        else:
            row = self._named(item)
            if same_node is not None and same_node.number != row.number and not row.closed:
                taken = f"node {item.node} with UID {item.node_uid} has container {same_node.id} already"
                raise Conflict(taken, field="node_uid")
        if row is not None:
            self._refuse_doubtful(row)
            if item.gone and not row.closed and self._braked is not None:
                raise self._braked
        return row

    def _named(self, item: Item) -> ContainerRow:
        row = self.books.container(item.container or "")
        if row is None or row.cluster != self._cluster.id:
            raise NotFound(f"there is no container {item.container} of this cluster", field="container")
        if row.subnet != self.holdings.subnet.number:
            raise Conflict(f"container {row.id} is not in subnet {item.subnet}", field="subnet")
        if row.node != item.node:
            raise Conflict(f"container {row.id} belongs to node {row.node}, not {item.node}", field="node")
        return row

    def _refuse_doubtful(self, row: ContainerRow) -> None:
        if row.number in self._desk.disputed:
            raise TwoOwners(f"container {row.id} has a part in an alarm: a person must settle it", field="container")
        if self._desk.listing and row.epoch < self.books.epoch:
            # what the books say it has may be another's by now, and that one has not listed yet
            raise Frozen(f"container {row.id} was not listed: nothing is told of it before all lists are in")

    def _let_go(self, seat: Seat) -> None:
        row, item = seat.row, seat.item
        if row is None:
            return
        names = frozenset(item.released)
        for held in [each for each in seat.held if item.gone or (not each.primary and each.id in names)]:
            row = self.holdings.release(row, held, rested=item.rested)
            seat.released.append(held)
            seat.held.remove(held)
        seat.row = self._noted(row, item)

    def _give_primary(self, seat: Seat) -> None:
        """Open a container, or give one its primary that has lost it."""
        if seat.item.gone or any(each.primary for each in seat.held):
            return
        refusal = self._no_primary()
        if refusal is not None:
            if seat.row is None:  # one that is open goes on without, and is given one when it can be
                seat.error = refusal
            return
        row = seat.row or self._noted(self._opened(seat.item), seat.item)
        seat.row, held = self.holdings.take(row, [PRIMARY])
        seat.held += held
        seat.granted += held

    def _no_primary(self) -> LedgerError | None:
        subnet = self.holdings.subnet
        if self._desk.frozen:
            return Frozen(f"subnet {subnet.name} recovers: nothing is granted yet", field="subnet")
        if subnet.draining:
            return Draining(f"subnet {subnet.name} drains: nothing is granted any more", field="subnet")
        if self.holdings.free <= 0:
            return SubnetFull(f"subnet {subnet.name} has no address left, not even as a primary", field="subnet")
        return None

    def _opened(self, item: Item) -> ContainerRow:
        subnet = self.holdings.subnet
        self.books.add_member((self._cluster.id, subnet.made.network, subnet.made.name))
        return self.books.add_container(
            ContainerRow(
                number=0,
                id=new_uuid(self._rng),
                cluster=self._cluster.id,
                subnet=subnet.number,
                node=item.node,
                node_uid=item.node_uid,
            )
        )

    def _noted(self, row: ContainerRow, item: Item) -> ContainerRow:
        """Take down what an item says of its container."""
        if item.gone:
            return row.shut()
        noted = replace(
            row,
            node_uid=item.node_uid,
            boot_id=item.boot_id or row.boot_id,
            epoch=self.books.epoch,
            wanted=item.wanted,
            released=item.released,
            rested=item.rested,
            report=item.report,
            pinned=item.pinned,
            called=None,
        )
        offered = scaler_of(self.holdings.subnet)
        return with_load(noted, offered=offered, maximum=item.maximum, now=self.holdings.now)

    def _top_up(self, seats: Sequence[Seat], *, present: Collection[int]) -> None:
        """Give everybody what is their turn, and remember what they are short of."""
        subnet, spare = self.holdings.subnet, 0 if self._desk.frozen else self.holdings.spare
        plenty = not (subnet.need or subnet.wish) and sum([seat.short for seat in seats]) <= spare
        given = [seat.short for seat in seats] if plenty else self._turns(seats, spare=spare, present=present)
        for seat, share in zip(seats, given, strict=True):
            row = self._lacking(seat, given=share)
            seat.row, held = self.holdings.take(row, new_uuids(self._rng, share))
            seat.held += held
            seat.granted += held

    def _turns(self, seats: Sequence[Seat], *, spare: int, present: Collection[int]) -> list[int]:
        """Divide what there is among those who are here and those who wait; tell what each of the seats is given.

        Whoever is in the call speaks for itself: what the books say of its place is what it asked for before.
        """
        ahead = waiters(self.books, self.holdings.subnet, limit=spare + len(present)) if spare else {}
        asks = [ask_of(row) for row in ahead.values() if row.number not in present]
        here = [ask_of(self._lacking(seat, given=0), here=True) for seat in seats]
        given = shares([*asks, *here], spare)
        return [given.get(ask.container, 0) for ask in here]

    def _lacking(self, seat: Seat, *, given: int) -> ContainerRow:
        """Work out what a container is short of, once it has been given something."""
        row = seat.row
        if row is None:
            raise AssertionError(f"node {seat.item.node} has no container that could be short")
        waiting = row.report.waiting if row.report else max(0, (row.load.demand if row.load else 0) - seat.secondaries)
        need = max(0, min(seat.short, waiting, self._left(seat, waiting)) - given)
        wish = max(0, seat.short - given - need)
        return replace(
            row,
            need=need,
            need_since=_since(row.need_since, self.holdings.now) if need else None,
            wish=wish,
            wish_since=_since(row.wish_since, self.holdings.now) if wish else None,
        )

    def _left(self, seat: Seat, waiting: int) -> int:
        """Tell how many of those who wait are left: the same report again counts none who was given something since."""
        before, row = seat.before, seat.row
        known = before and row and before.report and before.report == row.report and before.epoch == row.epoch
        return before.need if before and known else waiting

    def _write(self, seat: Seat) -> None:
        row = seat.row
        if row is None:
            return
        accepted = row.report.version if row.report else 0
        if seat.moved or accepted > row.version:
            row = replace(row, version=max(row.version, accepted) + 1)
        seat.row = row
        self.holdings.save(seat.before, row)
        if seat.moved or row.closed:
            self.events.append(self._event(seat, row))

    def _event(self, seat: Seat, row: ContainerRow) -> Event:
        return Event(
            container=row.id,
            granted=told(seat.granted),
            released=told(seat.released),
            closed=row.closed,
        )

    def _late(self, seat: Seat) -> Seat:
        if seat.row is None and seat.error is None:
            seat.error = Superseded("a later call came first, and this container was not opened", field="container")
        return seat

    def _result(self, seat: Seat) -> Result:
        if seat.error is not None or seat.row is None:
            return Result(error=(seat.error or LedgerError("nothing is known of this container")).problem)
        return Result(state=container_state(self.holdings, seat.row, seat.held))


def _refuse_twins(seats: Sequence[Seat]) -> None:
    """Refuse a container's second item in a call: each would undo what the other says."""
    known: set[tuple[str, str] | int] = set()
    for seat in seats:
        key = seat.row.number if seat.row else (seat.item.node, seat.item.node_uid)
        if seat.error is None and key in known:
            seat.error = Invalid(f"node {seat.item.node} has two items in one call", field="container")
        known.add(key)


def _since(before: float | None, now: float) -> float:
    return now if before is None or before >= PASSED else before

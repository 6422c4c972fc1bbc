"""The items of one call in one subnet, from what is asked to what each container then has.

All releases come first, then new containers get their primaries, then everybody is topped up in turn: so addresses that
have rested may go back to who let go of them, as new grants, and a waiting Pod comes before a buffer of the same call.
An item is checked before anything is done for it; one that is refused leaves its container as it was.
"""

import random
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from podpool.ledger.domain.allocations import AllocatedAddress, told
from podpool.ledger.domain.circuit_breaker import refusal
from podpool.ledger.domain.convert import nc_state
from podpool.ledger.domain.fair_queue import PASSED, shares
from podpool.ledger.domain.scaling_policy import scaler_of
from podpool.ledger.domain.settle import waiter_of, waiters, with_load
from podpool.ledger.domain.subnet_transaction import SubnetTransaction
from podpool.ledger.domain.validation import check
from podpool.ledger.errors import (
    Conflict,
    SubnetDraining,
    SubnetFrozen,
    Invalid,
    LedgerError,
    NotFound,
    SubnetFull,
    Superseded,
    OwnershipDisputed,
)
from podpool.ledger.messages import ReconcileItem, NetworkContainerResult
from podpool.ledger.domain.block import PRIMARY
from podpool.ledger.domain.rows import ClusterRow, NetworkContainerRow, AllocationEvent
from podpool.runtime.entropy import new_uuid, new_uuids


class AllocatorItem:
    """One item, the container that it is about, and what has become of it so far."""

    def __init__(self, item: ReconcileItem) -> None:
        self.item = item
        self.before: NetworkContainerRow | None = None
        self.row: NetworkContainerRow | None = None
        self.held: list[AllocatedAddress] = []
        self.granted: list[AllocatedAddress] = []
        self.released: list[AllocatedAddress] = []
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


class Allocator:
    """One subnet's part of a call."""

    def __init__(self, desk: SubnetTransaction, *, cluster: ClusterRow, rng: random.Random) -> None:
        self.repo = desk.repo
        self.allocations = desk.allocations
        self.events: list[AllocationEvent] = []
        self._desk = desk
        self._cluster = cluster
        self._braked = refusal(cluster)
        self._rng = rng

    def show(self, items: Sequence[ReconcileItem]) -> list[NetworkContainerResult]:
        """Tell what each container has, and change nothing."""
        return [self._result(self._late(seat)) for seat in map(self._seat, items)]

    def settle(self, items: Sequence[ReconcileItem]) -> list[NetworkContainerResult]:
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

    def _seat(self, item: ReconcileItem) -> AllocatorItem:
        """Find an item's container, if there is one, and what is wrong with the item, if anything is."""
        seat = AllocatorItem(item)
        try:
            check(item)
            seat.before = seat.row = self._find(item)
        except LedgerError as error:
            seat.error = error
        if seat.row is not None:
            seat.held = self.allocations.held(seat.row)
        return seat

    def _find(self, item: ReconcileItem) -> NetworkContainerRow | None:
        subnet = self.allocations.subnet.number
        same_node = self.repo.nc_of_node(
            cluster=self._cluster.id, node=item.node, node_uid=item.node_uid, subnet=subnet
        )
        if item.nc_id is None:
            if item.gone:
                raise Invalid("a container that is gone must be named", field="nc_id")
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

    def _named(self, item: ReconcileItem) -> NetworkContainerRow:
        row = self.repo.nc(item.nc_id or "")
        if row is None or row.cluster != self._cluster.id:
            raise NotFound(f"there is no container {item.nc_id} of this cluster", field="nc_id")
        if row.subnet != self.allocations.subnet.number:
            raise Conflict(f"container {row.id} is not in subnet {item.subnet}", field="subnet")
        if row.node != item.node:
            raise Conflict(f"container {row.id} belongs to node {row.node}, not {item.node}", field="node")
        return row

    def _refuse_doubtful(self, row: NetworkContainerRow) -> None:
        if row.number in self._desk.disputed:
            raise OwnershipDisputed(f"container {row.id} has a part in an alarm: a person must settle it", field="nc_id")
        if self._desk.listing and row.epoch < self.repo.epoch:
            # what the books say it has may be another's by now, and that one has not listed yet
            raise SubnetFrozen(f"container {row.id} was not listed: nothing is told of it before all lists are in")

    def _let_go(self, seat: AllocatorItem) -> None:
        row, item = seat.row, seat.item
        if row is None:
            return
        names = frozenset(item.released)
        for held in [each for each in seat.held if item.gone or (not each.primary and each.id in names)]:
            row = self.allocations.release(row, held, cooled_seconds=item.cooled_seconds)
            seat.released.append(held)
            seat.held.remove(held)
        seat.row = self._noted(row, item)

    def _give_primary(self, seat: AllocatorItem) -> None:
        """Open a container, or give one its primary that has lost it."""
        if seat.item.gone or any(each.primary for each in seat.held):
            return
        refusal = self._no_primary()
        if refusal is not None:
            if seat.row is None:  # one that is open goes on without, and is given one when it can be
                seat.error = refusal
            return
        row = seat.row or self._noted(self._opened(seat.item), seat.item)
        seat.row, held = self.allocations.take(row, [PRIMARY])
        seat.held += held
        seat.granted += held

    def _no_primary(self) -> LedgerError | None:
        subnet = self.allocations.subnet
        if self._desk.frozen:
            return SubnetFrozen(f"subnet {subnet.name} recovers: nothing is granted yet", field="subnet")
        if subnet.draining:
            return SubnetDraining(f"subnet {subnet.name} drains: nothing is granted any more", field="subnet")
        if self.allocations.free <= 0:
            return SubnetFull(f"subnet {subnet.name} has no address left, not even as a primary", field="subnet")
        return None

    def _opened(self, item: ReconcileItem) -> NetworkContainerRow:
        subnet = self.allocations.subnet
        self.repo.add_member((self._cluster.id, subnet.spec.network, subnet.spec.name))
        return self.repo.add_nc(
            NetworkContainerRow(
                number=0,
                id=new_uuid(self._rng),
                cluster=self._cluster.id,
                subnet=subnet.number,
                node=item.node,
                node_uid=item.node_uid,
            )
        )

    def _noted(self, row: NetworkContainerRow, item: ReconcileItem) -> NetworkContainerRow:
        """Take down what an item says of its container."""
        if item.gone:
            return row.shut()
        noted = replace(
            row,
            node_uid=item.node_uid,
            boot_id=item.boot_id or row.boot_id,
            epoch=self.repo.epoch,
            wanted=item.wanted,
            released=item.released,
            cooled_seconds=item.cooled_seconds,
            report=item.report,
            pinned=item.pinned,
            notified_at=None,
        )
        offered = scaler_of(self.allocations.subnet)
        return with_load(noted, offered=offered, maximum=item.maximum, now=self.allocations.now)

    def _top_up(self, seats: Sequence[AllocatorItem], *, present: Collection[int]) -> None:
        """Give everybody what is their turn, and remember what they are short of."""
        subnet, spare = self.allocations.subnet, 0 if self._desk.frozen else self.allocations.spare
        plenty = not (subnet.pod_shortage or subnet.buffer_shortage) and sum([seat.short for seat in seats]) <= spare
        given = [seat.short for seat in seats] if plenty else self._turns(seats, spare=spare, present=present)
        for seat, share in zip(seats, given, strict=True):
            row = self._lacking(seat, given=share)
            seat.row, held = self.allocations.take(row, new_uuids(self._rng, share))
            seat.held += held
            seat.granted += held

    def _turns(self, seats: Sequence[AllocatorItem], *, spare: int, present: Collection[int]) -> list[int]:
        """Divide what there is among those who are here and those who wait; tell what each of the seats is given.

        Whoever is in the call speaks for itself: what the books say of its place is what it asked for before.
        """
        ahead = waiters(self.repo, self.allocations.subnet, limit=spare + len(present)) if spare else {}
        asks = [waiter_of(row) for row in ahead.values() if row.number not in present]
        here = [waiter_of(self._lacking(seat, given=0), here=True) for seat in seats]
        given = shares([*asks, *here], spare)
        return [given.get(ask.nc_id, 0) for ask in here]

    def _lacking(self, seat: AllocatorItem, *, given: int) -> NetworkContainerRow:
        """Work out what a container is short of, once it has been given something."""
        row = seat.row
        if row is None:
            raise AssertionError(f"node {seat.item.node} has no container that could be short")
        waiting = row.report.waiting if row.report else max(0, (row.load.demand if row.load else 0) - seat.secondaries)
        pod_shortage = max(0, min(seat.short, waiting, self._left(seat, waiting)) - given)
        buffer_shortage = max(0, seat.short - given - pod_shortage)
        return replace(
            row,
            pod_shortage=pod_shortage,
            pod_short_since=_since(row.pod_short_since, self.allocations.now) if pod_shortage else None,
            buffer_shortage=buffer_shortage,
            buffer_short_since=_since(row.buffer_short_since, self.allocations.now) if buffer_shortage else None,
        )

    def _left(self, seat: AllocatorItem, waiting: int) -> int:
        """Tell how many of those who wait are left: the same report again counts none who was given something since."""
        before, row = seat.before, seat.row
        known = before and row and before.report and before.report == row.report and before.epoch == row.epoch
        return before.pod_shortage if before and known else waiting

    def _write(self, seat: AllocatorItem) -> None:
        row = seat.row
        if row is None:
            return
        accepted = row.report.version if row.report else 0
        if seat.moved or accepted > row.version:
            row = replace(row, version=max(row.version, accepted) + 1)
        seat.row = row
        self.allocations.save(seat.before, row)
        if seat.moved or row.closed:
            self.events.append(self._event(seat, row))

    def _event(self, seat: AllocatorItem, row: NetworkContainerRow) -> AllocationEvent:
        return AllocationEvent(
            nc_id=row.id,
            granted=told(seat.granted),
            released=told(seat.released),
            closed=row.closed,
        )

    def _late(self, seat: AllocatorItem) -> AllocatorItem:
        if seat.row is None and seat.error is None:
            seat.error = Superseded("a later call came first, and this container was not opened", field="nc_id")
        return seat

    def _result(self, seat: AllocatorItem) -> NetworkContainerResult:
        if seat.error is not None or seat.row is None:
            return NetworkContainerResult(error=(seat.error or LedgerError("nothing is known of this container")).problem)
        return NetworkContainerResult(state=nc_state(self.allocations, seat.row, seat.held))


def _refuse_twins(seats: Sequence[AllocatorItem]) -> None:
    """Refuse a container's second item in a call: each would undo what the other says."""
    known: set[tuple[str, str] | int] = set()
    for seat in seats:
        key = seat.row.number if seat.row else (seat.item.node, seat.item.node_uid)
        if seat.error is None and key in known:
            seat.error = Invalid(f"node {seat.item.node} has two items in one call", field="nc_id")
        known.add(key)


def _since(before: float | None, now: float) -> float:
    return now if before is None or before >= PASSED else before

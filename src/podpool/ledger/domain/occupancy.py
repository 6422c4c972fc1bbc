"""Which addresses of a subnet are not free: who has each, and which rest until when.

Only blocks that were made are read, so an IPv6 /64 costs what was given of it. A cluster is told its own nodes by name;
of what others have, only that it is taken.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from podpool.ledger.admin_messages import Occupancy, Occupant, Resting
from podpool.ledger.domain.convert import timestamp
from podpool.ledger.domain.subnets import found
from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.block import NEVER, PRIMARY
from podpool.ledger.storage.rows import ContainerRow, SubnetRow, stamp
from podpool.ledger.storage.store import Books

_MOST_BLOCKS = 1024
"""In one answer: 65,536 addresses."""

Owned = dict[int, list[tuple[str, bool]]]
"""Addresses by the number of their container, and whether each is its primary."""


def occupancy(books: Books, name: SubnetName, *, cluster: str | None, wall: float) -> Occupancy:
    """Show a subnet address by address."""
    row = found(books, name)
    containers = books.containers_in(row.number)
    numbers = _made(row, containers)
    owned, resting = _read(books, row, numbers[:_MOST_BLOCKS], wall=wall)
    return Occupancy(
        revision=row.revision,
        cidrs=row.ground.cidrs,
        members=tuple(str(each) for each in row.ground.members.ranges),
        occupants=tuple(_occupants(containers, owned, cluster)),
        resting=tuple(resting),
        complete=len(numbers) <= _MOST_BLOCKS,
    )


def _made(row: SubnetRow, containers: Sequence[ContainerRow]) -> list[int]:
    """List blocks that may hold something: those that were made in their order, and those that a list has named."""
    numbers = {number for each in containers for number in each.blocks}
    number = row.ground.next_block(0)
    while number is not None and len(numbers) <= _MOST_BLOCKS:
        if row.next_block is not None and number >= row.next_block:
            break
        numbers.add(number)
        number = row.ground.next_block(number + 1)
    return sorted(numbers)


def _read(books: Books, row: SubnetRow, numbers: Iterable[int], *, wall: float) -> tuple[Owned, list[Resting]]:
    now, shift = row.steady(wall)
    awake = max(row.awake, stamp(now - row.cooldown))
    owned: Owned = defaultdict(list)
    resting: list[Resting] = []
    for number in numbers:
        block = books.block(row.number, number)
        if block is None:
            continue
        for slot in row.ground.slots(number):
            address = row.ground.text(row.ground.address(number, slot))
            owner, since = block.owner(slot), block.stamp(slot)
            if owner is not None:
                owned[owner].append((address, block.grant(slot) == PRIMARY))
            elif awake < since < NEVER:
                until = timestamp(since / 1_000 + row.cooldown - shift)
                resting.append(Resting(address=address, until=until))
    return owned, resting


def _occupants(containers: Sequence[ContainerRow], owned: Owned, cluster: str | None) -> Iterable[Occupant]:
    for each in containers:
        addresses = owned.get(each.number)
        if not addresses:
            continue
        shown = cluster in (None, each.cluster)
        yield Occupant(
            cluster=each.cluster if shown else "",
            node=each.node if shown else "",
            primaries=tuple(address for address, primary in addresses if primary),
            secondaries=tuple(address for address, primary in addresses if not primary),
        )

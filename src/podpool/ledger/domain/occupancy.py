"""Which addresses of a subnet are not free: who has each, and which rest until when.

Only blocks that were made are read, so an IPv6 /64 costs what was given of it. A cluster is told its own nodes by name;
of what others have, only that it is taken.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from podpool.ledger.admin_messages import Occupancy, Occupant, CoolingAddress
from podpool.ledger.domain.convert import timestamp
from podpool.ledger.domain.subnets import found
from podpool.ledger.messages import SubnetName
from podpool.ledger.domain.block import NOT_FREE, PRIMARY
from podpool.ledger.domain.rows import NetworkContainerRow, SubnetRow, stamp
from podpool.ledger.domain.repository import Repository

_MOST_BLOCKS = 1024
"""In one answer: 65,536 addresses."""

Owned = dict[int, list[tuple[str, bool]]]
"""Addresses by the number of their container, and whether each is its primary."""


def occupancy(repo: Repository, name: SubnetName, *, cluster: str | None, wall: float) -> Occupancy:
    """Show a subnet address by address."""
    row = found(repo, name)
    containers = repo.ncs_in_subnet(row.number)
    numbers = _made(row, containers)
    owned, cooling = _read(repo, row, numbers[:_MOST_BLOCKS], wall=wall)
    return Occupancy(
        revision=row.revision,
        cidrs=row.layout.cidrs,
        members=tuple(str(each) for each in row.layout.members.ranges),
        occupants=tuple(_occupants(containers, owned, cluster)),
        cooling=tuple(cooling),
        complete=len(numbers) <= _MOST_BLOCKS,
    )


def _made(row: SubnetRow, containers: Sequence[NetworkContainerRow]) -> list[int]:
    """List blocks that may hold something: those that were made in their order, and those that a list has named."""
    numbers = {number for each in containers for number in each.blocks}
    number = row.layout.next_block(0)
    while number is not None and len(numbers) <= _MOST_BLOCKS:
        if row.next_block is not None and number >= row.next_block:
            break
        numbers.add(number)
        number = row.layout.next_block(number + 1)
    return sorted(numbers)


def _read(repo: Repository, row: SubnetRow, numbers: Iterable[int], *, wall: float) -> tuple[Owned, list[CoolingAddress]]:
    now, clock_offset = row.time_at(wall)
    reusable_stamp = max(row.reusable_stamp, stamp(now - row.cooldown))
    owned: Owned = defaultdict(list)
    cooling: list[CoolingAddress] = []
    for number in numbers:
        block = repo.block(row.number, number)
        if block is None:
            continue
        for slot in row.layout.slots(number):
            address = row.layout.text(row.layout.address(number, slot))
            owner, since = block.owner(slot), block.stamp(slot)
            if owner is not None:
                owned[owner].append((address, block.grant(slot) == PRIMARY))
            elif reusable_stamp < since < NOT_FREE:
                until = timestamp(since / 1_000 + row.cooldown - clock_offset)
                cooling.append(CoolingAddress(address=address, until=until))
    return owned, cooling


def _occupants(containers: Sequence[NetworkContainerRow], owned: Owned, cluster: str | None) -> Iterable[Occupant]:
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

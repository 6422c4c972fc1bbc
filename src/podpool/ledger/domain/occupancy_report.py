"""The occupancy of a subnet: the owner of each address, and which addresses cool down until when.

Only created blocks are read, so an IPv6 /64 costs what was granted of it. A cluster sees the names of its own nodes,
and only the addresses of others.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from podpool.ledger.admin_messages import CoolingAddress, Occupancy, Occupant
from podpool.ledger.domain.address_block import NOT_FREE, PRIMARY
from podpool.ledger.domain.ledger_time import timestamp
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import NcRow, SubnetRow
from podpool.ledger.domain.subnets import existing_subnet
from podpool.ledger.messages import SubnetName

_MAX_BLOCKS = 1024
"""In one response: 65,536 addresses."""

_Owned = dict[int, list[tuple[str, bool]]]
"""Addresses by the number of their NC, and whether each is a primary."""


def occupancy(repo: Repository, name: SubnetName, *, cluster: str | None, time: float) -> Occupancy:
    """Return the addresses of a subnet that are not free."""
    row = existing_subnet(repo, name)
    ncs = repo.ncs_in_subnet(row.number)
    numbers = _created_blocks(row, ncs)
    owned, cooling_down = _read(repo, row, numbers[:_MAX_BLOCKS], time=time)
    return Occupancy(
        revision=row.revision,
        cidrs=row.layout.cidrs,
        members=tuple(str(each) for each in row.layout.members.ranges),
        occupants=tuple(_occupants(ncs, owned, cluster)),
        cooling_down=tuple(cooling_down),
        complete=len(numbers) <= _MAX_BLOCKS,
    )


def _created_blocks(row: SubnetRow, ncs: Sequence[NcRow]) -> list[int]:
    """Return the blocks that may exist: those created in their order, and those of an inventory."""
    numbers = {number for nc in ncs for number in nc.blocks}
    number = row.layout.next_block(0)
    while number is not None and len(numbers) <= _MAX_BLOCKS:
        if row.next_block is not None and number >= row.next_block:
            break
        numbers.add(number)
        number = row.layout.next_block(number + 1)
    return sorted(numbers)


def _read(
    repo: Repository, row: SubnetRow, numbers: Iterable[int], *, time: float
) -> tuple[_Owned, list[CoolingAddress]]:
    now, clock_offset = row.time_at(time)
    reusable_stamp = row.reusable_at(now)
    owned: _Owned = defaultdict(list)
    cooling_down: list[CoolingAddress] = []
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
                until = timestamp(repo, since / 1_000 + row.spec.cooldown_exhausted - clock_offset)
                cooling_down.append(CoolingAddress(address=address, until=until))
    return owned, cooling_down


def _occupants(ncs: Sequence[NcRow], owned: _Owned, cluster: str | None) -> Iterable[Occupant]:
    for nc in ncs:
        addresses = owned.get(nc.number)
        if not addresses:
            continue
        visible = cluster in (None, nc.cluster)
        yield Occupant(
            cluster=nc.cluster if visible else "",
            node=nc.node if visible else "",
            primaries=tuple(address for address, primary in addresses if primary),
            secondaries=tuple(address for address, primary in addresses if not primary),
        )

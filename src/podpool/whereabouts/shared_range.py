"""Allocation in a shared range, whose IPPool all nodes write: Whereabouts without slices.

A Pod's interface that has an address gets the same one again, in any sandbox. Others get the lowest address that the
configuration allows, that is not allocated, and that is not reserved through an overlapping range. A release finds the
allocations of a sandbox in every pool.

As in Whereabouts, the gateway is not special: exclude it to keep it free.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from podpool.api.whereabouts import Allocation, IPPoolSpec, ReservationSpec
from podpool.core.addresses import Address
from podpool.core.errors import PodpoolError
from podpool.core.range_spec import RangeSpec
from podpool.core.ranges import Prefix, Range, RangeSet
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig
from podpool.whereabouts.ippool import AllocationChange, ParsedIPPool, allocation_for, parse_ippool

MAX_OBJECT_BYTES = 1_500_000
"""The limit of etcd for one request, 1.5 MiB, less what surrounds the allocations."""
MANAGED_FIELDS_BYTES = 57
"""What the API server adds per allocation to `managedFields`."""
ALWAYS_FITS = 2_500
"""Allocations that fit into an object whatever the length of their Pod names."""


class RangeFull(PodpoolError):
    """A range has no free address."""

    def __init__(self, range_spec: RangeSpec, *, allocated: int, reserved: int) -> None:
        excluded = range_spec.bounds.size - range_spec.members.size
        counts = f"{allocated} are allocated, {reserved} are reserved through other ranges"
        counts += f", {excluded} are excluded" if excluded else ""
        what = f"{range_spec.bounds} of {range_spec.prefix}"
        super().__init__(f"no address of {what} is free: {counts}; delete Pods or widen the range")
        self.allocated = allocated
        self.reserved = reserved


class PoolTooLarge(PodpoolError):
    """An IPPool has as many allocations as fit into an object."""

    def __init__(self, prefix: Prefix, count: int) -> None:
        remedy = "use node_slice_size, or smaller ranges"
        super().__init__(f"the IPPool of {prefix} has {count} allocations, as many as fit into one object: {remedy}")


class RangeSliced(PodpoolError):
    """A range is divided into slices, so nothing new is allocated from it as a shared range."""

    def __init__(self, prefix: Prefix, by: str) -> None:
        remedy = "set node_slice_size in this configuration too, or use another range or network_name"
        undo = "to share it again, wait until every node has returned its slice"
        super().__init__(f"{prefix} is divided into node slices, according to {by}: {remedy}; {undo}")


def allocate(
    pool: IPPoolSpec,
    range_spec: RangeSpec,
    owners: Sequence[PodInterface],
    *,
    reserved: Mapping[Address, ReservationSpec] | None = None,
) -> tuple[AllocationChange | RangeFull | PoolTooLarge, ...]:
    """Choose an address for each owner, so that one patch serves all of them. Returns a change or an error for each."""
    parsed = parse_ippool(pool)
    family = parsed.prefix.family
    reserved_by = {each.value: by for each, by in (reserved or {}).items() if each.family is family}
    members = range_spec.members.within(Range(family, parsed.base.value, parsed.prefix.range.last))
    owned = _by_owner(parsed, owners)
    taken = {entry.address.value for entry in parsed.entries}
    free = _ascending(members, taken | reserved_by.keys())
    remaining = _remaining(pool, more=len(owners))
    changes: list[AllocationChange | RangeFull | PoolTooLarge] = []
    for owner in owners:
        change = owned.get((owner.podref, owner.ifname))
        if change is None:
            own = (value for value, by in reserved_by.items() if _is_of(by, owner) and value in members)
            value = next(chain((each for each in own if each not in taken), free), None)
            if value is None:
                changes.append(RangeFull(range_spec, allocated=len(parsed.entries), reserved=len(reserved_by)))
                continue
            change = _new(parsed, Address(family, value), owner)
            remaining -= allocation_bytes(change.key, allocation_for(owner))
            if remaining < 0:
                changes.append(PoolTooLarge(parsed.prefix, len(pool.allocations)))
                continue
            owned[owner.podref, owner.ifname] = change
            taken.add(value)
        changes.append(change)
    return tuple(changes)


def removals(pool: IPPoolSpec, *, container_id: str, ifname: str) -> tuple[AllocationChange, ...]:
    """Return the removal of each allocation that an interface of a sandbox has in a pool."""
    return tuple(
        AllocationChange(key=entry.key, address=entry.address, before=entry.allocation, after=None)
        for entry in parse_ippool(pool).entries
        if entry.allocation.id == container_id and entry.allocation.ifname == ifname
    )


def blocks(reservation: ReservationSpec, owner: PodInterface) -> bool:
    """Return whether a reservation is of another Pod or interface."""
    return not _is_of(reservation, owner)


def belongs_to(reservation: ReservationSpec, allocation: Allocation) -> bool:
    """Return whether a reservation is deleted with an allocation: both are of one Pod and interface."""
    owner = PodInterface(podref=allocation.podref, container_id=allocation.id, ifname=allocation.ifname)
    return _is_of(reservation, owner)


def needs_reservation(config: IpamConfig, range_: Prefix, others: Collection[Prefix]) -> bool:
    """Return whether an address is also reserved: another range of the network contains it, or it is configured."""
    if not config.overlap_checked:
        return False
    return config.overlap_explicit or any(other != range_ and other.range.overlaps(range_.range) for other in others)


def _is_of(reservation: ReservationSpec, owner: PodInterface) -> bool:
    """Compare Pod and interface. Reservations of older Whereabouts have no interface."""
    return reservation.podref == owner.podref and reservation.ifname in ("", owner.ifname)


def _by_owner(parsed: ParsedIPPool, owners: Sequence[PodInterface]) -> dict[tuple[str, str], AllocationChange]:
    """Return what owners have already: the allocation of their sandbox, else the lowest."""
    requested = {(owner.podref, owner.ifname): owner for owner in owners}
    owned: dict[tuple[str, str], AllocationChange] = {}
    for entry in parsed.entries:
        owner = requested.get(entry.owner)
        if owner and (entry.owner not in owned or entry.allocation.id == owner.container_id):
            after = msgspec.structs.replace(entry.allocation, id=owner.container_id)
            before = entry.allocation
            owned[entry.owner] = AllocationChange(key=entry.key, address=entry.address, before=before, after=after)
    return owned


def _new(parsed: ParsedIPPool, address: Address, owner: PodInterface) -> AllocationChange:
    return AllocationChange(key=parsed.key(address), address=address, before=None, after=allocation_for(owner))


def _ascending(members: RangeSet, taken: Collection[int]) -> Iterator[int]:
    """Iterate over the free addresses in order, without visiting the taken ones."""
    family = members.ranges[0].family if members.ranges else None
    excluded = RangeSet.of(Range(family, each, each) for each in taken) if family else RangeSet()
    for run in (members - excluded).ranges:
        yield from range(run.first, run.last + 1)


def _remaining(pool: IPPoolSpec, *, more: int) -> float:
    """Return how many bytes of allocations still fit, computed only when it may matter."""
    return math.inf if len(pool.allocations) + more <= ALWAYS_FITS else remaining_bytes(pool.allocations)


def remaining_bytes(allocations: Mapping[str, Allocation]) -> int:
    """Return how many bytes of allocations fit into an IPPool in addition to these."""
    return MAX_OBJECT_BYTES - len(msgspec.json.encode(allocations)) - MANAGED_FIELDS_BYTES * len(allocations)


def allocation_bytes(key: str, allocation: Allocation) -> int:
    """Return how many bytes an allocation takes in an IPPool."""
    return len(msgspec.json.encode({key: allocation})) - 1 + MANAGED_FIELDS_BYTES  # a comma instead of two braces

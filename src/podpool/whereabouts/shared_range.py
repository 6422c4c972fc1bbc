"""Addresses from a range that all nodes share, in the IPPool that all of them write: Whereabouts without slices.

What must hold: a Pod's interface that has an address gets the same again, whichever sandbox asks; everybody else gets
the lowest address that may be given, that no entry has, and that nobody has reserved through another range. A allocations_of
takes back what the sandbox has in every pool, whatever it finds missing in another.

The gateway is an address like any other here, as in Whereabouts: who wants it kept back excludes it.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from podpool.api.whereabouts import Allocation, IPPoolSpec, ReservationSpec
from podpool.core.addresses import Address
from podpool.core.errors import PodpoolError
from podpool.core.range_spec import RangeSpec as Allowed
from podpool.core.ranges import Prefix, Range, RangeSet
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig
from podpool.whereabouts.ippool import AllocationChange, ParsedIPPool, allocation_for, parse_ippool

LARGEST_OBJECT = 1_500_000
"""Bytes that etcd takes in one request, 1.5 MiB, less what surrounds the entries."""
MANAGED = 57
"""Bytes that the API server adds to each entry, to tell who wrote it."""
ALWAYS_FITS = 2_500
"""ParsedIPPool that fit, however long the names of their Pods are."""


class RangeFull(PodpoolError):
    """A range has no address left to give."""

    def __init__(self, allowed: Allowed, *, taken: int, reserved: int) -> None:
        what = f"{allowed.bounds} of {allowed.prefix}"
        held = f"{taken} have an owner, {reserved} are reserved through other ranges"
        excluded = allowed.bounds.size - allowed.members.size
        left_out = f", {excluded} are excluded" if excluded else ""
        super().__init__(f"no address of {what} is free: {held}{left_out}; delete Pods or widen the range")
        self.taken = taken
        self.reserved = reserved


class PoolTooLarge(PodpoolError):
    """An IPPool has as many entries as an object can hold."""

    def __init__(self, prefix: Prefix, entries: int) -> None:
        cure = "use node_slice_size, or smaller ranges"
        super().__init__(f"the IPPool of {prefix} has {entries} entries, as many as fit into one object: {cure}")


class RangeSliced(PodpoolError):
    """A range is cut into slices: nobody who shares it is given anything new of it."""

    def __init__(self, prefix: Prefix, by: str) -> None:
        cure = "set node_slice_size in this configuration too, or another range or network_name"
        gone = "if it is to be shared again, wait until every node has handed its slice back"
        super().__init__(f"{prefix} is cut into slices of nodes, says {by}: {cure}; {gone}")


def assign(
    spec: IPPoolSpec,
    allowed: Allowed,
    owner: PodInterface,
    *,
    reserved: Mapping[Address, ReservationSpec] | None = None,
) -> AllocationChange:
    """Choose an owner's address; raises `RangeFull` or `PoolTooLarge`."""
    (change,) = allocate(spec, allowed, [owner], reserved=reserved)
    if isinstance(change, PodpoolError):
        raise change
    return change


def allocate(
    spec: IPPoolSpec,
    allowed: Allowed,
    owners: Sequence[PodInterface],
    *,
    reserved: Mapping[Address, ReservationSpec] | None = None,
) -> tuple[AllocationChange | RangeFull | PoolTooLarge, ...]:
    """Choose the addresses of several owners, so that one patch serves them all; who finds none left is told why."""
    entries = parse_ippool(spec)
    family = entries.prefix.family
    kept = {each.value: by for each, by in (reserved or {}).items() if each.family is family}
    members = allowed.members.within(Range(family, entries.base.value, entries.prefix.range.last))
    owned = _by_owner(entries, owners)
    taken = {entry.address.value for entry in entries.listed}
    free = _ascending(members, taken | kept.keys())
    room = _room(spec, more=len(owners))
    changes: list[AllocationChange | RangeFull | PoolTooLarge] = []
    for owner in owners:
        change = owned.get((owner.podref, owner.ifname))
        if change is None:
            own = (value for value, by in kept.items() if _is_of(by, owner) and value in members)
            value = next(chain((each for each in own if each not in taken), free), None)
            if value is None:
                changes.append(RangeFull(allowed, taken=len(entries.listed), reserved=len(kept)))
                continue
            change = _new(entries, Address(family, value), owner)
            room -= entry_size(change.key, allocation_for(owner))
            if room < 0:
                changes.append(PoolTooLarge(entries.prefix, len(spec.allocations)))
                continue
            owned[owner.podref, owner.ifname] = change
            taken.add(value)
        changes.append(change)
    return tuple(changes)


def allocations_of(
    pools: Mapping[str, IPPoolSpec], *, container: str, ifname: str
) -> dict[str, tuple[AllocationChange, ...]]:
    """Find what a sandbox's interface has in each of a network's pools; those that have nothing are left out."""
    found: dict[str, tuple[AllocationChange, ...]] = {}
    for name, spec in pools.items():
        changes = tuple(
            AllocationChange(key=entry.key, address=entry.address, before=entry.allocation, after=None)
            for entry in parse_ippool(spec).listed
            if entry.allocation.id == container and entry.allocation.ifname == ifname
        )
        if changes:
            found[name] = changes
    return found


def blocks(reservation: ReservationSpec, owner: PodInterface) -> bool:
    """Tell whether a reservation keeps an owner from the address: another Pod's does, or another interface's."""
    return not _is_of(reservation, owner)


def reservation_matches(reservation: ReservationSpec, released: Allocation) -> bool:
    """Tell whether a reservation goes with the entry that is released: one of another Pod or interface stays."""
    owner = PodInterface(podref=released.podref, container=released.id, ifname=released.ifname)
    return _is_of(reservation, owner)


def needs_reservation(config: IpamConfig, range_: Prefix, others: Collection[Prefix]) -> bool:
    """Tell whether addresses are reserved too: only where another range of the network can give them, or on demand."""
    if not config.overlap_checked:
        return False
    return config.overlap_insisted or any(other != range_ and other.range.overlaps(range_.range) for other in others)


def _is_of(reservation: ReservationSpec, owner: PodInterface) -> bool:
    """Compare Pod and interface; older reservations have no interface."""
    return reservation.podref == owner.podref and reservation.ifname in ("", owner.ifname)


def _by_owner(entries: ParsedIPPool, owners: Sequence[PodInterface]) -> dict[tuple[str, str], AllocationChange]:
    """Find what owners have already: an entry of this very sandbox first, else the lowest."""
    asking = {(owner.podref, owner.ifname): owner for owner in owners}
    owned: dict[tuple[str, str], AllocationChange] = {}
    for entry in entries.listed:
        owner = asking.get(entry.owned_by)
        if owner and (entry.owned_by not in owned or entry.allocation.id == owner.container):
            after = msgspec.structs.replace(entry.allocation, id=owner.container)
            owned[entry.owned_by] = AllocationChange(
                key=entry.key, address=entry.address, before=entry.allocation, after=after
            )
    return owned


def _new(entries: ParsedIPPool, address: Address, owner: PodInterface) -> AllocationChange:
    return AllocationChange(key=entries.key(address), address=address, before=None, after=allocation_for(owner))


def _ascending(members: RangeSet, taken: Collection[int]) -> Iterator[int]:
    """Walk the free addresses upwards, without looking at those between."""
    family = members.ranges[0].family if members.ranges else None
    out = RangeSet.of(Range(family, each, each) for each in taken) if family else RangeSet()
    for stretch in (members - out).ranges:
        yield from range(stretch.first, stretch.last + 1)


def _room(spec: IPPoolSpec, *, more: int) -> float:
    """Tell how many bytes of entries still fit into the object, if that needs to be known."""
    return math.inf if len(spec.allocations) + more <= ALWAYS_FITS else remaining_bytes(spec.allocations)


def remaining_bytes(entries: Mapping[str, Allocation]) -> int:
    """Tell how many bytes of entries fit into an IPPool beside these."""
    return LARGEST_OBJECT - len(msgspec.json.encode(entries)) - MANAGED * len(entries)


def entry_size(key: str, entry: Allocation) -> int:
    """Tell how many bytes an entry takes."""
    return len(msgspec.json.encode({key: entry})) - 1 + MANAGED  # a comma instead of two braces

"""What nobody needs any more: entries and reservations of Pods that are gone.

What must hold: nothing of a Pod that lives is released. A Pod is gone when two looks, a minute apart, find it absent or
finished, and its entry the same both times. The pool of a node's slice is judged by that node's agent alone, because
what the API server shows of it may lag.

A look reads pools and reservations before Pods: whatever it finds was there when the Pods were looked for.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from podpool.api.whereabouts import NODE_ANNOTATION, IPPool
from podpool.api.whereabouts import OverlappingRangeIPReservation as Reservation
from podpool.core.errors import InvalidInput
from podpool.whereabouts.ippool import AllocationChange, IPPoolEntry, parse_ippool

MIN_INTERVAL = 60.0
"""Seconds between two looks, at least."""


class ObservedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod in a look."""

    finished: bool = False


class GcSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the API server found, on quorum reads."""

    at: float
    """Seconds, on a clock that does not jump."""
    pools: Mapping[str, IPPool] = {}
    reservations: Mapping[str, Reservation] = {}
    pods: Mapping[str, ObservedPod] = {}
    """By `namespace/name`: all of the cluster's."""


class OrphanedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that may be taken out of its pool."""

    pool: str
    change: AllocationChange


def referenced_pods(pools: Iterable[IPPool], reservations: Iterable[Reservation]) -> frozenset[str]:
    """List the Pods whose entries and reservations could be released, were the Pods gone."""
    entered = (entry.allocation.podref for pool in pools for entry in _readable(pool))
    reserved = (each.spec.podref for each in reservations)
    return frozenset(podref for podref in (*entered, *reserved) if _names_a_pod(podref))


def orphaned_entries(first: GcSnapshot, second: GcSnapshot) -> tuple[OrphanedEntry, ...]:
    """Find the entries that the controller may release: in pools that all nodes share, of Pods that are gone."""
    return tuple(
        OrphanedEntry(pool=name, change=_removal(entry))
        for name, entry in _entries_of_both(first, second)
        if NODE_ANNOTATION not in second.pools[name].metadata.annotations
        and _gone(entry.allocation.podref, first, second)
    )


def orphaned_reservations(first: GcSnapshot, second: GcSnapshot) -> tuple[Reservation, ...]:
    """Find the reservations of Pods that are gone; deleted with their UID as a precondition."""
    if second.at - first.at < MIN_INTERVAL:
        return ()
    return tuple(
        reservation
        for name, reservation in second.reservations.items()
        if name in first.reservations
        and first.reservations[name].metadata.uid == reservation.metadata.uid
        and first.reservations[name].spec == reservation.spec
        and _gone(reservation.spec.podref, first, second)
    )


def _entries_of_both(first: GcSnapshot, second: GcSnapshot) -> Iterator[tuple[str, IPPoolEntry]]:
    """Walk the entries that two looks, far enough apart, show alike."""
    if second.at - first.at < MIN_INTERVAL:
        return
    for name, pool in second.pools.items():
        before = first.pools.get(name)
        if before is None or before.metadata.uid != pool.metadata.uid:
            continue
        for entry in _readable(pool):
            if before.spec.allocations.get(entry.key) == entry.allocation:
                yield name, entry


def _readable(pool: IPPool) -> tuple[IPPoolEntry, ...]:
    try:
        return parse_ippool(pool.spec).listed
    except InvalidInput:
        return ()


def _names_a_pod(podref: str) -> bool:
    return "/" in podref


def _gone(podref: str, first: GcSnapshot, second: GcSnapshot) -> bool:
    """Tell whether a Pod is absent or finished, both times; an entry that names none is nobody's to judge."""
    seen = [look.pods.get(podref) for look in (first, second)]
    return _names_a_pod(podref) and all(pod is None or pod.finished for pod in seen)


def _removal(entry: IPPoolEntry) -> AllocationChange:
    return AllocationChange(key=entry.key, address=entry.address, before=entry.allocation, after=None)

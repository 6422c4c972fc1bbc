"""Orphan GC of shared ranges: allocations and reservations of Pods that no longer exist.

Invariant: nothing of a running Pod is released. A Pod is gone if two snapshots, at least a minute apart, show it absent
or finished, and its allocation unchanged. Allocations in slices are left to the agent of the node: what the API server
shows of them may lag.

A snapshot reads pools and reservations before Pods, so each allocation in it is older than the list of Pods.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from podpool.api.whereabouts import NODE_ANNOTATION, IPPool, ReservationSpec
from podpool.api.whereabouts import OverlappingRangeIPReservation as Reservation
from podpool.core.errors import InvalidInput
from podpool.core.two_observations import TwoObservations
from podpool.whereabouts.ippool import AllocationChange, IPPoolEntry, parse_ippool


class ObservedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod in a snapshot."""

    finished: bool = False


class GcSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What quorum reads showed."""

    at: float
    """Seconds, on a monotonic clock."""
    pools: Mapping[str, IPPool] = {}
    reservations: Mapping[str, Reservation] = {}
    pods: Mapping[str, ObservedPod] = {}
    """All Pods of the cluster, by `namespace/name`."""


class OrphanedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation to be removed from its pool."""

    pool: str
    pool_uid: str
    change: AllocationChange


class _OrphanedReservation(msgspec.Struct, frozen=True):
    name: str
    uid: str
    spec: ReservationSpec


def referenced_pods(pools: Iterable[IPPool], reservations: Iterable[Reservation]) -> frozenset[str]:
    """Return the Pods that own allocations or reservations."""
    allocated = (entry.allocation.podref for pool in pools for entry in _entries(pool))
    reserved = (each.spec.podref for each in reservations)
    return frozenset(podref for podref in (*allocated, *reserved) if _is_pod(podref))


def orphaned_entries(first: GcSnapshot, second: GcSnapshot) -> tuple[OrphanedEntry, ...]:
    """Return the allocations in shared pools that both snapshots show as orphaned."""
    observations = TwoObservations[OrphanedEntry]()
    observations.observe(_entry_candidates(first), now=first.at)
    return observations.observe(_entry_candidates(second), now=second.at)


def orphaned_reservations(first: GcSnapshot, second: GcSnapshot) -> tuple[Reservation, ...]:
    """Return the reservations that both snapshots show as orphaned. Delete them with their UID as a precondition."""
    observations = TwoObservations[_OrphanedReservation]()
    observations.observe(_reservation_candidates(first), now=first.at)
    orphaned = observations.observe(_reservation_candidates(second), now=second.at)
    return tuple(second.reservations[each.name] for each in orphaned)


def _entry_candidates(snapshot: GcSnapshot) -> Iterator[OrphanedEntry]:
    for name, pool in snapshot.pools.items():
        for entry in () if NODE_ANNOTATION in pool.metadata.annotations else _entries(pool):
            if _is_gone(entry.allocation.podref, snapshot):
                yield OrphanedEntry(pool=name, pool_uid=pool.metadata.uid, change=_removal(entry))


def _reservation_candidates(snapshot: GcSnapshot) -> Iterator[_OrphanedReservation]:
    for name, each in snapshot.reservations.items():
        if _is_gone(each.spec.podref, snapshot):
            yield _OrphanedReservation(name, each.metadata.uid, each.spec)


def _entries(pool: IPPool) -> tuple[IPPoolEntry, ...]:
    try:
        return parse_ippool(pool.spec).entries
    except InvalidInput:
        return ()


def _is_pod(podref: str) -> bool:
    return "/" in podref


def _is_gone(podref: str, snapshot: GcSnapshot) -> bool:
    """Return whether a Pod is absent or finished. An allocation that names no Pod is never an orphan."""
    pod = snapshot.pods.get(podref)
    return _is_pod(podref) and (pod is None or pod.finished)


def _removal(entry: IPPoolEntry) -> AllocationChange:
    return AllocationChange(key=entry.key, address=entry.address, before=entry.allocation, after=None)

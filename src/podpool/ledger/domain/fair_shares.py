"""The fair queue of a subnet without enough free addresses.

Waiting Pods come before buffers. Among equals the next address goes to the cluster that holds the fewest addresses of
the subnet for its weight, and within a cluster to the NC that has waited longest. So a cluster that holds less than its
share waits for none that holds more, whatever that one requests, and within one cluster it is first come, first served.

Addresses are granted on request only, so the share of an NC that is ahead in the queue but not in the request is set
aside, and its controller is notified. If it does not request its share within `NOTICE_TIMEOUT`, it loses its place and
nothing is set aside until it requests again: no NC starves, and no address stays idle for one that is gone.
"""

import heapq
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter

import msgspec

NOTICE_TIMEOUT = 30.0
"""Seconds for which addresses are set aside for a notified NC; a running controller answers within a second."""

SKIPPED = float(1 << 53)
"""In place of the time since which an NC waits, once it has lost its place: after all others."""


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """An NC in the queue, and what it lacks."""

    nc: int
    cluster: str = ""
    pod_shortage: int = 0
    pod_short_since: float | None = None
    buffer_shortage: int = 0
    buffer_short_since: float | None = None
    requesting: bool = False
    """It is part of this request; others are only notified."""


class ClusterShare(msgspec.Struct, frozen=True):
    """What a cluster holds of the subnet, and its weight."""

    held: int = 0
    weight: int = 1


class _Place(msgspec.Struct, frozen=True):
    """One entry of the queue."""

    nc: int
    cluster: str
    amount: int
    since: float
    requesting: bool


def fair_shares(
    waiters: Iterable[Waiter], free: int, clusters: Mapping[str, ClusterShare] | None = None
) -> dict[int, int]:
    """Divide the free addresses among the waiters; returns the share of each NC that gets any."""
    shares: dict[int, int] = {}
    for_pods, for_buffers, skipped = _queues(waiters)
    held = dict(clusters or {})
    for queue in (for_pods, for_buffers):
        for place, share in _divide(queue, free, held):
            shares[place.nc] = shares.get(place.nc, 0) + share
            free -= share
    for place in skipped if free > 0 else ():
        share = min(place.amount, free)  # nothing is set aside for it
        shares[place.nc] = shares.get(place.nc, 0) + share
    return shares


def _queues(waiters: Iterable[Waiter]) -> tuple[list[_Place], list[_Place], list[_Place]]:
    """Return the places of waiting Pods, of buffers, and of those that have lost theirs; the longest waiting first."""
    for_pods: list[_Place] = []
    for_buffers: list[_Place] = []
    skipped: list[_Place] = []
    for waiter in waiters:
        for amount, since, queue in (
            (waiter.pod_shortage, waiter.pod_short_since, for_pods),
            (waiter.buffer_shortage, waiter.buffer_short_since, for_buffers),
        ):
            if amount and since is not None:
                place = _Place(waiter.nc, waiter.cluster, amount, since, waiter.requesting)
                (skipped if since >= SKIPPED and not waiter.requesting else queue).append(place)
    for queue in (for_pods, for_buffers):
        queue.sort(key=lambda place: (place.since, place.nc))
    return for_pods, for_buffers, skipped


def _divide(queue: list[_Place], free: int, clusters: dict[str, ClusterShare]) -> list[tuple[_Place, int]]:
    """Give each address to the cluster that holds the fewest for its weight; counts them as held."""
    if not queue or free <= 0:
        return []
    places = {cluster: list(group) for cluster, group in _by_cluster(queue)}
    heap = [(_level(clusters, cluster), own[0].since, cluster) for cluster, own in places.items()]
    heapq.heapify(heap)
    served: list[tuple[_Place, int]] = []
    left = {cluster: [place.amount for place in reversed(own)] for cluster, own in places.items()}
    while heap and free > 0:
        _, _, cluster = heapq.heappop(heap)
        share = clusters.get(cluster, ClusterShare())
        until = int(heap[0][0] * share.weight) - share.held if heap else free
        amount = min(left[cluster][-1], free, max(1, until))
        place = places[cluster][len(places[cluster]) - len(left[cluster])]
        served.append((place, amount))
        free -= amount
        clusters[cluster] = ClusterShare(share.held + amount, share.weight)
        left[cluster][-1] -= amount
        if not left[cluster][-1]:
            left[cluster].pop()
        if left[cluster]:
            following = places[cluster][len(places[cluster]) - len(left[cluster])]
            heapq.heappush(heap, (_level(clusters, cluster), following.since, cluster))
    return served


def _by_cluster(queue: list[_Place]) -> Iterable[tuple[str, Iterable[_Place]]]:
    return groupby(sorted(queue, key=attrgetter("cluster")), key=attrgetter("cluster"))


def _level(clusters: Mapping[str, ClusterShare], cluster: str) -> float:
    share = clusters.get(cluster, ClusterShare())
    return share.held / share.weight

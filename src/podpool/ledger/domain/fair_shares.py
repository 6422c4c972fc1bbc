"""The fair queue of a subnet without enough free addresses.

Waiting Pods come before buffers; among equals the longest waiting NC comes first. Addresses are granted on request
only, so the share of an NC that is ahead in the queue but not in the request is set aside, and its controller is
notified. If it does not request its share within `NOTICE_TIMEOUT`, it loses its place and nothing is set aside until
it requests again: no NC starves, and no address stays idle for one that is gone.
"""

from collections.abc import Iterable

import msgspec

NOTICE_TIMEOUT = 30.0
"""Seconds for which addresses are set aside for a notified NC; a running controller answers within a second."""

SKIPPED = float(1 << 53)
"""In place of the time since which an NC waits, once it has lost its place: after all others."""


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """An NC in the queue, and what it lacks."""

    nc: int
    pod_shortage: int = 0
    pod_short_since: float | None = None
    buffer_shortage: int = 0
    buffer_short_since: float | None = None
    requesting: bool = False
    """It is part of this request; others are only notified."""


def fair_shares(waiters: Iterable[Waiter], free: int) -> dict[int, int]:
    """Divide the free addresses among the waiters; returns the share of each NC that gets any."""
    shares: dict[int, int] = {}
    for nc, amount, since, requesting in _queue(waiters):
        share = min(amount, free)
        if share <= 0:
            break
        shares[nc] = shares.get(nc, 0) + share
        if requesting or since < SKIPPED:
            free -= share
    return shares


_Place = tuple[int, int, float, bool]
"""NC, amount, since when, and whether it is part of this request."""


def _queue(waiters: Iterable[Waiter]) -> list[_Place]:
    for_pods: list[_Place] = []
    for_buffers: list[_Place] = []
    skipped: list[_Place] = []
    for waiter in waiters:
        for amount, since, queue in (
            (waiter.pod_shortage, waiter.pod_short_since, for_pods),
            (waiter.buffer_shortage, waiter.buffer_short_since, for_buffers),
        ):
            if amount and since is not None:
                place = (waiter.nc, amount, since, waiter.requesting)
                (skipped if since >= SKIPPED and not waiter.requesting else queue).append(place)
    for queue in (for_pods, for_buffers):
        queue.sort(key=lambda place: (place[2], place[0]))
    return [*for_pods, *for_buffers, *skipped]

"""Load of the yield benchmark: Pods that arrive and depart at random, seeded, the same for every side.

Events have planned times. A process that is too busy starts them late, so their lateness shows whether the load
generator is the bottleneck (`Pace`).
"""

from __future__ import annotations

import random
from ipaddress import ip_network
from itertools import pairwise, zip_longest
from math import ceil
from typing import TYPE_CHECKING

from msgspec import Struct

from podpool.core.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PRIMARIES = 1
NOT_USABLE = 3
"""Addresses of an IPv4 subnet that are never granted: network, broadcast and gateway."""


class Size(Struct, frozen=True, kw_only=True):
    """Subnet, nodes, and how long the timed phases take, in seconds."""

    cidr: str
    nodes: int
    reuse_seconds: float
    steady_seconds: float

    @property
    def capacity(self) -> int:
        """Q of the subnet."""
        return ip_network(self.cidr).num_addresses - NOT_USABLE

    @property
    def for_pods(self) -> int:
        """How many addresses Pods can have: Q less the primaries and those reserved for primaries."""
        return self.capacity - PRIMARIES * self.nodes - Settings().reserved_for_primaries


class PodEvent(Struct, frozen=True, kw_only=True):
    """A Pod arrives on a node, or departs."""

    at: float
    """Planned time in seconds."""
    pod: int
    node: int
    arrives: bool


class Population:
    """Draws arrivals on random nodes and departures of random Pods."""

    def __init__(self, seed: int, nodes: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311  the same each time
        self._nodes = nodes
        self._present: list[PodEvent] = []
        self._arrived = 0

    def arrivals(self, pods: int, *, per_second: float) -> Iterator[PodEvent]:
        """Yield so many arrivals."""
        at = 0.0
        for _ in range(pods):
            at += self._rng.expovariate(per_second)
            yield self._arrival(at)

    def growth(self, *, arrivals: float, departures: float) -> Iterator[PodEvent]:
        """Yield arrivals and departures without end, at so many per second each."""
        at = 0.0
        while True:
            at += self._rng.expovariate(arrivals + departures)
            departs = self._rng.random() * (arrivals + departures) < departures
            yield self._departure(at) if departs and self._present else self._arrival(at)

    def replacement(self, *, per_second: float, seconds: float) -> Iterator[PodEvent]:
        """Yield departures, each with an arrival at the same time: the number of Pods stays the same."""
        at = self._rng.expovariate(per_second)
        while at < seconds:
            yield self._departure(at)
            yield self._arrival(at)
            at += self._rng.expovariate(per_second)

    def _arrival(self, at: float) -> PodEvent:
        event = PodEvent(at=at, pod=self._arrived, node=self._rng.randrange(self._nodes), arrives=True)
        self._arrived += 1
        self._present.append(event)
        return event

    def _departure(self, at: float) -> PodEvent:
        chosen = self._rng.randrange(len(self._present))
        self._present[chosen], self._present[-1] = self._present[-1], self._present[chosen]
        arrived = self._present.pop()
        return PodEvent(at=at, pod=arrived.pod, node=arrived.node, arrives=False)


class Pace:
    """When events are due, by a clock that can be stopped, and how late they were started."""

    def __init__(self, now: float) -> None:
        self._origin = now
        self.lateness: list[float] = []

    def stop(self, seconds: float) -> None:
        """Delay all later events: the clock has stood still."""
        self._origin += seconds

    def wait(self, event: PodEvent, now: float) -> float:
        """Return the seconds until an event is due."""
        return max(0.0, self._origin + event.at - now)

    def started(self, event: PodEvent, now: float) -> None:
        """Count how late an event was started."""
        self.lateness.append(max(0.0, now - self._origin - event.at))


class Published(Struct, frozen=True, kw_only=True):
    """What agents read about their subnet."""

    batch: int
    buffer: float
    exhausted: bool


def reversals(published: Sequence[Published]) -> int:
    """Return how often scaler or exhaustion changed in the opposite direction of their last change."""
    scalers = [(each.batch, each.buffer) for each in published]
    exhausted = [(int(each.exhausted), 0.0) for each in published]
    return sum(map(_turns, (scalers, exhausted)))


def _turns(values: Sequence[tuple[int, float]]) -> int:
    ups = [new > old for old, new in pairwise(values) if new != old]
    return sum(before != after for before, after in pairwise(ups))


def percentile(figures: Sequence[float], share: float) -> float:
    """Return the smallest figure that at least this share of all figures does not exceed."""
    ranked = sorted(figures)
    return ranked[max(0, ceil(share * len(ranked)) - 1)]


def delays(begun: Sequence[float], ended: Sequence[float], *, now: float) -> list[float]:
    """Return how long each took, the first with the first; those that have not ended count until now."""
    return [end - begin for begin, end in zip_longest(begun, ended[: len(begun)], fillvalue=now)]

"""Runs of the yield benchmark, each on a new cluster, and each once for all figures taken from it.

**Fill**: Pods arrive and depart until an ADD fails. The sequence stops while an ADD waits, so that the result does not
depend on the rate of arrivals. **Reuse**: on the full subnet, Pods of one half of the nodes depart while Pods of the
other half wait. All addresses are in use, so an address that is assigned is one that was freed: the first assignment
belongs to the first DEL, and so on. **Steady**: as many arrivals as departures while the subnet is nearly full.
"""

from __future__ import annotations

import asyncio
import random
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from bench.yield_cluster import running_agents, yield_site
from bench.yield_load import Population, delays, percentile, reversals
from bench.yield_model import pods_at_first_refusal
from bench.yield_pods import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.controller_cluster import Site
    from bench.yield_cluster import YieldCluster
    from bench.yield_load import PodEvent, Size
    from bench.yield_pods import Pods
    from parts.postgres import Postgres

ARRIVALS, DEPARTURES = 15.0, 1.5
"""Per second, while the subnet fills."""
REUSE_PER_SECOND = 2.0
WAITING_PER_NODE = 1
"""Pods that wait for an address during reuse, per node of the subnet."""
REUSE_TIMEOUT = 60.0
STEADY_SHARE = 0.85
"""Share of what Pods can have; with primaries, buffers and cooldown 90 to 95 % of the subnet is then reserved."""
STEADY_PER_SECOND = 1.0
PHASE_TIMEOUT = 900.0
GRADED = "graded"


class Fill(Struct, frozen=True, kw_only=True):
    """Result of filling a subnet."""

    share: float
    """Addresses that Pods had at the first refusal, as a share of what they can have."""
    late: float
    """p99 of the lateness of events in seconds."""
    reuse: tuple[float, ...] = ()
    """Seconds until freed addresses served Pods of other nodes."""


class Runs:
    """Runs by policy and turn; the same turn has the same sequence of Pods for every policy."""

    def __init__(self, server: Callable[[], Postgres], size: Size) -> None:
        self._server = server
        self._size = size
        self.fill = cache(self._fill)
        self.oscillations = cache(self._oscillations)

    def modelled(self, turn: int) -> float:
        """Return the share at the first refusal in the model of a fixed batch and grants of all or nothing."""
        return pods_at_first_refusal(self._growth(turn), self._size) / self._size.for_pods

    def reuse(self, share: float, turn: int) -> float:
        """Return a percentile of the seconds until a freed address serves a Pod of another node."""
        return percentile(self.fill(GRADED, turn).reuse, share)

    def _fill(self, scarcity: str, turn: int) -> Fill:
        with yield_site(self._server(), self._size, scarcity=scarcity) as place:
            return place.crowd.run(self._filled(place, scarcity, turn))

    async def _filled(self, place: Site, scarcity: str, turn: int) -> Fill:
        async with running_agents(place, self._size, seed=turn) as cluster:
            pods = cluster.pods
            async with asyncio.timeout(PHASE_TIMEOUT):
                pace = await pods.play(self._growth(turn), closed=True)
            share = (pods.held_at_first_refusal or 0) / self._size.for_pods
            reused = await self._reused(pods, turn) if scarcity == GRADED else ()
            return Fill(share=share, late=percentile(pace.lateness, 0.99), reuse=reused)

    def _growth(self, turn: int) -> Iterator[PodEvent]:
        return Population(turn, self._size.nodes).growth(arrivals=ARRIVALS, departures=DEPARTURES)

    async def _reused(self, pods: Pods, turn: int) -> tuple[float, ...]:
        """Have a Pod of an even node depart and one of an odd node arrive, again and again, while others wait."""
        rng = random.Random(turn)  # noqa: S311  the same each time
        even, odd = range(0, self._size.nodes, 2), range(1, self._size.nodes, 2)
        numbers = iter(range(1_000_000, 2_000_000))
        for pod in pods.waiting(even):
            pods.depart(pod.number)
        for _ in range(WAITING_PER_NODE * self._size.nodes):
            pods.arrive(next(numbers), rng.choice(odd))
        if not await wait_until(lambda: pods.held == self._size.for_pods):
            raise RuntimeError(f"Pods wait, and {pods.held} of {self._size.for_pods} addresses are in use")
        pods.served_at.clear()
        pods.freed_at.clear()
        for _ in range(round(REUSE_PER_SECOND * self._size.reuse_seconds)):
            if not pods.waiting(odd):
                raise RuntimeError("no Pod waits for an address, although the subnet is full")
            pods.depart(rng.choice(pods.with_address(even)).number)
            pods.arrive(next(numbers), rng.choice(odd))
            await asyncio.sleep(rng.expovariate(REUSE_PER_SECOND))
        return await self._all_reused(pods)

    async def _all_reused(self, pods: Pods) -> tuple[float, ...]:
        """Wait until as many addresses were assigned as freed; those left after the timeout count as until then."""
        await wait_until(lambda: len(pods.served_at) >= len(pods.freed_at), seconds=REUSE_TIMEOUT)
        return tuple(delays(pods.freed_at, pods.served_at, now=asyncio.get_running_loop().time()))

    def _oscillations(self) -> int:
        with yield_site(self._server(), self._size, scarcity=GRADED) as place:
            return place.crowd.run(self._steady(place))

    async def _steady(self, place: Site) -> int:
        async with running_agents(place, self._size, seed=0) as cluster:
            async with asyncio.timeout(PHASE_TIMEOUT):
                return await self._replaced(cluster)

    async def _replaced(self, cluster: YieldCluster) -> int:
        size, states = self._size, cluster.published
        population = Population(0, size.nodes)
        many = round(STEADY_SHARE * size.for_pods)
        await cluster.pods.play(population.arrivals(many, per_second=ARRIVALS), closed=True)
        if cluster.pods.held_at_first_refusal is not None:
            raise RuntimeError(f"an ADD failed before {STEADY_SHARE:.0%} of the addresses were in use")
        if not states:
            raise RuntimeError("no state of the ClusterSubnet was seen")
        begun = len(states) - 1
        replacement = population.replacement(per_second=STEADY_PER_SECOND, seconds=size.steady_seconds)
        await cluster.pods.play(replacement, closed=False)
        return reversals(states[begun:])

"""Model of Azure's scheme, the baseline of the yield benchmark: a fixed batch, and grants of all or nothing.

podpool's ledger always grants what it has, so that this side cannot run on the real parts. Each node requests its
target (`core.scaling`) when a Pod arrives or departs; the request is granted as a whole or not at all, at once. As in
Azure's CNS, an ADD does not wait and there is no cooldown. Answers without delay favour the baseline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.yield_load import PRIMARIES
from podpool.core.scaling import target
from podpool.core.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.yield_load import PodEvent, Size


def pods_at_first_refusal(events: Iterable[PodEvent], size: Size) -> int:
    """Return how many Pods have an address when a Pod arrives on a node that has none for it."""
    subnet = AllOrNothing(size.for_pods, nodes=size.nodes)
    for event in events:
        if not (subnet.arrive(event.node) if event.arrives else subnet.depart(event.node)):
            break
    return sum(subnet.pods)


class AllOrNothing:
    """A subnet with a fixed batch, and its nodes."""

    def __init__(self, free: int, *, nodes: int) -> None:
        self._settings = Settings()
        self.free = free
        self.held = [0] * nodes
        self.pods = [0] * nodes
        for node in range(nodes):
            self._request(node, demand=0)

    def arrive(self, node: int) -> bool:
        """Start a Pod; return whether there is an address for it."""
        self._request(node, demand=self.pods[node] + 1)
        served = self.pods[node] < self.held[node]
        self.pods[node] += served
        return served

    def depart(self, node: int) -> bool:
        """End a Pod; the node returns what it does not need."""
        self.pods[node] -= 1
        self._request(node, demand=self.pods[node])
        return True

    def _request(self, node: int, *, demand: int) -> None:
        settings = self._settings
        wanted = target(demand=demand, scaler=settings.scaler, primaries=PRIMARIES, maximum=settings.node_maximum)
        more = wanted - self.held[node]
        if more <= self.free:
            self.held[node] += more
            self.free -= more

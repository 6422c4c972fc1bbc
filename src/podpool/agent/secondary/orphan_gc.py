"""Addresses that another hand gave, and whose Pods are gone: nobody will send a DEL for them.

Unassigned when two looks at least a minute apart find no such Pod on this node, or that it has asked since, or its
interface has an address of ours: a Pod has one sandbox at a time.
"""

from collections.abc import Callable, Collection, Iterable

from podpool.agent.lost_grant_gc import APART
from podpool.agent.records import SliceAddress
from podpool.agent.secondary.slices import Slices
from podpool.api.builtin import Pod

Pods = Callable[[], Iterable[Pod] | None]
"""The Pods of this node; None while they are not known."""


class SliceOrphanGC:
    """Remembers since when an address has had no Pod."""

    def __init__(self) -> None:
        self._since: dict[SliceAddress, float] = {}

    def look(
        self, slices: Slices, pods: Iterable[Pod], asked: Collection[str], *, now: float
    ) -> tuple[SliceAddress, ...]:
        """Look once, with the Pods that have asked in vain; gives what is to be released."""
        living = {pod.key for pod in pods if pod.needs_address and pod.key not in asked}
        served = {(by.podref, by.owner.ifname) for _, by in slices.tenants() if not by.found}
        gone = [
            slot
            for slot, by in slices.tenants()
            if by.found and (by.podref not in living or (by.podref, by.owner.ifname) in served)
        ]
        self._since = {slot: self._since.get(slot, now) for slot in gone}
        return tuple(slot for slot, since in self._since.items() if since + APART <= now)

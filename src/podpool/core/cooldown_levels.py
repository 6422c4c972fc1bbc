"""Cooldown levels: how long an address that a Pod used is not assigned to another Pod.

| level | a subnet | a slice |
|---|---|---|
| roomy | has its configured batch | has more than a quarter of its addresses unassigned |
| filling | has a smaller batch | has a quarter or less |
| exhausted | is exhausted | has less than one in twenty |

The roomy level is longer than the kernel keeps connections without an answer (120 s for SYN_SENT). A level is a
preference: before it has passed, an address is assigned or granted only if there is no other, and never before the
shortest level has passed. So a long roomy level refuses no Pod.

A node needs no additional addresses for a long roomy level: it keeps an address after use, and counts it in its demand,
for the filling level at most. What it releases then takes the remaining time along.
"""

import msgspec

MAX_COOLDOWN = 86_400.0
"""Seconds; more is an error of what configured or published it."""


class CooldownInForce(msgspec.Struct, frozen=True):
    """The times that a node applies, in seconds; each is at most the one before."""

    level: float
    """Before that, an address is assigned only if there is no other."""
    retention: float
    """Until then, an address counts as demand and is not released."""
    shortest: float
    """Before that, an address is not assigned, even if there is no other."""


class CooldownLevels(msgspec.Struct, frozen=True):
    """The three levels in seconds, not increasing."""

    roomy: float
    filling: float
    exhausted: float

    def of_subnet(self, *, exhausted: bool, configured_batch: bool) -> float:
        """Return the level of a subnet."""
        if exhausted:
            return self.exhausted
        return self.roomy if configured_batch else self.filling

    def of_slice(self, *, unassigned: int, size: int) -> float:
        """Return the level of a slice with so many addresses that can be assigned."""
        if 20 * unassigned < size:
            return self.exhausted
        return self.roomy if 4 * unassigned > size else self.filling

    def in_force(self, level: float, *, shortest: float | None = None) -> CooldownInForce:
        """Return what a node applies at its subnet's level; `shortest` is the subnet's own, if it is known."""
        shortest = self.exhausted if shortest is None else shortest
        retention = min(level, max(self.filling, shortest))
        return CooldownInForce(level=level, retention=retention, shortest=min(retention, shortest))

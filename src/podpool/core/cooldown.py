"""Cooldown levels: how long an address that a Pod used is not assigned to another Pod.

| level | a subnet | a slice |
|---|---|---|
| roomy | has its configured batch | has more than a quarter of its addresses unassigned |
| filling | has a smaller batch | has a quarter or less |
| exhausted | is exhausted | has less than one in twenty |

The roomy level is longer than the kernel keeps connections without an answer (120 s for SYN_SENT). A level is a
preference: while another address is available, none is assigned or granted before. An address that has cooled down for
the shortest level may be assigned when there is no other, so that a long cooldown refuses no Pod.

So a node needs no additional addresses for a long cooldown: it keeps an address after use, and counts it in its demand,
for the filling level at most. What it releases then takes the remaining time along.
"""

import msgspec

MAX_COOLDOWN = 86_400.0
"""Seconds; more is an error of what configured or published it."""


class CooldownInForce(msgspec.Struct, frozen=True):
    """The times that a node applies, in seconds; each is at most the one before."""

    level: float
    """An address is assigned after so long if there is another that has been free for longer."""
    retention: float
    """So long it counts as demand and is not released."""
    shortest: float
    """Never before."""


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

    def in_force(self, level: float) -> CooldownInForce:
        """Return what a node applies at a level; its subnet may have levels other than these."""
        retention = min(level, self.filling)
        return CooldownInForce(level=level, retention=retention, shortest=min(retention, self.exhausted))

"""Mass loss: so many nodes are gone at once that their addresses are not released without a confirmation.

An emptied API server, or a tool that deleted the wrong Nodes, looks like the loss of a data centre. But the Pods still
run, and their addresses must not be given to others.
"""

import msgspec

from podpool.core.settings import Settings


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a mass-loss breaker opens, and for how long."""

    max_lost_percent: int = 30
    """Opens when more than this share of the nodes is lost,"""
    min_lost: int = 5
    """and at least this many,"""
    window_seconds: float = Settings().node_gc_delay
    """within this time."""
    hold_seconds: float = 86_400.0
    """Closes after this time without a confirmation."""
    confirmed_seconds: float = 3_600.0
    """Stays closed for this time after a confirmation."""

    def is_mass_loss(self, *, lost: int, known: int) -> bool:
        """Return whether too many of the known nodes are lost within the window."""
        return lost >= self.min_lost and 100 * lost > self.max_lost_percent * known

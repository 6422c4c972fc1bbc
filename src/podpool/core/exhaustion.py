"""Exhaustion of a subnet, with hysteresis.

A subnet becomes exhausted above the upper threshold and clears below the lower one. That alone oscillates if the nodes,
once it clears, request more than the distance between the two. So it clears only when the projected reservation of all
nodes, in every cluster on the subnet, fits below the upper threshold.
"""


def is_exhausted(
    *,
    before: bool,
    reserved: int,
    projected: int,
    capacity: int,
    upper: int,
    lower: int,
) -> bool:
    """Decide from the reserved addresses and those projected after clearing; thresholds in hundredths of capacity."""
    if not before:
        return 100 * reserved > upper * capacity
    return not (100 * reserved < lower * capacity and 100 * projected <= upper * capacity)

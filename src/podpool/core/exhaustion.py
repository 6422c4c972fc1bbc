"""When a subnet counts as exhausted, and when it is all clear.

Two thresholds keep it from toggling: above the upper one it becomes exhausted, below the lower one it is all clear.
That alone still oscillates when the nodes, told that all is clear, ask for more than the distance between the two.
So the all-clear also waits until what all nodes would then hold, in every cluster on the subnet, stays below the upper
one.
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
    """Decide from what is reserved and what would be after an all-clear; thresholds in hundredths of the capacity."""
    if not before:
        return 100 * reserved > upper * capacity
    return not (100 * reserved < lower * capacity and 100 * projected <= upper * capacity)

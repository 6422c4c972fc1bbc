"""How long to wait after a failure: doubled each time up to a limit, and never the same for two who failed together."""

import random

_MANY = 32  # doublings; enough for any limit


def backoff(failures: int, *, rng: random.Random, base: float, most: float) -> float:
    """Draw the seconds to wait after so many failures in a row, between half of the full wait and all of it."""
    full = min(most, base * 2.0 ** min(max(failures - 1, 0), _MANY))
    return full * rng.uniform(0.5, 1.0)

"""Exponential back-off with jitter.

Two clients that failed together do not retry together: a delay is drawn between half of its full length and all of it.
"""

import asyncio
import random

_MAX_DOUBLINGS = 32  # enough for any maximum


def backoff_delay(failures: int, *, rng: random.Random, base: float, maximum: float) -> float:
    """Return the seconds to wait after so many consecutive failures: `base`, doubled each time up to `maximum`."""
    full = min(maximum, base * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))
    return full * rng.uniform(0.5, 1.0)


class Backoff:
    """The consecutive failures of one operation, and the delay that follows each."""

    def __init__(self, *, rng: random.Random, base: float, maximum: float) -> None:
        self.failures = 0
        self._rng = rng
        self._base = base
        self._maximum = maximum

    def fail(self, *, at_least: float = 0.0) -> float:
        """Count a failure and return the seconds to wait; `at_least` is what a server asked for (Retry-After)."""
        self.failures += 1
        delay = backoff_delay(self.failures, rng=self._rng, base=self._base, maximum=self._maximum)
        return max(at_least, delay)

    def reset(self) -> None:
        """Forget the failures: the operation succeeded."""
        self.failures = 0

    async def wait(self, *, at_least: float = 0.0) -> None:
        """Count a failure and wait."""
        await asyncio.sleep(self.fail(at_least=at_least))

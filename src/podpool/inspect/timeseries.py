"""How a subnet was, over time, in bounded memory: when there are too many samples every second one is forgotten.

So the past reaches back to the first look, evenly, however long ago that is, and the newest sample is always there.
"""

import msgspec

from podpool.inspect.forecast import Forecast, forecast
from podpool.inspect.view_models import SubnetView

MOST = 720
RECENT = 240
"""Samples that a look ahead is made from."""


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subnet at a moment, as a row."""

    at: float
    capacity: int
    assigned: int
    primaries: int
    others: int
    resting: int
    idle: int
    batch: int
    exhausted: bool
    waiting: int


class Series:
    """The samples of one subnet."""

    def __init__(self, *, step: float, most: int = MOST) -> None:
        self.samples: list[Sample] = []
        self._step = step
        self._most = most
        self._next = float("-inf")
        self._occupied: list[tuple[float, float]] = []
        self._limit = 0

    def take(self, view: SubnetView, *, at: float) -> Sample | None:
        """Take a sample if it is time for one."""
        if self.samples and at < self.samples[-1].at:  # the clock was set back: the past is told in another time
            self.samples, self._occupied, self._next = [], [], at
        if at < self._next:
            return None
        self._next = at + self._step
        sample = Sample(
            at=at,
            capacity=view.capacity,
            assigned=view.assigned,
            primaries=view.primaries,
            others=view.others,
            resting=view.resting,
            idle=view.idle,
            batch=view.batch,
            exhausted=view.exhausted,
            waiting=view.pods_waiting,
        )
        self.samples.append(sample)
        self._occupied.append((at, view.occupied))
        self._limit = view.limit
        if len(self.samples) > self._most:
            self.samples, self._occupied = self.samples[::-2][::-1], self._occupied[::-2][::-1]
            self._step *= 2
        return sample

    def outlook(self) -> Forecast:
        """Look ahead from what was seen."""
        known = self._occupied[-RECENT:] if self._limit else ()  # how large it is, only a ledger knows
        return forecast(known, capacity=self._limit)

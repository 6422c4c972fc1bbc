"""Samples of a subnet over time in bounded memory.

When there are too many samples, every second one is dropped and the interval doubles. The series therefore reaches back
to the first sample, evenly, and always contains the newest.
"""

import msgspec

from podpool.inspect.forecast import Forecast, forecast
from podpool.inspect.view_models import SubnetView

MAX_SAMPLES = 720
FORECAST_SAMPLES = 240
"""Samples that a forecast uses."""


class SubnetSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subnet at one time, encoded as an array."""

    at: float
    capacity: int
    assigned: int
    primaries: int
    other_clusters: int
    cooling_down: int
    idle: int
    batch: int
    exhausted: bool
    waiting: int


class SubnetTimeSeries:
    """Samples of one subnet."""

    def __init__(self, *, step: float, most: int = MAX_SAMPLES) -> None:
        self.samples: list[SubnetSample] = []
        self._step = step
        self._most = most
        self._next = float("-inf")
        self._occupied: list[tuple[float, float]] = []
        self._limit = 0

    def take(self, view: SubnetView, *, at: float) -> SubnetSample | None:
        """Append a sample if the interval has passed, and return it."""
        if self.samples and at < self.samples[-1].at:  # the clock was set back: the past is message in another time
            self.samples, self._occupied, self._next = [], [], at
        if at < self._next:
            return None
        self._next = at + self._step
        sample = SubnetSample(
            at=at,
            capacity=view.capacity,
            assigned=view.assigned,
            primaries=view.primaries,
            other_clusters=view.other_clusters,
            cooling_down=view.cooling_down,
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

    def trend(self) -> Forecast:
        """Look ahead from what was seen."""
        known = self._occupied[-FORECAST_SAMPLES:] if self._limit else ()  # how large it is, only a ledger knows
        return forecast(known, capacity=self._limit)

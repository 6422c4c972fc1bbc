"""Forecast of when a subnet is full: a random walk with drift, with its uncertainty.

The input is what no node could release (`SubnetView.occupied`), because idle addresses move to waiting Pods before
any Pod is refused. From n equal steps with mean change d and standard deviation s, the occupation after h more steps
is `now + d*h`, with an uncertainty of `z * s * sqrt(h * (1 + h/n))`: the noise of the walk, and of the estimated
drift. The edges of that cone give the earliest and the latest time; z = 1.2816 leaves 10 % on either side. Nothing is
forecast beyond a multiple of the observed time. When occupation did not rise recently, only the recent part counts.

Samples are kept in bounded memory: when there are too many, every second one is dropped and the interval doubles. The
series therefore reaches back to the first sample, evenly, and always contains the newest.
"""

import enum
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from podpool.inspect.view_models import SubnetView

MAX_STEPS = 60
"""Observations are resampled to at most this many equal steps."""
MIN_STEPS = 12
"""Fewer steps give no forecast."""
MIN_OBSERVED = 60.0
"""Seconds that must have been observed."""
RECENT_SHARE = 0.25
"""Share of the observed time in which occupation must have risen for the rest to count."""
MAX_HORIZON = 20.0
"""Forecast horizon as a multiple of the observed time."""
Z = 1.2816
MAX_SAMPLES = 720
FORECAST_SAMPLES = 240
"""Samples that a forecast uses."""


class Trend(enum.Enum):
    """Direction of the occupation."""

    UNKNOWN = "not enough data"
    FULL = "full"
    STEADY = "not filling up"
    FILLING = "filling up"


class Forecast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds from now; None where the cone does not reach capacity within the horizon."""

    trend: Trend
    likely: float | None = None
    early: float | None = None
    """Full by then with a probability of 10 %."""
    late: float | None = None
    """Full by then with a probability of 90 %."""
    seen: float = 0.0
    """Seconds of observation."""


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
        if self.samples and at < self.samples[-1].at:  # the clock was set back: earlier samples are in the future
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
        """Return the forecast from the latest samples."""
        known = self._occupied[-FORECAST_SAMPLES:] if self._limit else ()  # only a ledger knows the capacity
        return forecast(known, capacity=self._limit)


def forecast(samples: Sequence[tuple[float, float]], *, capacity: float) -> Forecast:
    """Forecast from samples of (time, occupation) in order; the last one is now."""
    if not samples:
        return Forecast(trend=Trend.UNKNOWN)
    free = capacity - samples[-1][1]
    seen = samples[-1][0] - samples[0][0]
    if free <= 0:
        return Forecast(trend=Trend.FULL, likely=0.0, early=0.0, late=0.0, seen=seen)
    if seen < MIN_OBSERVED or len(samples) <= MIN_STEPS:
        return Forecast(trend=Trend.UNKNOWN, seen=seen)
    step = seen / min(MAX_STEPS, len(samples) - 1)
    changes = _relevant_changes(_changes(samples, min(MAX_STEPS, len(samples) - 1)), step=step)
    count = len(changes)
    drift = sum(changes) / count
    spread = math.sqrt(sum((each - drift) ** 2 for each in changes) / (count - 1))

    def edge(z: float) -> float | None:
        def short(steps: float) -> float:
            return free - drift * steps - z * spread * math.sqrt(steps * (1 + steps / count))

        steps = _first_zero(short, upto=MAX_HORIZON * count)
        return None if steps is None else steps * step

    likely, early, late = edge(0.0), edge(Z), edge(-Z)
    trend = Trend.STEADY if likely is None else Trend.FILLING
    return Forecast(trend=trend, likely=likely, early=early, late=late, seen=seen)


def _relevant_changes(changes: list[float], *, step: float) -> list[float]:
    """Return the changes that count: all, or only the recent ones when occupation did not rise recently."""
    lately = max(MIN_STEPS, int(MIN_OBSERVED / step), math.ceil(len(changes) * RECENT_SHARE))
    return changes if sum(changes[-lately:]) > 0 else changes[-lately:]


def _changes(samples: Sequence[tuple[float, float]], count: int) -> list[float]:
    """Resample to equal steps by linear interpolation and return the differences."""
    begin, end = samples[0][0], samples[-1][0]
    values, at = [], 0
    for number in range(count):
        mark = begin + (end - begin) * number / count
        while samples[at + 1][0] <= mark:
            at += 1
        (earlier, low), (later, high) = samples[at], samples[at + 1]
        values.append(low + (high - low) * (mark - earlier) / (later - earlier))
    values.append(samples[-1][1])
    return [after - before for before, after in pairwise(values)]


def _first_zero(short: Callable[[float], float], *, upto: float) -> float | None:
    """Return the first zero of a function: bracket with growing steps, then bisect."""
    low, high = 0.0, min(0.01, upto)
    while short(high) > 0:
        if high >= upto:
            return None
        low, high = high, min(high * 1.05, upto)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if short(middle) > 0 else (low, middle)
    return high

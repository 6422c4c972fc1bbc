"""When a subnet runs full: a random walk with drift through what was seen, and how sure that is.

What is followed is what no node could give back (`SubnetView.occupied`), because idle addresses flow to where Pods are
before anybody is refused. From equal steps with mean change d and standard deviation s, n of them, the occupation
after h more steps is `now + d*h`, give or take `z * s * sqrt(h * (1 + h/n))`: the walk's own noise, and what n steps
leave unknown of the drift. The edges of that cone say from when on the subnet may be full, and by when it surely is;
z = 1.2816 leaves one chance in ten on either side. Nothing is told beyond a few times what was seen; and when nothing
was gained lately, only that time counts.
"""

import enum
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

STEPS = 60
"""What was seen is read in so many equal steps at most,"""
FEWEST = 12
"""and in so many at least."""
SHORTEST = 60.0
"""Seconds that must have been seen."""
LATELY = 0.25
"""The part of it, though never less than that, which must have seen a rise for the rest to count."""
REACH = 20.0
"""How many times the time seen may be looked ahead."""
Z = 1.2816


class Outlook(enum.Enum):
    """What can be said."""

    UNKNOWN = "not enough data"
    FULL = "full"
    STEADY = "not filling up"
    FILLING = "filling up"


class Forecast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds from now; None where the cone does not reach within what can be said."""

    outlook: Outlook
    likely: float | None = None
    early: float | None = None
    """One chance in ten that it is full by then."""
    late: float | None = None
    """Nine in ten."""
    seen: float = 0.0
    """Seconds that this was made from."""


def forecast(samples: Sequence[tuple[float, float]], *, capacity: float) -> Forecast:
    """Look ahead from samples of time and occupation, in order; the last is now."""
    if not samples:
        return Forecast(outlook=Outlook.UNKNOWN)
    room = capacity - samples[-1][1]
    seen = samples[-1][0] - samples[0][0]
    if room <= 0:
        return Forecast(outlook=Outlook.FULL, likely=0.0, early=0.0, late=0.0, seen=seen)
    if seen < SHORTEST or len(samples) <= FEWEST:
        return Forecast(outlook=Outlook.UNKNOWN, seen=seen)
    step = seen / min(STEPS, len(samples) - 1)
    changes = _telling(_changes(samples, min(STEPS, len(samples) - 1)), step=step)
    count = len(changes)
    drift = sum(changes) / count
    spread = math.sqrt(sum((each - drift) ** 2 for each in changes) / (count - 1))

    def edge(z: float) -> float | None:
        def short(steps: float) -> float:
            return room - drift * steps - z * spread * math.sqrt(steps * (1 + steps / count))

        steps = _first_zero(short, upto=REACH * count)
        return None if steps is None else steps * step

    likely, early, late = edge(0.0), edge(Z), edge(-Z)
    outlook = Outlook.STEADY if likely is None else Outlook.FILLING
    return Forecast(outlook=outlook, likely=likely, early=early, late=late, seen=seen)


def _telling(changes: list[float], *, step: float) -> list[float]:
    """Leave out what is over: where nothing was gained lately, how it rose before tells nothing of what comes."""
    lately = max(FEWEST, int(SHORTEST / step), math.ceil(len(changes) * LATELY))
    return changes if sum(changes[-lately:]) > 0 else changes[-lately:]


def _changes(samples: Sequence[tuple[float, float]], count: int) -> list[float]:
    """Read the occupation at equal distances, between two samples on the line between them; take the differences."""
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
    """Find where what is missing first becomes nothing: looked for at growing distances, then halved down to it."""
    low, high = 0.0, min(0.01, upto)
    while short(high) > 0:
        if high >= upto:
            return None
        low, high = high, min(high * 1.05, upto)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if short(middle) > 0 else (low, middle)
    return high

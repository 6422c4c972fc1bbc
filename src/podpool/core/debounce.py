"""When a node may ask: more at once, less only when the wish for less has lasted.

The target has no dead band: one Pod that comes and goes can move a whole batch each time. So growth waits only for a
moment of quiet (many Pods bound, one request), and shrinking waits until every target of the hold was lower.

What must hold: a demand that flaps causes no more than one request per hold, over any length of time, beside the two of
a single flap. Each request costs a hold; growth may borrow it, shrinking must have paid.
"""

import math

import msgspec


class DebounceTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds."""

    quiet: float
    """Growth waits until the target has not changed for this long,"""
    at_most: float
    """but no longer than this."""
    hold: float
    """Shrinking waits for this long; 0 while the subnet is exhausted."""
    spread: float = 0.0
    """While exhausted: this node's place in the queue, so that not all nodes give back at one moment."""


class DebounceState(msgspec.Struct, frozen=True, kw_only=True):
    """What must be remembered between two looks."""

    seen: int | None = None
    """The target at the last look,"""
    seen_since: float = -math.inf
    """and since when it is that."""
    above_since: float | None = None
    """Since when the target has been above the request,"""
    below_since: float | None = None
    """or below it,"""
    peak: int = 0
    """and the highest target since then."""
    paid_until: float = -math.inf


class DebounceResult(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now, and when to look again."""

    pace: DebounceState
    request: int | None = None
    again_at: float | None = None


def debounce(pace: DebounceState, *, now: float, wanted: int, requested: int, rhythm: DebounceTiming) -> DebounceResult:
    """Decide whether the wanted number is asked for now."""
    if wanted != pace.seen:
        pace = msgspec.structs.replace(pace, seen=wanted, seen_since=now)
    if wanted > requested:
        return _grow(pace, now=now, wanted=wanted, rhythm=rhythm)
    if wanted < requested:
        return _shrink(pace, now=now, wanted=wanted, rhythm=rhythm)
    return DebounceResult(pace=msgspec.structs.replace(pace, above_since=None, below_since=None))


def _grow(pace: DebounceState, *, now: float, wanted: int, rhythm: DebounceTiming) -> DebounceResult:
    above_since = now if pace.above_since is None else pace.above_since
    due = min(pace.seen_since + rhythm.quiet, above_since + rhythm.at_most)
    if now < due:
        waiting = msgspec.structs.replace(pace, above_since=above_since, below_since=None)
        return DebounceResult(pace=waiting, again_at=due)
    return _ask(pace, wanted, now=now, hold=rhythm.hold)


def _shrink(pace: DebounceState, *, now: float, wanted: int, rhythm: DebounceTiming) -> DebounceResult:
    below_since, peak = (now, wanted) if pace.below_since is None else (pace.below_since, max(pace.peak, wanted))
    if rhythm.hold:
        due = max(below_since + rhythm.hold, pace.paid_until)
    else:
        due, peak = below_since + rhythm.spread, wanted
    if now < due:
        waiting = msgspec.structs.replace(pace, above_since=None, below_since=below_since, peak=peak)
        return DebounceResult(pace=waiting, again_at=due)
    return _ask(pace, peak, now=now, hold=rhythm.hold)


def _ask(pace: DebounceState, request: int, *, now: float, hold: float) -> DebounceResult:
    # two holds at most, or a node that grew in many steps would keep its peak for as many
    paid_until = min(max(pace.paid_until, now) + hold, now + 2 * hold)
    asked = msgspec.structs.replace(pace, above_since=None, below_since=None, paid_until=paid_until)
    return DebounceResult(pace=asked, request=request)

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
    max_delay: float
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

    state: DebounceState
    request: int | None = None
    next_at: float | None = None


def debounce(
    state: DebounceState, *, now: float, wanted: int, requested: int, timing: DebounceTiming
) -> DebounceResult:
    """Decide whether the wanted number is asked for now."""
    if wanted != state.seen:
        state = msgspec.structs.replace(state, seen=wanted, seen_since=now)
    if wanted > requested:
        return _grow(state, now=now, wanted=wanted, timing=timing)
    if wanted < requested:
        return _shrink(state, now=now, wanted=wanted, timing=timing)
    return DebounceResult(state=msgspec.structs.replace(state, above_since=None, below_since=None))


def _grow(state: DebounceState, *, now: float, wanted: int, timing: DebounceTiming) -> DebounceResult:
    above_since = now if state.above_since is None else state.above_since
    due = min(state.seen_since + timing.quiet, above_since + timing.max_delay)
    if now < due:
        waiting = msgspec.structs.replace(state, above_since=above_since, below_since=None)
        return DebounceResult(state=waiting, next_at=due)
    return _ask(state, wanted, now=now, hold=timing.hold)


def _shrink(state: DebounceState, *, now: float, wanted: int, timing: DebounceTiming) -> DebounceResult:
    below_since, peak = (now, wanted) if state.below_since is None else (state.below_since, max(state.peak, wanted))
    if timing.hold:
        due = max(below_since + timing.hold, state.paid_until)
    else:
        due, peak = below_since + timing.spread, wanted
    if now < due:
        waiting = msgspec.structs.replace(state, above_since=None, below_since=below_since, peak=peak)
        return DebounceResult(state=waiting, next_at=due)
    return _ask(state, peak, now=now, hold=timing.hold)


def _ask(state: DebounceState, request: int, *, now: float, hold: float) -> DebounceResult:
    # two holds at most, or a node that grew in many steps would keep its peak for as many
    paid_until = min(max(state.paid_until, now) + hold, now + 2 * hold)
    asked = msgspec.structs.replace(state, above_since=None, below_since=None, paid_until=paid_until)
    return DebounceResult(state=asked, request=request)

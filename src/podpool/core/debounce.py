"""Debounce of a node's request: growth at once, shrinking only when the lower target has held.

The target has no dead band: one Pod that starts and stops can move a whole batch each time. So growth waits only for a
short quiet period (many Pods bound, one request), and shrinking until every target during the hold was lower.

Invariant: flapping demand causes at most one request per hold over any period, besides the two of a single flap. Each
request costs one hold of credit: growth may go into debt, shrinking waits until the debt is paid.
"""

import math

import msgspec


class DebounceTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Delays in seconds."""

    quiet: float
    """Growth waits until the target has not changed for this long,"""
    max_delay: float
    """but no longer than this."""
    hold: float
    """Shrinking waits for this long; 0 while the subnet is exhausted."""
    spread: float = 0.0
    """This node's own delay of shrinking: a change of the subnet reaches all nodes at once."""


class DebounceState(msgspec.Struct, frozen=True, kw_only=True):
    """State between two calls of `debounce`."""

    target: int | None = None
    """The last target,"""
    target_since: float = -math.inf
    """and since when it has not changed."""
    above_since: float | None = None
    """Since when the target has been above the request,"""
    below_since: float | None = None
    """or below it,"""
    peak: int = 0
    """and the highest target since then."""
    paid_until: float = -math.inf


class DebounceResult(msgspec.Struct, frozen=True, kw_only=True):
    """The request to send now, if any, and when to call again."""

    state: DebounceState
    request: int | None = None
    next_at: float | None = None


def debounce(
    state: DebounceState, *, now: float, wanted: int, requested: int, timing: DebounceTiming
) -> DebounceResult:
    """Decide whether the wanted count is requested now."""
    if wanted != state.target:
        state = msgspec.structs.replace(state, target=wanted, target_since=now)
    if wanted > requested:
        return _grow(state, now=now, wanted=wanted, timing=timing)
    if wanted < requested:
        return _shrink(state, now=now, wanted=wanted, timing=timing)
    return DebounceResult(state=msgspec.structs.replace(state, above_since=None, below_since=None))


def _grow(state: DebounceState, *, now: float, wanted: int, timing: DebounceTiming) -> DebounceResult:
    above_since = now if state.above_since is None else state.above_since
    due = min(state.target_since + timing.quiet, above_since + timing.max_delay)
    if now < due:
        waiting = msgspec.structs.replace(state, above_since=above_since, below_since=None)
        return DebounceResult(state=waiting, next_at=due)
    return _request(state, wanted, now=now, hold=timing.hold)


def _shrink(state: DebounceState, *, now: float, wanted: int, timing: DebounceTiming) -> DebounceResult:
    below_since, peak = (now, wanted) if state.below_since is None else (state.below_since, max(state.peak, wanted))
    if timing.hold:
        due = max(below_since + timing.hold + timing.spread, state.paid_until)
    else:
        due, peak = below_since + timing.spread, wanted
    if now < due:
        waiting = msgspec.structs.replace(state, above_since=None, below_since=below_since, peak=peak)
        return DebounceResult(state=waiting, next_at=due)
    return _request(state, peak, now=now, hold=timing.hold)


def _request(state: DebounceState, count: int, *, now: float, hold: float) -> DebounceResult:
    # two holds of debt at most: a node that grew in many steps must not keep its peak for as many holds
    paid_until = min(max(state.paid_until, now) + hold, now + 2 * hold)
    sent = msgspec.structs.replace(state, above_since=None, below_since=None, paid_until=paid_until)
    return DebounceResult(state=sent, request=count)

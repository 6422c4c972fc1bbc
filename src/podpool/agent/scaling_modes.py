"""Three monitors, of which one is chosen: how many addresses a node asks for, from what is there.

| mode | demand | asks for |
|---|---|---|
| reactive | addresses in use or resting | a batch more or less, when too few or too many are free |
| idempotent | the same | what that demand needs, in one step |
| pods | and Pods that have no address yet | the same, before anybody needs it |

The first two are those that came before: kept to compare with, and for who moves over one step at a time. In them a
buffer of less than one address counts as one, or a node without a free address would never ask for the next. The first
makes no ADD wait, as it was.
"""

import enum

import msgspec

from podpool.core.scaling import Holding, Scaler, reactive_step, target


class Mode(enum.Enum):
    """Which monitor."""

    REACTIVE = "reactive"
    IDEMPOTENT = "idempotent"
    PODS = "pods"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the subnet asks of its nodes."""

    scaler: Scaler
    max_buffer: int
    """Free addresses as hundredths of the batch, from which on the reactive monitor gives some back."""
    exhausted: bool
    maximum: int


def wanted(mode: Mode, terms: Terms, holding: Holding, *, demand: int, primaries: int, releasable: int) -> int:
    """Count the addresses that a node should have."""
    if mode is Mode.PODS:
        return target(demand=demand, scaler=terms.scaler, primaries=primaries, maximum=terms.maximum)
    scaler = Scaler(terms.scaler.batch, max(terms.scaler.buffer, -(-100 // terms.scaler.batch)))
    if mode is Mode.IDEMPOTENT:
        return target(demand=demand, scaler=scaler, primaries=primaries, maximum=terms.maximum)
    return reactive_step(
        holding,
        scaler=scaler,
        max_buffer=max(terms.max_buffer, scaler.buffer + 100),
        maximum=terms.maximum,
        exhausted=False,  # the scaler says so already, where it has to
        releasable=releasable,
    ).request

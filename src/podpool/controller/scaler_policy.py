"""Which scaler, exhaustion state and cooldown are published to the agents on a subnet. Pure.

| scarcity | exhausted | batch and buffer | cooldown |
|---|---|---|---|
| graded | decided by the ledger for the subnet | the ledger's, the same for all clusters | the ledger's |
| exhaustion | by this controller's thresholds and the projected usage | its own, or single addresses | its own |
| off | never | this controller's | its own |

The number of nodes is published as a power of two, so that it is written when they double and not when one joins.

A valid spec.scaler of the ClusterSubnet overrides all of them. A scaler that the ledger did not choose is pinned: it is
sent to the ledger, which uses it in its projection.
"""

import msgspec

from podpool.api.azure import SubnetScaler
from podpool.controller.settings import ControllerSettings
from podpool.core.errors import InvalidInput
from podpool.core.exhaustion import is_exhausted
from podpool.core.quantities import hundredths, show_share
from podpool.core.scaling import Scaler
from podpool.core.settings import settings_from_strings
from podpool.ledger.messages import SubnetState


class PublishedSubnet(msgspec.Struct, frozen=True, kw_only=True):
    """What agents read about their subnet."""

    address_space: str
    """The subnet's first CIDR, which may have grown."""
    gateway: str
    scaler: Scaler
    exhausted: bool
    cooldown: float
    """The level in force, in seconds."""
    shortest_cooldown: float | None = None
    """The shortest level, in seconds; None if the ledger does not report it."""
    nodes: int
    """About how many nodes share the subnet."""
    pinned: Scaler | None = None
    """The scaler of this cluster's nodes, where it does not depend on the ledger."""
    scaler_error: str = ""
    """Why spec.scaler is not used."""


def published_subnet(
    state: SubnetState,
    override: SubnetScaler,
    *,
    exhausted_before: bool,
    nodes_before: int = 0,
    settings: ControllerSettings,
) -> PublishedSubnet:
    """Return what is published for a subnet, from the ledger's state and the override in the ClusterSubnet's spec."""
    default = state.scaler if settings.scarcity == "graded" else settings.common.scaler
    exhausted = _exhausted(state, before=exhausted_before, settings=settings)
    levels = settings.common.cooldown_levels
    level = levels.of_subnet(exhausted=exhausted, configured_batch=True)
    single_addresses = exhausted and settings.scarcity == "exhaustion"
    decided = PublishedSubnet(
        address_space=state.cidr,
        gateway=state.gateway or "",
        scaler=default.exhausted() if single_addresses else default,
        exhausted=exhausted,
        cooldown=state.cooldown if settings.scarcity == "graded" else level,
        shortest_cooldown=state.shortest_cooldown if settings.scarcity == "graded" else levels.exhausted,
        nodes=rounded_nodes(state.network_containers, before=nodes_before),
        pinned=None if settings.scarcity == "graded" else default,
    )
    if override == SubnetScaler():
        return decided
    try:
        scaler = _overridden(override, decided.scaler)
    except InvalidInput as error:
        return msgspec.structs.replace(decided, scaler_error=f"spec.scaler is not used: {error}")
    return msgspec.structs.replace(decided, scaler=scaler, pinned=scaler)


def rounded_nodes(count: int, *, before: int) -> int:
    """Return the power of two that is not below the count; the one before while it is less than four times as much."""
    rounded = 1 << max(count - 1, 0).bit_length()
    return before if rounded <= before < 4 * rounded else rounded


def _exhausted(state: SubnetState, *, before: bool, settings: ControllerSettings) -> bool:
    match settings.scarcity:
        case "off":
            return False
        case "graded":
            return state.exhausted
        case "exhaustion":
            return is_exhausted(
                before=before,
                reserved=state.reserved,
                projected=state.projected,
                capacity=state.capacity,
                upper=settings.common.upper_threshold,
                lower=settings.common.lower_threshold,
            )


def _overridden(override: SubnetScaler, decided: Scaler) -> Scaler:
    values = {"batch": str(decided.batch), "buffer": show_share(decided.buffer)}
    if override.batch is not None:
        values["batch"] = str(override.batch)
    if override.buffer is not None:
        if hundredths(override.buffer) is None:  # its digits could fill the memory
            raise InvalidInput("buffer", str(override.buffer), "is not a number from 0 to 4")
        values["buffer"] = format(override.buffer, "f")
    return settings_from_strings(values).scaler

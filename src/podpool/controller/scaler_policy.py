"""What agents on a subnet are told: batch and buffer, and whether it is exhausted. Pure.

| scarcity | exhausted | batch and buffer |
|---|---|---|
| graded | as the ledger decides for the subnet | the ledger's rung, for all clusters alike |
| exhaustion | by this controller's T and t, and what all clusters will hold | the controller's, or single addresses |
| off | never | the controller's |

A person's scaler in the ClusterSubnet's spec comes before all of them, if it keeps the rules. What a cluster insists on
is told to the ledger, which projects with it.
"""

import msgspec

from podpool.api.azure import SubnetScaler
from podpool.controller.settings import ControllerSettings
from podpool.core.errors import InvalidInput
from podpool.core.exhaustion import is_exhausted
from podpool.core.quantities import show_share
from podpool.core.scaling import Scaler
from podpool.core.settings import settings_from_strings
from podpool.ledger.messages import SubnetState


class PublishedSubnet(msgspec.Struct, frozen=True, kw_only=True):
    """What a subnet's nodes are told of it."""

    space: str
    """Its first CIDR, which may have grown,"""
    gateway: str
    """and the way out, if there is one."""

    scaler: Scaler
    """What they scale with."""
    exhausted: bool
    pinned: Scaler | None = None
    """What this cluster's nodes will scale with whatever the ledger decides."""
    refused: str = ""
    """Why a person's scaler is not used."""


def offer(
    state: SubnetState, override: SubnetScaler, *, exhausted_before: bool, settings: ControllerSettings
) -> PublishedSubnet:
    """Decide it from what the ledger says of a subnet, and what a person does."""
    usual = state.scaler if settings.scarcity == "graded" else settings.common.scaler
    exhausted = _exhausted(state, before=exhausted_before, settings=settings)
    saving = exhausted and settings.scarcity == "exhaustion"
    decided = PublishedSubnet(
        space=state.cidr,
        gateway=state.gateway or "",
        scaler=usual.exhausted() if saving else usual,
        exhausted=exhausted,
        pinned=None if settings.scarcity == "graded" else usual,
    )
    if override == SubnetScaler():
        return decided
    try:
        wanted = _overridden(override, decided.scaler)
    except InvalidInput as error:
        return msgspec.structs.replace(decided, refused=f"spec.scaler is not used: {error}")
    return msgspec.structs.replace(decided, scaler=wanted, pinned=wanted)


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
    words = {"batch": str(decided.batch), "buffer": show_share(decided.buffer)}
    if override.batch is not None:
        words["batch"] = str(override.batch)
    if override.buffer is not None:
        words["buffer"] = format(override.buffer, "f")
    return settings_from_strings(words).scaler

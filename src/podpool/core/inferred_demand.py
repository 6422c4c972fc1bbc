"""The demand behind a request, for agents that do not tell theirs.

A request bounds the demand that led to it, if one knows which scaler it answers: read with a smaller batch it seems to
want more, with a larger one less, and a batch that is decided from such readings chases itself for ever. So a request
counts for the scaler that it was read with, until it changes, or until the agent has had time enough to change it.
"""

import msgspec

from podpool.core.scaling import Scaler, demand_bound


class InferredDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and the scaler that it is taken to answer."""

    requested: int
    answers: Scaler
    offered: Scaler
    """The scaler that the agent is shown now,"""
    offered_at: float
    """and since when."""
    settled: bool = False
    """The request answers the scaler that is offered; until then the subnet must not offer more."""

    def demand(self, *, primaries: int) -> int:
        """Bound the demand behind it."""
        return demand_bound(requested=self.requested, scaler=self.answers, primaries=primaries)


def infer_demand(
    before: InferredDemand | None,
    *,
    now: float,
    requested: int,
    offered: Scaler,
    patience: float,
) -> InferredDemand:
    """Read a request anew; `patience` is the longest that an agent takes to answer a change."""
    if before is None:
        return InferredDemand(requested=requested, answers=offered, offered=offered, offered_at=now)
    changed = offered != before.offered
    offered_at = now if changed else before.offered_at
    settled = requested != before.requested or now - offered_at >= patience or (before.settled and not changed)
    answers = offered if settled else before.answers
    return InferredDemand(requested=requested, answers=answers, offered=offered, offered_at=offered_at, settled=settled)

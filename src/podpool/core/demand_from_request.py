"""Demand inferred from a request, for third-party agents that do not report it.

A request bounds the demand behind it only together with the scaler that produced it: interpreted with a smaller batch
it implies more demand, with a larger one less, and a batch decided on that would oscillate. So a request is interpreted
with the scaler under which it was first seen, until it changes or the agent has had time to change it.
"""

import msgspec

from podpool.core.scaling import Scaler, demand_bound


class InferredDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and the scaler with which it is interpreted."""

    requested: int
    interpreted_with: Scaler
    published: Scaler
    """The scaler that the agent sees now."""
    published_at: float
    settled: bool = False
    """The request belongs to the published scaler; until then the batch must not step up."""

    def demand(self, *, primaries: int) -> int:
        """Return the highest demand that explains the request."""
        return demand_bound(requested=self.requested, scaler=self.interpreted_with, primaries=primaries)


def infer_demand(
    before: InferredDemand | None,
    *,
    now: float,
    requested: int,
    published: Scaler,
    settle_time: float,
) -> InferredDemand:
    """Interpret the current request; `settle_time` is the longest that an agent takes to react to a new scaler."""
    if before is None:
        return InferredDemand(requested=requested, interpreted_with=published, published=published, published_at=now)
    changed = published != before.published
    published_at = now if changed else before.published_at
    settled = requested != before.requested or now - published_at >= settle_time or (before.settled and not changed)
    interpreted_with = published if settled else before.interpreted_with
    return InferredDemand(
        requested=requested,
        interpreted_with=interpreted_with,
        published=published,
        published_at=published_at,
        settled=settled,
    )

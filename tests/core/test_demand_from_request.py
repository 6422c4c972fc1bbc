"""Demand inferred from the requests of third-party agents."""

from podpool.core.demand_from_request import InferredDemand, infer_demand
from podpool.core.scaling import Scaler

WHOLE, SMALL = Scaler(16, 50), Scaler(4, 50)


def read(before: InferredDemand | None, requested: int, offered: Scaler, *, now: float) -> InferredDemand:
    return infer_demand(before, now=now, requested=requested, published=offered, settle_time=75.0)


def test_a_request_is_interpreted_with_the_scaler_that_produced_it() -> None:
    first = read(None, 32, WHOLE, now=0.0)
    assert 24 == first.demand(primaries=0)
    offered_less = read(first, 32, SMALL, now=10.0)
    assert 24 == offered_less.demand(primaries=0)  # read with the smaller batch it would seem to be 30
    assert not offered_less.settled
    answered = read(offered_less, 12, SMALL, now=20.0)
    assert 10 == answered.demand(primaries=0)
    assert answered.settled


def test_a_request_without_change_settles_after_the_settle_time() -> None:
    first = read(None, 32, WHOLE, now=0.0)
    assert not read(first, 32, WHOLE, now=74.9).settled
    patient = read(first, 32, WHOLE, now=75.0)
    assert patient.settled
    offered_less = read(patient, 32, SMALL, now=80.0)
    assert not read(offered_less, 32, SMALL, now=154.9).settled
    assert 30 == read(offered_less, 32, SMALL, now=155.0).demand(primaries=0)


def test_a_settled_request_stays_settled() -> None:
    settled = read(read(None, 16, WHOLE, now=0.0), 32, WHOLE, now=1.0)
    assert read(settled, 32, WHOLE, now=2.0).settled

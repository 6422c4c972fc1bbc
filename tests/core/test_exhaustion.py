"""When a subnet counts as exhausted."""

from hypothesis import given
from hypothesis import strategies as st

from podpool.core.batch_ladder import Load
from podpool.core.exhaustion import is_exhausted
from podpool.core.scaling import Scaler

NORMAL = Scaler(16, 50)


def test_it_becomes_exhausted_above_the_upper_threshold() -> None:
    decide = {
        reserved: is_exhausted(before=False, reserved=reserved, projected=0, capacity=1000, upper=90, lower=80)
        for reserved in (0, 800, 899, 900, 901, 1000)
    }
    assert [901, 1000] == [reserved for reserved, exhausted in decide.items() if exhausted]


def test_it_clears_below_the_lower_threshold() -> None:
    decide = {
        reserved: is_exhausted(before=True, reserved=reserved, projected=0, capacity=1000, upper=90, lower=80)
        for reserved in (0, 799, 800, 801, 900, 1000)
    }
    assert [0, 799] == [reserved for reserved, exhausted in decide.items() if not exhausted]


def test_it_clears_only_when_the_projection_fits() -> None:
    decide = {
        projected: is_exhausted(before=True, reserved=10, projected=projected, capacity=1000, upper=90, lower=80)
        for projected in (0, 900, 901)
    }
    assert {0: False, 900: False, 901: True} == decide


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), min_size=1, max_size=3),
    st.floats(0.3, 1.3),
    st.booleans(),
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
)
def test_constant_demand_toggles_at_most_twice(
    clusters: list[list[int]],
    fullness: float,
    exhausted: bool,
    delays: list[int],
) -> None:
    """Split over several clusters, whose nodes follow up to 5 polls late."""
    loads = [Load(demand) for cluster in clusters for demand in cluster]
    projected = sum(load.reservation(NORMAL) for load in loads)
    capacity = max(1, round(projected / fullness))
    history = [exhausted] * 6
    changes = 0
    for _ in range(60):
        in_force = [history[-1 - delays[at % len(delays)]] for at in range(len(loads))]
        reserved = sum(
            load.reservation(NORMAL.exhausted() if short else NORMAL)
            for load, short in zip(loads, in_force, strict=True)
        )
        history.append(
            is_exhausted(
                before=history[-1],
                reserved=min(reserved, capacity),
                projected=projected,
                capacity=capacity,
                upper=90,
                lower=80,
            )
        )
        changes += history[-1] != history[-2]
    assert changes <= 2
    assert 1 == len(set(history[-20:]))

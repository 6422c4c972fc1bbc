"""A history that shows a violation is made short."""

from hypothesis import given
from hypothesis import strategies as st

from podpool.sim.plan import STORMY, Event, draw
from podpool.sim.search import shorten


@given(st.sets(st.integers(0, 63), min_size=1, max_size=3))
def test_only_the_events_that_matter_are_left(needed: set[int]) -> None:
    events = [Event(float(number), "bind") for number in range(64)]
    short = shorten(events, lambda left: needed <= {int(event.at) for event in left}, runs=1000)
    assert sorted(needed) == [int(event.at) for event in short]


def test_a_plan_is_drawn_from_its_seed_alone() -> None:
    assert draw(3, STORMY) == draw(3, STORMY)
    assert draw(3, STORMY) != draw(4, STORMY)
    moments = [event.at for event in draw(3, STORMY)]
    assert moments == sorted(moments)

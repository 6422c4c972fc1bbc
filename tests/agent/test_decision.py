"""One look, one wish: the steps that Azure's second monitor is known to take, taken by ours."""

import pytest

from podpool.agent.inventory_report import InventoryReport
from podpool.agent.scaling import ScalingInputs, ScalingParameters, decide
from podpool.api.azure import AgentReport, NetworkConfigSpec
from podpool.core.debounce import DebounceState, DebounceTiming
from podpool.core.scaling import Scaler

AT_ONCE = DebounceTiming(quiet=0.0, at_most=0.0, hold=0.0)


def view(*, demand: int, requested: int, named: int) -> ScalingInputs:
    """A node without primaries, whose Pods all have addresses, and which holds what it asked for."""
    held = max(requested + named, demand)
    names = tuple(f"named-{number}" for number in range(named))
    return ScalingInputs(
        spec=NetworkConfigSpec(requested=requested, released=names),
        reported=AgentReport(),
        terms=ScalingParameters(scaler=Scaler(16, 50), max_buffer=150, exhausted=False, maximum=250),
        primaries=0,
        listed=held,
        named=names,
        releasable=tuple(f"free-{number}" for number in range(held - named - demand)),
        assigned=demand,
        resting=0,
        unserved=0,
        used_lately=0,
        answered_short=False,
        boot_id="",
        version=0,
        told_version=0,
        statement=InventoryReport(container="", listed=0),
    )


@pytest.mark.parametrize(
    ("demand", "requested", "named", "request_", "names"),
    [
        (15, 16, 0, 32, 0),
        (75, 16, 0, 96, 0),
        (300, 16, 0, 250, 0),
        (5, 32, 0, 16, 16),
        (5, 128, 0, 16, 112),
        (0, 32, 0, 16, 16),
        (15, 3, 0, 32, 0),
        (5, 37, 0, 16, 21),
        (20, 16, 16, 32, 16),
        (5, 32, 16, 16, 32),
    ],
)
def test_the_request_and_all_names_are_one_wish(
    demand: int, requested: int, named: int, request_: int, names: int
) -> None:
    wish = decide(view(demand=demand, requested=requested, named=named), DebounceState(), now=0.0, rhythm=AT_ONCE).wish
    assert wish
    assert (request_, names) == (wish.request, named + len(wish.release))


def test_once_it_was_asked_there_is_nothing_more_to_say() -> None:
    """Whatever the request was, one patch brings it into line: repeated, it changes nothing."""
    for requested in range(251):
        first = decide(view(demand=20, requested=requested, named=0), DebounceState(), now=0.0, rhythm=AT_ONCE)
        asked = first.wish.request if first.wish else requested
        assert 32 == asked
        assert None is decide(view(demand=20, requested=asked, named=0), DebounceState(), now=0.0, rhythm=AT_ONCE).wish


def test_where_nothing_differs_nothing_is_said() -> None:
    assert None is decide(view(demand=5, requested=16, named=0), DebounceState(), now=0.0, rhythm=AT_ONCE).wish


def test_what_is_in_use_is_never_named() -> None:
    """More is to go than is free: the rest goes when it is."""
    wish = decide(view(demand=20, requested=128, named=0), DebounceState(), now=0.0, rhythm=AT_ONCE).wish
    assert wish
    assert (32, 96) == (wish.request, len(wish.release))

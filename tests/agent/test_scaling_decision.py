"""The scaling decision: the steps of Azure's idempotent monitor, in one patch each."""

import pytest

from podpool.agent.scaling_decision import InventoryReport, NNCPatch, ScalingInputs, ScalingParameters, decide
from podpool.api.azure import AgentReport, NetworkConfigSpec
from podpool.core.debounce import DebounceState, DebounceTiming
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings

IMMEDIATE = DebounceTiming(quiet=0.0, max_delay=0.0, hold=0.0)


def inputs(*, demand: int, requested: int, pending: int) -> ScalingInputs:
    """A node without primaries whose Pods all have addresses, and which has what it requested."""
    granted = max(requested + pending, demand)
    released = tuple(f"released-{number}" for number in range(pending))
    return ScalingInputs(
        spec=NetworkConfigSpec(requested=requested, pending_release=released),
        reported=AgentReport(),
        parameters=ScalingParameters(
            scaler=Scaler(16, 50),
            max_buffer=150,
            exhausted=False,
            maximum=250,
            cooldown=Settings().cooldown_levels.in_force(30.0),
        ),
        primaries=0,
        granted=granted,
        pending_release=released,
        releasable=tuple(f"free-{number}" for number in range(granted - pending - demand)),
        assigned=demand,
        cooling_down=0,
        cooling_briefly=0,
        unserved=0,
        recently_used=0,
        answered_short=False,
        boot_id="",
        version=0,
        reported_version=0,
        inventory=InventoryReport(nc="", journal="", inventory=0),
    )


def patch(*, demand: int, requested: int, pending: int = 0) -> NNCPatch | None:
    decided = inputs(demand=demand, requested=requested, pending=pending)
    return decide(decided, DebounceState(), now=0.0, timing=IMMEDIATE).patch


@pytest.mark.parametrize(
    ("demand", "requested", "pending", "request_", "released"),
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
def test_the_request_and_all_releases_are_one_patch(
    demand: int, requested: int, pending: int, request_: int, released: int
) -> None:
    decided = patch(demand=demand, requested=requested, pending=pending)
    assert decided
    assert (request_, released) == (decided.request, pending + len(decided.release))


def test_the_decision_is_idempotent() -> None:
    """Whatever the request was, one patch corrects it; repeated, nothing changes."""
    for requested in range(251):
        first = patch(demand=20, requested=requested)
        assert 32 == (first.request if first else requested)
        assert None is patch(demand=20, requested=32)


def test_without_a_difference_there_is_no_patch() -> None:
    assert None is patch(demand=5, requested=16)


def test_addresses_in_use_are_never_released() -> None:
    """More should be released than is free: the others follow when they are."""
    decided = patch(demand=20, requested=128)
    assert decided
    assert (32, 96) == (decided.request, len(decided.release))

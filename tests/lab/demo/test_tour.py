"""What `podpool tour` shows."""

import pytest
from rich.console import Console

from podpool.agent.scaling_decision import ScalingMode
from podpool.lab.demo.monitor_mode_model import SCHEDULED, simulate_node
from podpool.lab.demo.tour import show_tour


def tour(width: int) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        show_tour(console)
    return captured.get()


def test_the_tour_fits_a_terminal_of_80_columns() -> None:
    """Nothing is wrapped: on a wider terminal it looks the same."""
    assert tour(200) == tour(80)


@pytest.mark.parametrize("mode", ScalingMode)
def test_the_tour_draws_every_monitor_mode(mode: ScalingMode) -> None:
    assert f"\n{mode.value}: " in tour(80)


def test_watching_pods_serves_a_burst_with_one_request_and_refuses_no_pod() -> None:
    """The other modes see a Pod only when it asks for its address, and refuse some."""
    histories = {mode: simulate_node(mode) for mode in ScalingMode}
    assert [ScalingMode.PODS] == [mode for mode in ScalingMode if not histories[mode].refused]
    assert histories[ScalingMode.PODS].served_after < min(
        histories[mode].served_after for mode in (ScalingMode.REACTIVE, ScalingMode.IDEMPOTENT)
    )
    growth, shrinking = 1, 1
    assert growth + shrinking == histories[ScalingMode.PODS].requests


@pytest.mark.parametrize("mode", ScalingMode)
def test_no_pod_has_an_address_that_the_node_does_not(mode: ScalingMode) -> None:
    history = simulate_node(mode)
    assert all(tick.assigned <= min(tick.held, tick.scheduled) for tick in history.ticks)
    assert SCHEDULED[-1][1] == history.ticks[-1].assigned

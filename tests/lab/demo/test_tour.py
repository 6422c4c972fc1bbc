"""What `podpool tour` shows."""

import pytest
from rich.console import Console
from typer.testing import CliRunner

from podpool.cli.app import app
from podpool.core.errors import InvalidInput
from podpool.lab.demo.tour import show_tour
from podpool.lab.demo.tour_model import SCHEDULED, Mode, play


def tour(width: int) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        show_tour(console)
    return captured.get()


def test_the_tour_fits_a_terminal_of_80_columns() -> None:
    """Nothing is wrapped: on a wider terminal it looks the same."""
    assert tour(200) == tour(80)


@pytest.mark.parametrize("mode", Mode)
def test_the_tour_draws_every_monitor_mode(mode: Mode) -> None:
    assert f"\n{mode.value}: " in tour(80)


def test_the_command_shows_the_tour() -> None:
    shown = CliRunner().invoke(app, ["tour"])
    assert 0 == shown.exit_code
    assert "make test" in shown.output


def test_without_a_command_it_says_what_there_is() -> None:
    shown = CliRunner().invoke(app, [])
    assert "its mathematics in the terminal" in shown.output


def test_the_version_is_told() -> None:
    assert "0.1.0\n" == CliRunner().invoke(app, ["--version"]).output


@pytest.mark.parametrize(("words", "sentence"), [(["--seeds", "abc"], "1-200"), (["--profile", "foo"], "calm, storm")])
def test_a_bad_word_is_answered_with_a_sentence(words: list[str], sentence: str) -> None:
    shown = CliRunner().invoke(app, ["sim", *words])
    assert isinstance(shown.exception, InvalidInput)
    assert sentence in str(shown.exception)


def test_watching_pods_serves_a_burst_with_one_request_and_refuses_nobody() -> None:
    """The other modes see a Pod only when it asks for its address, and refuse some."""
    histories = {mode: play(mode) for mode in Mode}
    assert [Mode.PODS] == [mode for mode in Mode if not histories[mode].refused]
    assert histories[Mode.PODS].served_after < min(
        histories[mode].served_after for mode in (Mode.REACTIVE, Mode.IDEMPOTENT)
    )
    growth, shrinking = 1, 1
    assert growth + shrinking == histories[Mode.PODS].requests


@pytest.mark.parametrize("mode", Mode)
def test_nobody_has_an_address_that_the_node_does_not(mode: Mode) -> None:
    history = play(mode)
    assert all(moment.assigned <= min(moment.held, moment.scheduled) for moment in history.moments)
    assert SCHEDULED[-1][1] == history.moments[-1].assigned

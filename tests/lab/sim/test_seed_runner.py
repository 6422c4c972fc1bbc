"""A scenario that violates an invariant is shrunk and reported."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.cli.commands.sim import run_seed
from podpool.lab.sim.profiles import PROFILES
from podpool.lab.sim.scenario import ScenarioEvent, draw
from podpool.lab.sim.seed_runner import SeedFailure, run_and_shrink, shrink
from tests.lab.sim import planted_agent

DOCS = Path(__file__).parents[3] / "docs" / "simulator.md"
SEED = 4
"""A seed of `narrow` in which a Pod is deleted."""


@given(st.sets(st.integers(0, 63), min_size=1, max_size=3))
def test_only_the_needed_events_are_left(needed: set[int]) -> None:
    events = [ScenarioEvent(float(number), "bind-pod") for number in range(64)]
    shrunk = shrink(events, lambda left: needed <= {int(event.at) for event in left}, runs=1000)
    assert sorted(needed) == [int(event.at) for event in shrunk]


def test_a_scenario_is_drawn_from_its_seed_alone() -> None:
    storm = PROFILES["storm"]
    assert draw(3, storm) == draw(3, storm)
    assert draw(3, storm) != draw(4, storm)
    times = [event.at for event in draw(3, storm)]
    assert times == sorted(times)


@pytest.mark.simulation
def test_a_planted_bug_is_found_and_reported_with_few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    planted_agent.a_delete_releases_nothing(monkeypatch)
    failure = run_and_shrink(SEED, "narrow")
    assert isinstance(failure, SeedFailure)
    assert len(failure.events) <= 5
    report = str(failure)
    assert f"seed {SEED} of narrow: Violation: agreement: " in report
    assert f"{len(failure.events)} of {len(draw(SEED, PROFILES['narrow']))} events reproduce it" in report
    assert "delete-pod" in report or "finish-pod" in report
    assert "API server: up" in report


def test_a_trace_shows_the_scenario_and_the_log_of_each_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_seed(SEED, "narrow", trace=True)
    output = capsys.readouterr().out
    scenario, _, log = output.partition(f"{draw(SEED, PROFILES['narrow'])[-1]}\n")
    assert scenario.startswith("scenario:\n")
    assert re.search(r"^ +\d+\.\d{6} simulator: scenario event action=join node=node-0", log, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d{6} controller-\d: became leader", log, re.MULTILINE)
    assert re.search(rf"^seed {SEED}: no violation after \d+ steps$", log, re.MULTILINE)


@pytest.mark.integration
def test_a_trace_ends_with_the_state_of_every_component(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted_agent.a_delete_releases_nothing(monkeypatch)
    assert not run_seed(SEED, "narrow", trace=True)
    output = capsys.readouterr().out
    assert f"seed {SEED}: Violation: agreement: " in output
    assert re.search(r"^node-0: boot .*\n  Node: UID ", output, re.MULTILINE)


def test_the_documentation_lists_every_profile_and_action() -> None:
    cells = re.findall(r"^\| (`[^|]+`) \|", DOCS.read_text(), re.MULTILINE)
    documented = {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)}
    actions = {action for profile in PROFILES.values() for action in profile.weights}
    assert set() == {*PROFILES, *actions} - documented

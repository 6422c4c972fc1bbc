"""A history that shows a violation is made short, and told."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.cli.sim_cmd import run_seed
from podpool.lab.sim.scenario import CLIMATES, STORMY, Event, draw
from podpool.lab.sim.shrink import Finding, search, shorten
from tests.lab.sim import planted

SEED = 2
"""One whose history has a Pod that is deleted."""


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


@pytest.mark.histories
def test_a_planted_bug_is_found_and_told_with_little_of_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.a_delete_is_answered_and_forgotten(monkeypatch)
    found = search(SEED, "narrow")
    assert isinstance(found, Finding)
    assert len(found.events) <= 5
    told = str(found)
    assert f"seed {SEED} of narrow: Violation: agreement: " in told
    assert f"{len(found.events)} of {len(draw(SEED, CLIMATES['narrow']))} events show it" in told
    assert "delete-pod" in told or "finish-pod" in told
    assert "API server: up" in told


def test_a_trace_tells_the_plan_and_who_logged_what_when(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_seed(SEED, "narrow", trace=True)
    told = capsys.readouterr().out
    plan, _, happened = told.partition(f"{draw(SEED, CLIMATES['narrow'])[-1]}\n")
    assert plan.startswith("planned:\n")
    assert re.search(r"^ +\d+\.\d{6} world: +\d+\.\d\d join node-0", happened, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d{6} controller-\d: .* leads Lease", happened, re.MULTILINE)
    assert re.search(r"^seed 2: all is well after \d+ steps$", happened, re.MULTILINE)


def test_a_trace_ends_with_the_state_of_every_part(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.a_delete_is_answered_and_forgotten(monkeypatch)
    assert not run_seed(SEED, "narrow", trace=True)
    told = capsys.readouterr().out
    assert "seed 2: Violation: agreement: " in told
    assert re.search(r"^node-0: boot .*\n  Node: UID ", told, re.MULTILINE)


def test_the_documentation_has_every_climate() -> None:
    told = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    listed = [
        name for row in re.findall(r"^\| ([a-z, -]+) \| [^|]+ \|$", told, re.MULTILINE) for name in row.split(", ")
    ]
    assert set() == CLIMATES.keys() - set(listed)

"""Node slices in the simulator: no history shows anything wrong, and every planted bug is found by a scenario."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from podpool.lab.sim.oracle import Violation
from podpool.lab.sim.scenario import CLIMATES, Shape, draw
from podpool.lab.sim.shrink import play
from podpool.lab.sim.slice_invariants import SliceAuditor
from podpool.lab.sim.world import World
from tests.lab.sim import planted_slices, scenarios_slices
from tests.lab.sim.story import SETTINGS, Scenario, Story

pytestmark = pytest.mark.histories

SLICED = Shape(cidr="10.0.0.0/27", settings=SETTINGS, slices=True)
SEEDS = (1, 2, 3)


class Bug(msgspec.Struct, frozen=True):
    """A rule that is left out, and the story that shows it."""

    rule: str
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    reported: tuple[str, ...]


BUGS = (
    Bug(
        "a slice whose Lease has a holder is only asked for",
        planted_slices.a_holder_does_not_matter,
        scenarios_slices.a_definition_is_deleted_under_running_pods,
        ("consent",),
    ),
    Bug(
        "a slice is of the range that its IPPool names",
        planted_slices.a_slice_keeps_its_first_range,
        scenarios_slices.a_range_is_made_larger_and_smaller,
        ("everybody served",),
    ),
    Bug(
        "what is deleted is what was looked at",
        planted_slices.deleted_at_any_version,
        scenarios_slices.a_slice_is_taken_while_it_is_withdrawn,
        ("consent",),
    ),
    Bug(
        "gone is decided on a fresh read",
        planted_slices.a_cache_tells_who_is_gone,
        scenarios_slices.a_node_comes_back_unseen,
        ("consent", "containment"),
    ),
    Bug(
        "a leader begins with what is there, not with what it has been shown",
        planted_slices.a_leader_begins_with_its_cache,
        scenarios_slices.a_new_leader_with_an_old_picture,
        ("one owner",),
    ),
    Bug(
        "what an agent says that it has is nobody else's",
        planted_slices.nobody_is_heard,
        scenarios_slices.the_api_server_forgets_who_has_what,
        ("one owner",),
    ),
    Bug(
        "after a restore nothing is given before every agent has answered",
        planted_slices.nobody_is_waited_for,
        scenarios_slices.one_who_could_tell_is_away,
        ("one owner",),
    ),
    Bug(
        "a slice is taken when the controller has agreed to the signature",
        planted_slices.an_offer_is_enough,
        scenarios_slices.an_old_offer_is_shown_again,
        ("one owner",),
    ),
    Bug(
        "a slice with an address of the range as it was shared is nobody's",
        planted_slices.what_is_shared_does_not_matter,
        scenarios_slices.a_shared_range_is_cut_under_running_pods,
        ("one owner",),
    ),
    Bug(
        "pools that all nodes share are shut before their range is cut",
        planted_slices.no_pool_is_shut,
        scenarios_slices.an_entry_is_on_its_way_while_its_range_is_cut,
        ("one owner",),
    ),
    Bug(
        "an agent gives nothing of a pool that is shut",
        planted_slices.a_mark_does_not_matter,
        scenarios_slices.a_range_is_shared_again_under_running_pods,
        ("one owner",),
    ),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults are logged by the thousand."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def tell(scenario: Scenario, *, seed: int) -> None:
    """Tell a story in a world with slices; raises what it shows to be wrong."""
    world = World(seed, SLICED)
    SliceAuditor(world)

    async def story() -> None:
        await world.begin()
        await scenario(Story(world))

    try:
        world.loop.run_until_complete(story())
    finally:
        world.loop.end()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_rule_that_is_left_out_is_missed(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        tell(bug.scenario, seed=seed)
    bug.plant(monkeypatch)
    for seed in SEEDS:
        with pytest.raises(Violation) as found:
            tell(bug.scenario, seed=seed)
        assert found.value.invariant in bug.reported


def test_the_documentation_has_every_bug() -> None:
    told = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    rows = [f"| {bug.rule} | {bug.scenario.__name__.replace('_', ' ')} | {' or '.join(bug.reported)} |" for bug in BUGS]
    assert [] == [row for row in rows if row not in told]


@pytest.mark.parametrize("seed", SEEDS)
def test_who_was_given_up_gives_nothing_of_what_it_had(seed: int) -> None:
    tell(scenarios_slices.a_machine_is_back_after_it_was_given_up, seed=seed)


@pytest.mark.parametrize("seeds", [range(first, first + 5) for first in range(2000, 2040, 5)], ids=str)
def test_no_history_shows_anything_wrong(seeds: range) -> None:
    for name in ("slices", "slices-restores"):
        climate = CLIMATES[name]
        for seed in seeds:
            run = play(seed, draw(seed, climate), climate)
            assert run.error is None, f"podpool sim --seed {seed} --climate {name}"

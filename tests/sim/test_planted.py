"""The simulator can fail: every planted bug is found, by a scenario that drives its trace or by a few fixed seeds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from podpool.sim.checks import check_always, check_settled
from podpool.sim.plan import CLIMATES, draw
from podpool.sim.search import play
from podpool.sim.truth import Violation
from podpool.sim.world import World
from tests.sim import planted

pytestmark = pytest.mark.histories

Scenario = Callable[[World], Awaitable[None]]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What a broken product logs is nobody's concern here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def watch(world: World, seconds: float) -> None:
    """Let time pass, looking all the while."""
    for _ in range(int(seconds)):
        await asyncio.sleep(1.0)
        world.raise_failures()
        check_always(world)


async def node_deleted_for_longer_than_the_gone_time(world: World) -> None:
    """Its machine and its Pods live on; then it registers again."""
    world.add_host("a")
    await watch(world, 20)
    for _ in range(5):
        world.bind("a")
    await watch(world, 20)
    world.delete_node("a")
    await watch(world, 250)
    world.register("a")
    await watch(world, 60)


async def node_deleted_and_registered_again(world: World) -> None:
    """At once, its Pods still running; then the gone time passes."""
    world.add_host("a")
    await watch(world, 20)
    for _ in range(5):
        world.bind("a")
    await watch(world, 20)
    world.delete_node("a")
    await watch(world, 3)
    world.register("a")
    await watch(world, 400)
    check_settled(world)


async def cut_off_and_given_up(world: World) -> None:
    """A node without Pods cannot reach the API server, its Node is deleted, and its addresses are another's."""
    world.add_host("a")
    world.add_host("b")
    await watch(world, 30)
    world.network.cut("a", "api")
    world.delete_node("a")
    await watch(world, 200)
    for _ in range(100):
        world.bind("b")
    await watch(world, 60)
    world.register("a")
    for _ in range(5):
        world.bind("a")
    await watch(world, 60)


SCENARIOS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Scenario]] = {
    "gone is told from a cache": (planted.gone_is_told_from_a_cache, node_deleted_for_longer_than_the_gone_time),
    "the boot id is ignored": (planted.the_boot_id_is_ignored, node_deleted_and_registered_again),
    "the fence is ignored": (planted.the_fence_is_ignored, cut_off_and_given_up),
}
SEEDS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, int]] = {
    "answered before the journal": (planted.answered_before_the_journal, "storm", 40),
    "no rest after a reboot": (planted.no_rest_after_a_reboot, "storm", 20),
    "a restore goes unnoticed": (planted.a_restore_goes_unnoticed, "restore-ledger", 20),
}


def run(scenario: Scenario) -> None:
    world = World(1)

    async def story() -> None:
        await world.begin()
        await scenario(world)

    try:
        world.loop.run_until_complete(story())
    finally:
        world.loop.end()


@pytest.mark.parametrize("bug", SCENARIOS)
def test_a_scenario_passes_without_its_bug_and_shows_it_with_it(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, scenario = SCENARIOS[bug]
    run(scenario)
    plant(monkeypatch)
    with pytest.raises(Violation):
        run(scenario)


@pytest.mark.parametrize("bug", SEEDS)
def test_a_few_seeds_find_a_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, climate, seeds = SEEDS[bug]
    plant(monkeypatch)
    errors = (play(seed, draw(seed, CLIMATES[climate]), CLIMATES[climate]).error for seed in range(1, seeds + 1))
    assert next(filter(None, errors), None)

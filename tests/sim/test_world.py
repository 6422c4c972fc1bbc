"""Histories: the same seed gives the same one, and in none is anything wrong."""

import logging
from collections.abc import Iterator

import pytest

from podpool.sim.plan import CLIMATES, draw
from podpool.sim.search import play
from podpool.sim.stage import Stage

pytestmark = pytest.mark.histories


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults are logged by the thousand."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def history(seed: int) -> list[object]:
    """Everything that was written to the API server, with its moment, and how many steps it took."""
    stage = Stage(seed, CLIMATES["storm"])
    world = stage.world
    told: list[object] = []
    commit = world.store.update

    def noted(*words: object, **others: object) -> object:
        written = commit(*words, **others)  # type: ignore[arg-type]  # passed on as it came
        told.append((world.loop.time(), written))
        return written

    world.store.update = noted  # type: ignore[method-assign,assignment]  # to look on
    stage.play(draw(seed, CLIMATES["storm"]))
    return [*told, world.loop.steps, sorted(use.address for use in world.truth.uses())]


def test_the_same_seed_gives_the_same_history() -> None:
    first = history(11)
    assert len(first) > 100
    assert first == history(11)


@pytest.mark.parametrize("climate", ["calm", "storm", "shared", "narrow-shared"])
@pytest.mark.parametrize("seeds", [range(first, first + 5) for first in range(1000, 1020, 5)], ids=str)
def test_no_history_shows_anything_wrong(climate: str, seeds: range) -> None:
    for seed in seeds:
        run = play(seed, draw(seed, CLIMATES[climate]), CLIMATES[climate])
        assert run.error is None, f"podpool sim --seed {seed} --climate {climate}"

"""The API server is away for minutes while Pods come and go: they start from what is free, and nothing is lost."""

import asyncio
import random

from tests.agent.worlds import SETTLED, World, in_world

AWAY = 300
"""Seconds; less than the fence time."""


@in_world
async def test_pods_start_from_what_is_free_and_one_patch_follows(world: World) -> None:
    agent = await world.start()
    rng = random.Random(1)  # noqa: S311  seeded
    held: dict[str, str] = {}
    world.road.patches.clear()
    world.road.cut = True
    for number in range(AWAY):
        name = f"pod-{number}"
        if len(held) < 9 and number % 20 == 0:
            await world.bind(name)
            held[name] = await world.add(name, pod=name)
        elif held and number % 47 == 0:
            gone = rng.choice(sorted(held))
            await world.remove(gone)
            await world.call("DEL", gone, pod=gone)
            del held[gone]
        assert len(set(held.values())) == len(held)
        await asyncio.sleep(1.0)
    assert [] == world.road.patches
    await world.bind(*(f"late-{n}" for n in range(20)))
    world.road.cut = False
    await asyncio.sleep(60.0 + SETTLED)
    assert 1 == len(world.road.patches)
    assert held == {each.owner.container_id: f"{each.grant.address}/16" for each in agent.pool.holdings.values()}
    for n in range(20):
        held[f"late-{n}"] = await world.add(f"late-{n}", pod=f"late-{n}")
    assert len(set(held.values())) == len(held)


@in_world
async def test_killed_meanwhile_it_goes_on_with_what_it_had(world: World) -> None:
    await world.start()
    held = {name: await world.add(name) for name in "abc"}
    world.road.cut = True
    for turn in range(5):
        await world.kill()
        await world.start()
        held[f"n{turn}"] = await world.add(f"n{turn}")
        await asyncio.sleep(30.0)
    assert held == {name: await world.add(name) for name in held}
    assert len(set(held.values())) == len(held)

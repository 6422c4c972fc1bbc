"""The API server is unreachable for minutes while Pods start and stop: nothing is lost."""

import asyncio
import random

from tests.agent.node_env import SETTLE_TIME, NodeEnv, in_node_env

OUTAGE = 300
"""Seconds; less than the fence time."""


@in_node_env
async def test_pods_get_available_addresses_and_one_patch_follows(env: NodeEnv) -> None:
    agent = await env.start()
    rng = random.Random(1)  # noqa: S311  seeded
    assigned: dict[str, str] = {}
    env.transport.patches.clear()
    env.transport.cut = True
    for number in range(OUTAGE):
        name = f"pod-{number}"
        if len(assigned) < 9 and number % 20 == 0:
            await env.bind(name)
            assigned[name] = await env.add(name, pod=name)
        elif assigned and number % 47 == 0:
            deleted = rng.choice(sorted(assigned))
            await env.remove(deleted)
            await env.call("DEL", deleted, pod=deleted)
            del assigned[deleted]
        assert len(set(assigned.values())) == len(assigned)
        await asyncio.sleep(1.0)
    assert [] == env.transport.patches
    await env.bind(*(f"late-{n}" for n in range(20)))
    env.transport.cut = False
    await asyncio.sleep(60.0 + SETTLE_TIME)
    assert 1 == len(env.transport.patches)
    assert assigned == {
        each.attachment.container_id: f"{each.grant.address}/16" for each in agent.pool.assigned.values()
    }
    for n in range(20):
        assigned[f"late-{n}"] = await env.add(f"late-{n}", pod=f"late-{n}")
    assert len(set(assigned.values())) == len(assigned)


@in_node_env
async def test_killed_meanwhile_it_continues_with_its_journal(env: NodeEnv) -> None:
    await env.start()
    assigned = {name: await env.add(name) for name in "abc"}
    env.transport.cut = True
    for turn in range(5):
        await env.kill()
        await env.start()
        assigned[f"n{turn}"] = await env.add(f"n{turn}")
        await asyncio.sleep(30.0)
    assert assigned == {name: await env.add(name) for name in assigned}
    assert len(set(assigned.values())) == len(assigned)

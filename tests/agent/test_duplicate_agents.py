"""Two agents with two state directories on one node: one of them yields, and neither patches without limit."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podpool.agent.agent import Agent
from podpool.agent.deps import AgentDeps
from podpool.agent.duplicate_agent import YIELD_TIME
from podpool.agent.state import AgentState
from podpool.api.azure import agent_report
from podpool.api.builtin import EVENTS
from podpool.api.rbac import AGENT
from podpool.core.two_observations import OBSERVATION_INTERVAL
from podpool.kube.client import KubeClient
from podpool.kube.events import EventRecorder
from tests.agent.clocks import LoopClock
from tests.agent.disks import MemoryDisk
from tests.agent.node_env import NODE, SETTLE_TIME, SYSTEM, NodeEnv, RecordingTransport, in_node_env


@asynccontextmanager
async def second_agent(env: NodeEnv, disk: MemoryDisk) -> AsyncIterator[Agent]:
    """Run another agent of the same node and boot, with its own state; requests go to it."""
    rng = random.Random(100)  # noqa: S311  seeded
    transport = RecordingTransport(env.server)
    transport.patches = env.transport.patches
    deps = AgentDeps(
        node=NODE,
        boot_id=env.boot_id,
        kube=KubeClient(transport),
        disk=disk,
        clock=env.clock,
        rng=rng,
        settings=env.settings,
        recorder=EventRecorder(env.kube, component=AGENT, instance=NODE, clock=env.clock, rng=rng),
    )
    agent, first = Agent(deps), env.agent
    running = asyncio.create_task(agent.run())
    env.agent = agent
    try:
        yield agent
    finally:
        env.agent = first
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@in_node_env
async def test_the_agent_with_the_newer_journal_yields(env: NodeEnv) -> None:
    first = await env.start()
    await env.bind("pod-1", "pod-2")
    await env.add("sandbox-1", pod="pod-1")
    await asyncio.sleep(60)
    env.transport.patches.clear()
    async with second_agent(env, MemoryDisk()) as second:
        await asyncio.sleep(SETTLE_TIME)
        assert 2 == len(env.transport.patches), "one of each agent"
        assert "another agent of node node-1 runs with another state directory" in (second.not_ready_reason() or "")
        assert "another agent of node" in (await env.refused("sandbox-2"))["msg"]
        (addresses,) = (each for each in second.health_checks() if each.name == "addresses")
        assert "stop one of them" in addresses.failure
        events = (await env.kube.list(EVENTS, namespace=SYSTEM)).items
        assert ["DuplicateAgent"] == [each.reason for each in events]
        assert 1 == sum("runs on this node, this one" in line for line in env.warnings)
        assert 1 == sum("newer journal; it yields" in line for line in env.warnings)
        assert first.not_ready_reason() is None
        env.agent = first
        assert await env.add("sandbox-2", pod="pod-2")
        await env.bind(*(f"more-{each}" for each in range(40)))
        await asyncio.sleep(5 * YIELD_TIME)
        assert 63 == (await env.nnc()).spec.requested
        assert len(env.transport.patches) <= 2 + 5 * 2 + 5
        assert 1 == sum("runs on this node, this one" in line for line in env.warnings), "logged once"


@in_node_env
async def test_the_other_takes_over_when_the_one_that_served_stops(env: NodeEnv) -> None:
    await env.start()
    async with second_agent(env, MemoryDisk()) as second:
        await asyncio.sleep(60)
        await env.stop()
        await asyncio.sleep(YIELD_TIME)
        assert second.not_ready_reason() is None
        await asyncio.sleep(env.settings.fence + 3 * OBSERVATION_INTERVAL)
        await env.bind("pod-1")
        assert await env.add("sandbox-1", pod="pod-1")


@in_node_env
async def test_the_older_journal_serves_also_if_its_agent_starts_later(env: NodeEnv) -> None:
    older = MemoryDisk()
    AgentState(older, LoopClock(), fence_limit=600.0).open(boot_id="boot-of-before")
    await asyncio.sleep(60)
    first = await env.start()
    async with second_agent(env, older) as second:
        await asyncio.sleep(SETTLE_TIME)
        assert "another agent" in (first.not_ready_reason() or "")
        assert second.not_ready_reason() is None
        await asyncio.sleep(YIELD_TIME / 2)
        assert len(env.transport.patches) <= 6


@in_node_env
async def test_no_address_is_assigned_by_both(env: NodeEnv) -> None:
    """Also of those that one of them got while the other could not reach the API server."""
    first = await env.start()
    async with second_agent(env, MemoryDisk()) as second:
        await asyncio.sleep(SETTLE_TIME)
        env.transport.cut = True
        await asyncio.sleep(2 * YIELD_TIME)
        assert second.not_ready_reason() is None
        await env.bind(*(f"pod-{each}" for each in range(30)))
        await asyncio.sleep(SETTLE_TIME)
        theirs = {await env.add(f"second-{each}", pod=f"pod-{each}") for each in range(10)}
        env.transport.cut = False
        await asyncio.sleep(60)
        assert first.not_ready_reason() is None
        assert "another agent" in (second.not_ready_reason() or "")
        lost = first.pool.lost
        assert theirs <= {f"{each.address}/16" for each in first.pool.grants.all() if each.id in lost}


@in_node_env
async def test_an_agent_whose_journal_was_lost_is_no_other_agent(env: NodeEnv) -> None:
    await env.start()
    await env.stop()
    env.disk = MemoryDisk()
    await env.bind("pod-1")
    agent = await env.start()
    assert agent.not_ready_reason() is None
    report = agent_report(await env.nnc())
    assert report
    assert report.journal > "1970"
    assert not any("another agent" in line for line in env.warnings)


@in_node_env
async def test_a_restart_continues_with_the_same_journal(env: NodeEnv) -> None:
    await env.start()
    before = agent_report(await env.nnc())
    await env.stop()
    await asyncio.sleep(60)
    await env.start()
    assert before
    assert before == agent_report(await env.nnc())

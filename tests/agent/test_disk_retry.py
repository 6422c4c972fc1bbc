"""On a full disk nothing is lost, it is logged, and with free space everything continues."""

import asyncio
import json

import pytest

from podpool.agent.agent import AgentStopped
from podpool.agent.state import RETRY_INTERVAL
from podpool.api.azure import AGENT_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.core.settings import Settings
from tests.agent.disks import FullDisk, MemoryDisk
from tests.agent.node_env import NODE, SETTLE_TIME, SYSTEM, NodeEnv, in_node_env

CONFIRMED = 2 * Settings().confirmation_interval
"""Seconds in which an agent confirms its Node, and journals it."""


def disk_errors(env: NodeEnv) -> int:
    return sum("cannot write the journal" in line for line in env.warnings)


async def remove_report(env: NodeEnv) -> None:
    """Make the NNC look like a new one."""
    without = {"metadata": {"annotations": {AGENT_ANNOTATION: None}}}
    await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, without, namespace=SYSTEM)


async def status(env: NodeEnv) -> int:
    answer = await env.call("STATUS", "", version="1.1.0")
    return int(json.loads(answer.stdout)["code"]) if answer.exit_code else 0


@in_node_env
async def test_on_a_full_disk_it_serves_what_needs_no_write_and_logs_it_once(env: NodeEnv) -> None:
    disk = FullDisk()
    agent = await env.start(disk=disk)
    given = await env.add("a")
    disk.space = 0
    await asyncio.sleep(CONFIRMED)
    assert given == await env.add("a")
    assert 0 == (await env.call("CHECK", "a")).exit_code
    assert 5 == (await env.refused("b"))["code"]
    assert "disk" in (agent.not_ready_reason() or "")
    assert 1 == disk_errors(env)


@in_node_env
async def test_with_free_space_it_assigns_requests_and_stays_confirmed(env: NodeEnv) -> None:
    disk = FullDisk()
    agent = await env.start(disk=disk)
    disk.space = 0
    await env.bind(*(f"pod-{n}" for n in range(20)))
    await asyncio.sleep(CONFIRMED)
    disk.space = None
    await asyncio.sleep(RETRY_INTERVAL + SETTLE_TIME)
    assert agent.not_ready_reason() is None
    assert 20 == len({await env.add(f"box-{n}", pod=f"pod-{n}") for n in range(20)})
    assert 31 == (await env.nnc()).spec.requested
    await asyncio.sleep(2 * Settings().fence)
    assert not agent.fenced


@in_node_env
async def test_it_is_fenced_if_it_could_not_write_for_the_fence_time(env: NodeEnv) -> None:
    disk = FullDisk()
    agent = await env.start(disk=disk)
    disk.space = 0
    await asyncio.sleep(2 * Settings().fence)
    assert agent.fenced
    disk.space = None
    await asyncio.sleep(RETRY_INTERVAL + SETTLE_TIME)
    assert not agent.fenced


@in_node_env
async def test_started_on_a_full_disk_it_waits_for_space_and_then_has_the_whole_state(env: NodeEnv) -> None:
    await env.start()
    given = await env.add("a")
    await env.kill()
    disk = FullDisk()
    disk.written, disk.space = env.disk.written, 0
    agent = await env.start(disk=disk)
    for sandbox in "ab":
        assert 5 == (await env.refused(sandbox))["code"]
    assert 50 == await status(env)
    assert "disk" in (agent.not_ready_reason() or "")
    await asyncio.sleep(CONFIRMED)
    assert 1 == disk_errors(env)
    disk.space = None
    await asyncio.sleep(RETRY_INTERVAL + SETTLE_TIME)
    assert (given, 0) == (await env.add("a"), await status(env))
    assert given != await env.add("b")


@in_node_env
async def test_lost_grants_are_still_found_after_a_failed_write(env: NodeEnv) -> None:
    """The journal is lost and the NNC has no report: Pods may use any address."""
    await env.start()
    await env.kill()
    for space in range(20, 400, 20):
        await remove_report(env)
        disk = FullDisk()
        agent = await env.start(disk=disk, wait=False)
        await asyncio.sleep(0)
        disk.space = space
        await asyncio.sleep(SETTLE_TIME)
        disk.space = None
        await asyncio.sleep(RETRY_INTERVAL + SETTLE_TIME)
        assert agent.pool.lost, space
        await env.stop(killed=True)


@in_node_env
async def test_lost_grants_are_still_found_by_the_next_agent_wherever_one_is_killed(env: NodeEnv) -> None:
    await env.start()
    await env.kill()
    for budget in range(20, 400, 10):
        await remove_report(env)
        env.disk = MemoryDisk()
        env.disk.budget = budget
        await env.start()
        await env.kill()
        await remove_report(env)
        agent = await env.start()
        assert agent.pool.lost, budget
        await env.kill()


@in_node_env
async def test_a_request_that_outlasts_the_agent_is_not_answered_and_writes_nothing(env: NodeEnv) -> None:
    """It entered before the clean-shutdown marker was written; the plugin repeats it with the successor."""
    file_read = asyncio.Event()

    async def read_flat_file(_path: str) -> bytes | None:
        await file_read.wait()
        return None

    env.deps, env.options = {"read_flat_file": read_flat_file}, {"whereabouts_namespace": SYSTEM}
    await env.start()
    given = await env.add("a")
    delete = asyncio.ensure_future(env.call("DEL", "a", ipam={"type": "whereabouts", "range": "10.9.0.0/24"}))
    await asyncio.sleep(SETTLE_TIME)
    await env.stop()
    before = dict(env.disk.written)
    file_read.set()
    with pytest.raises(AgentStopped):
        await delete
    assert before == env.disk.written
    await env.start()
    assert given == await env.add("a")


@in_node_env
async def test_it_stops_although_it_cannot_write_the_clean_shutdown_marker(env: NodeEnv) -> None:
    disk = FullDisk()
    await env.start(disk=disk)
    disk.space = 0
    await env.stop()
    assert any("clean-shutdown marker" in line for line in env.warnings)

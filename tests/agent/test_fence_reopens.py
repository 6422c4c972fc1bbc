"""An ADD at a closed fence starts a confirmation at once, and waits for it."""

import asyncio
from itertools import pairwise

import pytest

from podpool.agent.node_confirmation import ADD_INTERVAL, QUICK_ATTEMPTS
from podpool.agent.scaling_decision import ScalingMode
from podpool.api.builtin import NODES
from podpool.core.settings import Settings
from podpool.runtime.transport import Request, Response
from tests.agent.clocks import LoopClock
from tests.agent.node_env import SETTLE_TIME, NodeEnv, in_node_env
from tests.agent.secondary import slice_env

STEP = 10 * Settings().fence


class SteppedClock(LoopClock):
    """A clock whose wall time can be set."""

    step = 0.0

    def wall(self) -> float:
        return super().wall() + self.step


def with_stepped_clock(env: NodeEnv) -> SteppedClock:
    env.clock = clock = SteppedClock()
    return clock


@pytest.mark.parametrize("mode", ScalingMode)
def test_after_a_step_of_the_wall_clock_an_add_is_served_within_a_second(mode: ScalingMode) -> None:
    @in_node_env
    async def test(env: NodeEnv) -> None:
        env.options["mode"] = mode
        clock = with_stepped_clock(env)
        agent = await env.start()
        await asyncio.sleep(10.0)  # far from the next confirmation
        clock.step = STEP
        assert agent.fenced
        started = asyncio.get_running_loop().time()
        assert await env.add("a")
        assert asyncio.get_running_loop().time() - started < ADD_INTERVAL
        assert not agent.fenced

    test()


@in_node_env
async def test_status_starts_a_confirmation_too(env: NodeEnv) -> None:
    clock = with_stepped_clock(env)
    await env.start()
    clock.step = STEP
    assert 1 == (await env.call("STATUS", "", version="1.1.0")).exit_code
    await asyncio.sleep(ADD_INTERVAL + 0.1)
    assert 0 == (await env.call("STATUS", "", version="1.1.0")).exit_code


@in_node_env
async def test_slices_are_served_after_a_step_of_the_wall_clock(env: NodeEnv) -> None:
    clock = with_stepped_clock(env)
    await slice_env.enable_slices(env).start()
    await slice_env.assign_slice(env)
    await asyncio.sleep(SETTLE_TIME)
    clock.step = STEP
    assert await slice_env.add(env, "a")


@in_node_env
async def test_a_waiting_add_of_a_slice_is_served_if_the_fence_closes_meanwhile(env: NodeEnv) -> None:
    clock = with_stepped_clock(env)
    await slice_env.enable_slices(env).start()
    await slice_env.assign_slice(env)
    await asyncio.sleep(SETTLE_TIME)
    sandboxes = [f"s{n}" for n in range(14)]
    for each in sandboxes:
        await slice_env.add(env, each)
    await slice_env.call(env, "DEL", sandboxes[0])
    waiting = asyncio.create_task(slice_env.add(env, "waiting"))
    await asyncio.sleep(1.0)
    clock.step = STEP
    assert await waiting


@in_node_env
async def test_an_add_without_an_address_is_not_refused_for_a_clock_that_was_set(env: NodeEnv) -> None:
    """The subnet is full, so nothing changes while it waits."""
    clock = with_stepped_clock(env)
    env.capacity = 0
    agent = await env.start(wait=False)
    await asyncio.sleep(SETTLE_TIME)
    waiting = asyncio.create_task(env.call("ADD", "a"))
    await asyncio.sleep(2.0)
    clock.step = STEP
    assert "has no available address" in (await waiting).stdout.decode()
    assert not agent.fenced


def refuse_confirmations(env: NodeEnv) -> list[float]:
    """Answer reads of the Node with an error; return the list of their times."""
    attempts: list[float] = []
    send = env.transport.send

    async def count(request: Request) -> Response:
        if request.method == "GET" and request.path.endswith("/nodes/node-1"):
            attempts.append(asyncio.get_running_loop().time())
            return Response(500)
        return await send(request)

    env.transport.send = count  # type: ignore[method-assign]  # for this test
    return attempts


@pytest.mark.parametrize("apart", [0.0, 0.01])
def test_many_adds_cause_one_confirmation_per_second(apart: float) -> None:
    """While the API server refuses them, as often for hundreds of ADDs, which change the NNC, as for one."""

    @in_node_env
    async def test(env: NodeEnv) -> None:
        clock = with_stepped_clock(env)
        await env.start()
        attempts = refuse_confirmations(env)
        clock.step = STEP
        adds = []
        for number in range(300):
            adds.append(asyncio.create_task(env.refused(f"s{number}")))
            await asyncio.sleep(apart)
        started = len(env.transport.patches)
        assert all("is fenced" in each["msg"] for each in await asyncio.gather(*adds))
        assert started or not apart
        seconds = Settings().add_timeout + 300 * apart
        assert 5 <= len(attempts) <= seconds / ADD_INTERVAL + 3  # of two attempts, the second may follow the back-off
        gaps = [after - before for before, after in pairwise(attempts)]
        assert sum(gap < 0.9 * ADD_INTERVAL for gap in gaps) <= 3

    test()


@in_node_env
async def test_a_node_that_is_not_confirmed_is_not_read_at_every_change(env: NodeEnv) -> None:
    """The API server answers, and the Node has another boot ID."""
    await env.start()
    await env.reboot("boot-2")
    await env.start()
    reads: list[float] = []
    send = env.transport.send

    async def count(request: Request) -> Response:
        if request.method == "GET" and request.path.endswith("/nodes/node-1"):
            reads.append(asyncio.get_running_loop().time())
        return await send(request)

    env.transport.send = count  # type: ignore[method-assign]  # for this test
    for number in range(200):
        await env.kube.merge_patch(NODES, "node-1", {"metadata": {"labels": {"n": str(number)}}})
        await asyncio.sleep(0.05)
    assert 5 <= len(reads) <= 200 * 0.05 / ADD_INTERVAL + QUICK_ATTEMPTS + 1
    await env.report_boot("boot-2")
    await asyncio.sleep(2 * ADD_INTERVAL + 0.1)
    assert env.agent
    assert not env.agent.fenced


@in_node_env
async def test_a_new_node_is_confirmed_without_delay(env: NodeEnv) -> None:
    agent = await env.start(wait=False)
    await asyncio.sleep(0.2 * ADD_INTERVAL)
    assert not agent.fenced


@in_node_env
async def test_an_add_waits_for_the_api_server_to_come_back(env: NodeEnv) -> None:
    clock = with_stepped_clock(env)
    await env.start()
    env.transport.cut = True
    clock.step = STEP
    waiting = asyncio.create_task(env.add("a"))
    await asyncio.sleep(6.0)
    env.transport.cut = False
    async with asyncio.timeout(3 * ADD_INTERVAL):
        assert await waiting

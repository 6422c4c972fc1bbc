"""Many nodes at once, a leader that is killed at any write, and the number of writes."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from podpool.api.node_slices import NODE_SLICES
from podpool.controller.controller import Controller
from podpool.core.settings import Settings
from podpool.runtime.transport import Request
from tests.controller.slices.slice_env import SliceEnv

RunScenario = Callable[[Callable[[SliceEnv], Coroutine[Any, Any, None]]], None]

NODES, NETWORKS = 64, 10


async def no_delay(_: Request) -> None:
    """Do not delay requests."""


async def owners(env: SliceEnv) -> dict[str, str]:
    """Return the owner of each slice; no slice may have two."""
    found: dict[str, str] = {}
    for obj in (await env.client.list(NODE_SLICES)).items:
        for each in obj.spec.assignments:
            key, node = f"{each.network} {each.slice}", obj.metadata.name
            assert found.setdefault(key, node) == node
    return found


def assignments(controller: Controller) -> int:
    """Return how often networks were assigned."""
    match = re.search(rb'reconcile_seconds_count\{controller="networks"\} ([0-9.]+)', controller.render_metrics())
    assert match
    return int(float(match[1]))


class TestStorms:
    @pytest.mark.integration
    def test_one_write_for_each_node_and_another_for_its_confirmation(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            for number in range(NETWORKS):
                size = {"range": f"10.{number}.0.0/16", "node_slice_size": "/24"}
                await env.create_nad(f"net-{number}", network_name=f"net-{number}", **size)
            controller = env.start(common=Settings())
            await env.until(lambda: env.slice_pool(f"net-{NETWORKS - 1}"), "the NodeSlicePools exist")
            await env.create_node("first")  # until then there was nothing to decide, and no inventory

            async def assigned(count: int) -> bool:
                return len(await env.assignments()) == count * NETWORKS

            await env.until(lambda: assigned(1), "the first node has its slices")
            await asyncio.sleep(2.0)
            env.transport.sent.clear()
            names = [f"n{number:02}" for number in range(NODES)]
            await asyncio.gather(*map(env.create_node, names))
            await env.until(lambda: assigned(NODES + 1), "all slices are assigned")
            await asyncio.sleep(2.0)
            assert {"POST nodeslices", "PATCH nodeslicepools"} == env.writes.keys()
            assert NODES == env.writes["POST nodeslices"]
            assert env.writes["PATCH nodeslicepools"] <= 4 * NETWORKS
            assert (NODES + 1) * NETWORKS == len(await owners(env))
            env.transport.sent.clear()
            await asyncio.gather(*(self._acknowledge(env, name) for name in names))
            await env.until(lambda: self._all_confirmed(env), "all slices are confirmed")
            assert {"PATCH nodeslices": NODES} == env.writes
            await self._quiet(env)
            await env.stop(controller)

        run_scenario(scenario)

    async def _acknowledge(self, env: SliceEnv, node: str) -> None:
        obj, agent = await env.node_slices(node), env.agents[f"boot-of-{node}"]
        for each in obj.spec.assignments if obj else ():
            agent.set(each, acknowledgement=f"of {each.id}")
        await env.write_status(agent)

    async def _all_confirmed(self, env: SliceEnv) -> bool:
        unconfirmed = [each for each in (await env.assignments()).values() if not each.confirmed]
        return len(unconfirmed) == NETWORKS  # those of the first node

    def test_an_expected_change_causes_no_new_assignment(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            for number in range(3):
                await env.create_node(f"n{number}")
            names = [f"red-n{number}-10.1.0.{64 * number}-26" for number in range(3)]
            await env.wait_slices(*names)
            await self._quiet(env)
            before = assignments(controller)
            for name in names:
                await env.take(name)
            await self._quiet(env)
            assert before == assignments(controller)
            await env.delete_node("n1")
            await env.wait_slices(names[0], names[2])
            assert before < assignments(controller)

        run_scenario(scenario)

    async def _quiet(self, env: SliceEnv) -> None:
        """Check that nothing is written in a steady state."""
        await asyncio.sleep(2.0)
        env.transport.sent.clear()
        await asyncio.sleep(2.0)
        assert {} == env.writes


class TestCrashes:
    @pytest.mark.parametrize("taken", [True, False], ids=["taken", "assigned"])
    def test_a_leader_may_be_killed_at_any_write(self, run_scenario: RunScenario, taken: bool) -> None:
        """It is killed before its first write, before its second, and so on; the next leader continues."""

        async def scenario(env: SliceEnv) -> None:
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/28")
            for writes in range(1, 8):
                await env.create_node(f"n{writes}")
                await self._killed_after(env, writes)
                if taken:
                    await self._take_all(env)
                before = await owners(env)
                if writes == 4:
                    await env.delete_node("n2")
                assert before.items() <= (await owners(env)).items()
            env.start()

            async def settled() -> bool:
                living = {f"n{writes}" for writes in range(1, 8)} - {"n2"}
                found = await owners(env)
                one_each = living == set(found.values()) and len(found) == len(living)
                return one_each and await env.slices("red") == {
                    node: key.partition(" ")[2] for key, node in found.items()
                }

            await env.until(settled, "every node has one slice, which the NodeSlicePool shows")

        run_scenario(scenario)

    async def _killed_after(self, env: SliceEnv, writes: int) -> None:
        left, stopped = writes, asyncio.Event()

        async def count(request: Request) -> None:
            nonlocal left
            if request.method != "GET" and "podpool-controller" not in request.path:
                left -= "events" not in request.path
                if left <= 0:
                    stopped.set()
                    await asyncio.Event().wait()

        env.transport.before = count
        controller = env.start()
        with suppress(TimeoutError):  # then it has nothing more to write
            await asyncio.wait_for(stopped.wait(), 2.0)
        env.transport.before = no_delay
        await env.stop(controller)

    async def _take_all(self, env: SliceEnv) -> None:
        for name, each in (await env.assignments()).items():
            agent = env.agent_of(name)
            agent.set(each, acknowledgement="mine", held=bool(each.confirmed))
            await env.write_status(agent)

"""A shared range is divided into slices, and shared again: no address is allocated from both."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from podpool.api.whereabouts import IP_POOLS, SEALED_ANNOTATION
from podpool.runtime.transport import Request
from tests.controller.slices.slice_env import SliceEnv

RunScenario = Callable[[Callable[[SliceEnv], Coroutine[Any, Any, None]]], None]

POOL = "red-10.1.0.0-24"
SHARED: dict[str, Any] = {"network_name": "red", "range": "10.1.0.0/24"}
SLICED: dict[str, Any] = {**SHARED, "node_slice_size": "/26"}


async def allocate_shared(env: SliceEnv, key: str = "1") -> None:
    """A running Pod has an address of a shared range."""
    await env.create_nad("red", **SHARED)
    await env.create_node("n1")
    await env.create_pod("web", "n1")
    await env.create_pool("10.1.0.0/24", name=POOL)
    await env.allocate(POOL, key, "web")


async def release(env: SliceEnv, key: str = "1", name: str = POOL) -> None:
    """Remove the allocation as a DEL does."""
    patch = {"spec": {"allocations": {key: None}}}
    await env.client.merge_patch(IP_POOLS, name, patch, namespace=env.namespace)


class TestSealing:
    def test_a_slice_with_an_address_of_a_running_pod_is_withheld_until_that_is_released(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(env: SliceEnv) -> None:
            await allocate_shared(env)
            env.start()
            await env.create_nad("red", **SLICED)
            await env.wait_slices("red-n1-10.1.0.64-26")
            assert [POOL] == await env.sealed_pools()
            (event,) = await env.wait_events("SlicesWithheld")
            assert "red" == event.regarding.name
            assert "1 addresses of 10.1.0.0/24 are in use from before it was divided into slices: 1 slices" in (
                event.note or ""
            )
            await env.create_node("n2")
            await env.create_node("n3")
            await env.create_node("n4")
            names = ("red-n1-10.1.0.64-26", "red-n2-10.1.0.128-26", "red-n3-10.1.0.192-26")
            await env.wait_slices(*names)
            (short,) = await env.wait_events("InsufficientSlices")
            assert "until those Pods are deleted" in (short.note or "")
            await release(env)
            await env.wait_slices("red-n4-10.1.0.0-26", *names)

        run_scenario(scenario)

    def test_an_allocation_before_the_seal_counts(self, run_scenario: RunScenario) -> None:
        """An agent that read the pool before was faster: its allocation is in the response to the seal."""

        async def scenario(env: SliceEnv) -> None:
            await allocate_shared(env)
            written = asyncio.Event()

            async def slip_in(request: Request) -> None:
                if request.method == "PATCH" and request.path.endswith(POOL) and not written.is_set():
                    written.set()
                    await env.allocate(POOL, "65", "web")

            env.transport.before = slip_in
            env.start()
            await env.create_nad("red", **SLICED)
            await env.wait_slices("red-n1-10.1.0.128-26")
            assert written.is_set()

        run_scenario(scenario)

    def test_a_sealed_pool_exists_until_the_last_slice_is_deleted(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            assert [POOL] == await env.sealed_pools()
            await env.delete_nad("red")
            await env.wait_return_requested(name)
            assert [POOL] == await env.sealed_pools()
            await env.return_slice(name)
            await env.wait_slices()
            await env.until(lambda: nothing_sealed(env), "the pool is deleted")

        run_scenario(scenario)

    def test_overlapping_pools_of_the_same_network_are_sealed(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.create_nad("blue", network_name="blue", range="10.1.0.0/24")
            for name, range_ in (("red-10.1.0.0-25", "10.1.0.0/25"), ("blue-10.1.0.0-24", "10.1.0.0/24")):
                await env.create_pool(range_, name=name)
                await env.allocate(name, "1", "web")
            await env.create_pod("web", "n1")
            await env.create_nad("red", **SLICED)
            await env.create_node("n1")
            env.start()
            await env.until(lambda: env.assignment("red-n1-10.1.0.64-26"), "the second slice is assigned")
            assert ["red-10.1.0.0-24", "red-10.1.0.0-25"] == await env.sealed_pools()

        run_scenario(scenario)

    def test_a_pool_that_is_created_later_is_sealed_and_the_conflict_reported(self, run_scenario: RunScenario) -> None:
        """Whereabouts' plugins do not know seals."""

        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice()
            await env.create_pod("web", "n1")
            await env.create_pool("10.1.0.0/28", name="red-10.1.0.0-28")
            await env.allocate("red-10.1.0.0-28", "1", "web")
            (event,) = await env.wait_events("SliceConflict")
            assert ("NodeSlices", "n1") == (event.regarding.kind, event.regarding.name)
            assert "slice 10.1.0.0/26 overlaps with 10.1.0.1 in a shared pool" in (event.note or "")
            assert ["red-10.1.0.0-24", "red-10.1.0.0-28"] == await env.sealed_pools()

        run_scenario(scenario)

    def test_each_leader_has_its_own_seal_id(self, run_scenario: RunScenario) -> None:
        """Otherwise a former leader could still remove the seal."""

        async def scenario(env: SliceEnv) -> None:
            await env.create_nad("red", **SLICED)
            await env.create_node("n1")
            controller = env.start()
            await env.wait_slices("red-n1-10.1.0.0-26")
            first = await seal_id(env)
            await env.stop(controller)
            env.start()

            async def another() -> bool:
                return await seal_id(env) not in ("", first)

            await env.until(another, "the seal has another ID")

        run_scenario(scenario)


class TestRejections:
    def test_a_nad_that_shares_a_range_with_slices_is_rejected(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice()
            await env.create_nad("red-too", **SHARED)
            events = await env.wait_events("NetworkRejected", 2)
            name = f"{env.namespace}/red-too"
            assert {True} == {
                (each.note or "").startswith(f"{name} gets no new addresses: {name} and") for each in events
            }

        run_scenario(scenario)


class TestUnsealing:
    def test_a_pool_is_sealed_until_the_last_slice_is_returned(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.create_nad("red", **SHARED)
            assert "no NetworkAttachmentDefinition uses it any more" == await env.wait_return_requested(name)
            await asyncio.sleep(1.0)
            assert [POOL] == await env.sealed_pools()
            await env.return_slice(name)
            await env.until(lambda: nothing_sealed(env), "the range may be shared again")

        run_scenario(scenario)

    def test_a_pool_with_allocations_is_unsealed(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await allocate_shared(env)
            env.start()
            await env.create_nad("red", **SLICED)
            await env.wait_slices("red-n1-10.1.0.64-26")
            await env.create_nad("red", **SHARED)
            await env.until(lambda: nothing_sealed(env), "the range may be shared again")
            pool = await env.pool(POOL)
            assert pool
            assert ({}, ["1"]) == (pool.metadata.annotations, [*pool.spec.allocations])

        run_scenario(scenario)


async def seal_id(env: SliceEnv) -> str:
    pool = await env.pool(POOL)
    return pool.metadata.annotations[SEALED_ANNOTATION] if pool else ""


async def nothing_sealed(env: SliceEnv) -> bool:
    return not await env.sealed_pools()

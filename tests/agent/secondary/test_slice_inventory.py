"""Acknowledgements, inventories, restores of the API server, and slices that are returned after them."""

import asyncio

from podpool.api.node_slices import NODE_SLICES
from podpool.api.whereabouts import Allocation
from podpool.core.settings import Settings
from podpool.core.two_observations import OBSERVATION_INTERVAL
from tests.agent.node_env import NODE, SETTLE_TIME, NodeEnv, in_node_env
from tests.agent.secondary.slice_env import (
    SLICE,
    V4,
    add,
    assign_slice,
    call,
    change_assignment,
    enable_slices,
    failed,
    is_held,
    is_returned,
    lease_of,
    node_slices,
    pool_entries,
    pool_of,
    reported,
    request_inventory,
    request_return,
    start_with_slice,
    withdraw,
)

SETTINGS = Settings()


async def acknowledgement(env: NodeEnv, name: str) -> str:
    entry = await reported(env, name)
    return entry.acknowledgement if entry else ""


class TestAcknowledgement:
    @in_node_env
    async def test_nothing_is_assigned_before_the_acknowledgement_is_confirmed(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        assert 1 == (await call(env, "ADD", "a")).exit_code
        assert not await is_held(env, name)
        for confirmed, exit_code in (("another", 1), (await acknowledgement(env, name), 0)):
            await change_assignment(env, name, confirmed=confirmed)
            assert exit_code == (await call(env, "ADD", "a")).exit_code

    @in_node_env
    async def test_a_lost_response_to_held_is_harmless(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        await change_assignment(env, name, confirmed=await acknowledgement(env, name))
        env.transport.hide("/status")
        assert ["10.1.4.1/16"] == await add(env, "a")
        await env.kill()
        env.transport.hide(None)
        await env.start()
        assert ["10.1.4.2/16"] == await add(env, "b")
        await asyncio.sleep(SETTLE_TIME + 1.0)
        assert await is_held(env, name)

    @in_node_env
    async def test_an_inventory_request_invalidates_acknowledgements(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        before = await acknowledgement(env, name)
        await request_inventory(env, "request-1")
        await asyncio.sleep(SETTLE_TIME)
        await change_assignment(env, name, confirmed=before)
        await asyncio.sleep(SETTLE_TIME)
        assert before != await acknowledgement(env, name)
        assert 1 == (await call(env, "ADD", "a")).exit_code

    @in_node_env
    async def test_an_unconfirmed_slice_is_returned_on_request(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        await request_return(env, name)
        await asyncio.sleep(SETTLE_TIME)
        assert await is_returned(env, name)


class TestInventory:
    @in_node_env
    async def test_a_request_is_answered_with_the_whole_state(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await request_inventory(env, "first")
        await asyncio.sleep(SETTLE_TIME)
        assert "first" == (await node_slices(env)).status.inventory
        await withdraw(env, name)
        await env.kube.merge_patch(NODE_SLICES, NODE, {"status": {"slices": []}}, subresource="status")
        await request_inventory(env, "second")
        await asyncio.sleep(SETTLE_TIME)
        assert "second" == (await node_slices(env)).status.inventory
        assert await is_held(env, name)

    @in_node_env
    async def test_it_is_answered_after_a_quorum_read(self, env: NodeEnv) -> None:
        """The watch may still show the state before a restore."""
        name = await start_with_slice(env)
        copy = env.store.snapshot()
        await add(env, "a")
        await request_inventory(env, "first")
        await asyncio.sleep(SETTLE_TIME)
        env.store.restore(copy)
        await withdraw(env, name)
        await request_inventory(env, "second")
        await asyncio.sleep(60.0)
        assert "second" == (await node_slices(env)).status.inventory
        assert await is_held(env, name)
        assert 1 == (await call(env, "ADD", "b")).exit_code

    @in_node_env
    async def test_it_is_answered_if_no_watch_noticed_a_restore(self, env: NodeEnv) -> None:
        """A watch from the future receives nothing, while quorum reads show the restored state."""
        name = await start_with_slice(env)
        copy = env.store.snapshot()
        await add(env, "a")
        await asyncio.sleep(SETTLE_TIME + 1.0)
        env.transport.silence("nodeslices")
        env.store.restore(copy)
        await request_inventory(env, "first")
        await asyncio.sleep(60.0)
        assert "first" == (await node_slices(env)).status.inventory
        assert await is_held(env, name)
        assert any("the API server was restored" in line for line in env.warnings)

    @in_node_env
    async def test_of_several_requests_the_last_is_answered(self, env: NodeEnv) -> None:
        await start_with_slice(env)
        for number in range(20):
            await request_inventory(env, f"request-{number}")
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_TIME)
        assert "request-19" == (await node_slices(env)).status.inventory

    @in_node_env
    async def test_it_is_answered_after_a_restart(self, env: NodeEnv) -> None:
        await start_with_slice(env)
        await env.kill()
        await request_inventory(env, "first")
        await env.start()
        assert "first" == (await node_slices(env)).status.inventory

    @in_node_env
    async def test_it_is_answered_while_the_fence_is_closed(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        env.transport.hide("/nodes/")  # the Node cannot be confirmed
        await asyncio.sleep(SETTINGS.fence + SETTLE_TIME)
        await request_inventory(env, "first")
        await asyncio.sleep(SETTLE_TIME)
        assert "first" == (await node_slices(env)).status.inventory
        assert await is_held(env, name)

    @in_node_env
    async def test_a_rolled_back_object_is_reported_until_an_inventory_is_answered(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        copy = env.store.snapshot()
        await add(env, "a")
        await asyncio.sleep(SETTLE_TIME + 1.0)
        newest = (await node_slices(env)).metadata.resource_version
        await env.kill()
        env.store.restore(copy)
        await env.start()
        await asyncio.sleep(60.0)
        assert newest == (await node_slices(env)).status.rolled_back
        assert await is_held(env, name)
        await request_inventory(env, "first")
        await asyncio.sleep(SETTLE_TIME)
        assert ("first", "") == ((await node_slices(env)).status.inventory, (await node_slices(env)).status.rolled_back)


class TestReturning:
    @in_node_env
    async def test_a_slice_to_be_returned_is_used_while_it_is_the_only_one(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await add(env, "a")
        await request_return(env, name)
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/16"] == await add(env, "b")
        excluded = {"type": "whereabouts", "range": V4, "node_slice_size": "/28", "exclude": [SLICE]}
        assert "excluded" in (await failed(env, "ADD", "c", excluded))["msg"]

    @in_node_env
    async def test_a_slice_is_kept_during_a_forced_cooldown(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await env.reboot("boot-2")
        await env.report_boot("boot-2")
        await env.start(wait=False)
        await asyncio.sleep(SETTLE_TIME)
        await request_return(env, name)
        await asyncio.sleep(SETTINGS.cooldown_roomy - 2 * SETTLE_TIME)
        assert await is_held(env, name)
        await asyncio.sleep(3 * SETTLE_TIME)
        assert await is_returned(env, name)

    @in_node_env
    async def test_a_returned_slice_is_not_acquired_again_after_a_restore(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await add(env, "a")
        await asyncio.sleep(SETTLE_TIME + 1.0)
        copy = env.store.snapshot()
        await call(env, "DEL", "a")
        await request_return(env, name)
        await asyncio.sleep(SETTINGS.cooldown_roomy + SETTLE_TIME)
        await withdraw(env, name)
        await asyncio.sleep(SETTLE_TIME)
        env.store.restore(copy)
        await asyncio.sleep(2400.0)
        assert await is_returned(env, name)
        assert 1 == (await call(env, "ADD", "a")).exit_code
        assert (None, None) == (await pool_of(env, name), await lease_of(env, name))

    @in_node_env
    async def test_a_lost_slice_is_returned_on_request_when_it_is_unused(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env), id_="one")
        await env.start()
        await add(env, "a")
        await withdraw(env, name)
        await asyncio.sleep(SETTLE_TIME)
        await assign_slice(env, id_="one", return_reason="another node uses it")
        await asyncio.sleep(SETTLE_TIME)
        assert await is_held(env, name)
        await call(env, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown_roomy + SETTLE_TIME)
        assert await is_returned(env, name)

    @in_node_env
    async def test_an_overlapping_slice_after_a_restore_is_returned(self, env: NodeEnv) -> None:
        """It was used in this boot, by what a restored API server shows: its Pods are gone by now."""
        await assign_slice(enable_slices(env))
        await env.start()
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(1.0)
        entries = {"1": Allocation(id="earlier", podref="default/pod-earlier", ifname="net1")}
        other = await assign_slice(env, "10.1.4.0/29", entries=entries, confirmed="old", return_reason="restored")
        await asyncio.sleep(4 * OBSERVATION_INTERVAL + SETTINGS.cooldown_roomy)
        assert ["10.1.4.2/16"] == await add(env, "b")
        assert await is_returned(env, other)
        assert {} == await pool_entries(env, other)

    @in_node_env
    async def test_an_overlapping_slice_waits_until_the_other_is_returned(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        other = await assign_slice(env, "10.1.4.0/29")
        await asyncio.sleep(SETTLE_TIME)
        assert not await acknowledgement(env, other)
        await request_return(env, name)
        await asyncio.sleep(SETTLE_TIME)
        assert await is_returned(env, name)
        assert ["10.1.4.1/16"] == await add(env, "a")

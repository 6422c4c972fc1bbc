"""Lost slices after a restore of the API server: acknowledgements, reports and returns."""

import asyncio

from podpool.api.builtin import LEASES, NODES
from podpool.api.whereabouts import (
    ACKNOWLEDGED_ANNOTATION,
    BOOT_ANNOTATION,
    CONFIRMED_ANNOTATION,
    IP_POOLS,
    SLICE_INVENTORY_ANNOTATION,
    Allocation,
    LostSlice,
    SliceReport,
    slice_report,
)
from podpool.core.settings import Settings
from podpool.core.two_observations import OBSERVATION_INTERVAL
from tests.agent.node_env import NODE, SETTLE_TIME, SYSTEM, NodeEnv, in_node_env
from tests.agent.secondary.slice_env import (
    SLICE,
    V4,
    add,
    assign_slice,
    call,
    enable_slices,
    failed,
    lease_of,
    pool_entries,
    request_return,
    start_with_slice,
)

SETTINGS = Settings()
LOST = LostSlice(range=V4, slice=SLICE)


async def report(env: NodeEnv) -> SliceReport | None:
    """Return the agent's report on its Node."""
    node = await env.kube.get(NODES, NODE)
    return slice_report(node)


async def request_inventory(env: NodeEnv, request: str) -> None:
    """Request an inventory as the controller does."""
    await env.kube.merge_patch(NODES, NODE, {"metadata": {"annotations": {SLICE_INVENTORY_ANNOTATION: request}}})


async def lose(env: NodeEnv, name: str) -> None:
    """Delete IPPool and Lease."""
    await env.kube.delete(LEASES, name, namespace=SYSTEM)
    await env.kube.delete(IP_POOLS, name, namespace=SYSTEM)


async def write_lease(env: NodeEnv, name: str, *, holder: str | None) -> None:
    """Write a Lease as an older backup has it: without a holder, or held in this boot."""
    uid = (await env.kube.get(NODES, NODE)).metadata.uid
    annotations = {BOOT_ANNOTATION: env.boot_id, ACKNOWLEDGED_ANNOTATION: "old", CONFIRMED_ANNOTATION: "old"}
    change = {
        "spec": {"holderIdentity": holder and f"{holder}/{uid}"},
        "metadata": {"annotations": annotations if holder else dict.fromkeys(annotations)},
    }
    await env.kube.merge_patch(LEASES, name, change, namespace=SYSTEM)


class TestAcknowledgement:
    @in_node_env
    async def test_nothing_is_assigned_before_the_acknowledgement_is_confirmed(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        assert 1 == (await call(env, "ADD", "a")).exit_code
        lease = await lease_of(env, name)
        assert lease
        assert (lease.spec.holder_identity or "").startswith(f"{NODE}/")
        acknowledgement = lease.metadata.annotations[ACKNOWLEDGED_ANNOTATION]
        for confirmed, exit_code in (("another", 1), (acknowledgement, 0)):
            patch = {"metadata": {"annotations": {CONFIRMED_ANNOTATION: confirmed}}}
            await env.kube.merge_patch(LEASES, name, patch, namespace=SYSTEM)
            assert exit_code == (await call(env, "ADD", "a")).exit_code

    @in_node_env
    async def test_an_inventory_request_invalidates_acknowledgements(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        before = await lease_of(env, name)
        assert before
        acknowledgement = before.metadata.annotations[ACKNOWLEDGED_ANNOTATION]
        await request_inventory(env, "request-1")
        await asyncio.sleep(SETTLE_TIME)
        patch = {"metadata": {"annotations": {CONFIRMED_ANNOTATION: acknowledgement}}}
        await env.kube.merge_patch(LEASES, name, patch, namespace=SYSTEM)
        await asyncio.sleep(SETTLE_TIME)
        after = await lease_of(env, name)
        assert after
        assert acknowledgement != after.metadata.annotations[ACKNOWLEDGED_ANNOTATION]
        assert 1 == (await call(env, "ADD", "a")).exit_code

    @in_node_env
    async def test_an_unconfirmed_slice_is_returned_on_request(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        await request_return(env, name)
        await asyncio.sleep(SETTLE_TIME)
        lease = await lease_of(env, name)
        assert lease
        assert not lease.spec.holder_identity


class TestReport:
    @in_node_env
    async def test_a_lost_slice_is_reported_while_in_use_or_cooling_down(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await add(env, "a")
        await asyncio.sleep(1.0)
        assert await report(env) is None
        await lose(env, name)
        await asyncio.sleep(SETTLE_TIME)
        assert SliceReport(lost=(LOST,)) == await report(env)
        await call(env, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown_roomy - SETTLE_TIME)
        assert SliceReport(lost=(LOST,)) == await report(env)
        await asyncio.sleep(2 * SETTLE_TIME)
        assert SliceReport() == await report(env)

    @in_node_env
    async def test_a_lost_slice_is_reported_after_a_restart(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await add(env, "a")
        await env.kill()
        await lose(env, name)
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        assert SliceReport(lost=(LOST,)) == await report(env)

    @in_node_env
    async def test_a_slice_that_is_acquired_again_is_not_reported(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await add(env, "a")
        await asyncio.sleep(1.0)
        await lose(env, name)
        await asyncio.sleep(SETTLE_TIME)
        await assign_slice(env)
        await asyncio.sleep(SETTLE_TIME)
        assert SliceReport() == await report(env)
        assert {"1": "a"} == await pool_entries(env, name)

    @in_node_env
    async def test_an_inventory_request_is_answered_after_quorum_reads(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await add(env, "a")
        await asyncio.sleep(1.0)
        env.store.on_write.append(lambda _: None)
        copy = env.store.snapshot()
        await request_inventory(env, "first")
        await asyncio.sleep(SETTLE_TIME)
        assert SliceReport(inventory="first") == await report(env)
        env.store.restore(copy)
        await lose(env, name)
        await request_inventory(env, "second")
        await asyncio.sleep(60.0)
        assert SliceReport(inventory="second", lost=(LOST,)) == await report(env)
        assert 1 == (await call(env, "ADD", "b")).exit_code


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
        lease = await lease_of(env, name)
        assert lease
        assert lease.spec.holder_identity
        await asyncio.sleep(3 * SETTLE_TIME)
        lease = await lease_of(env, name)
        assert lease
        assert not lease.spec.holder_identity

    @in_node_env
    async def test_a_returned_slice_is_not_acquired_again_after_a_restore(self, env: NodeEnv) -> None:
        name = await start_with_slice(env)
        await request_return(env, name)
        await asyncio.sleep(SETTLE_TIME)
        await write_lease(env, name, holder=None)
        await asyncio.sleep(SETTLE_TIME)
        lease = await lease_of(env, name)
        assert lease
        assert not lease.spec.holder_identity
        assert BOOT_ANNOTATION in lease.metadata.annotations  # so that the controller replaces it

    @in_node_env
    async def test_an_overlapping_slice_after_a_restore_is_returned(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(1.0)
        entries = {"1": Allocation(id="earlier", podref="default/pod-earlier", ifname="net1")}
        other = await assign_slice(env, "10.1.4.0/29", entries=entries)
        await request_return(env, other)
        await write_lease(env, other, holder=NODE)
        await asyncio.sleep(4 * OBSERVATION_INTERVAL + SETTINGS.cooldown_roomy)
        assert ["10.1.4.2/16"] == await add(env, "b")
        lease = await lease_of(env, other)
        assert lease
        assert not lease.spec.holder_identity
        assert {} == await pool_entries(env, other)

"""Slices that are lost: an API server was restored from an older copy, and knows nothing of them any more."""

import asyncio

from podpool.api.builtin import LEASES, NODES
from podpool.api.whereabouts import (
    BOOT_ANNOTATION,
    GRANTED_ANNOTATION,
    IP_POOLS,
    SIGNATURE_ANNOTATION,
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
)

SETTINGS = Settings()
LOST = LostSlice(range=V4, slice=SLICE)


async def told(env: NodeEnv) -> SliceReport | None:
    """What the agent tells on its Node."""
    node = await env.kube.get(NODES, NODE)
    return slice_report(node)


async def ask(env: NodeEnv, question: str) -> None:
    """Ask as the controller does."""
    await env.kube.merge_patch(NODES, NODE, {"metadata": {"annotations": {SLICE_INVENTORY_ANNOTATION: question}}})


async def lose(env: NodeEnv, name: str) -> None:
    """Let IPPool and Lease be as if they had never been."""
    await env.kube.delete(LEASES, name, namespace=SYSTEM)
    await env.kube.delete(IP_POOLS, name, namespace=SYSTEM)


async def show(env: NodeEnv, name: str, *, holder: str | None) -> None:
    """Let a Lease be as a copy has it: of before it was signed, or from when it was held in this boot."""
    uid = (await env.kube.get(NODES, NODE)).metadata.uid
    notes = {BOOT_ANNOTATION: env.boot_id, SIGNATURE_ANNOTATION: "old", GRANTED_ANNOTATION: "old"}
    change = {
        "spec": {"holderIdentity": holder and f"{holder}/{uid}"},
        "metadata": {"annotations": notes if holder else dict.fromkeys(notes)},
    }
    await env.kube.merge_patch(LEASES, name, change, namespace=SYSTEM)


class TestAgreement:
    @in_node_env
    async def test_nothing_is_given_before_the_signature_is_agreed_to(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        assert 1 == (await call(env, "ADD", "a")).exit_code
        lease = await lease_of(env, name)
        assert lease
        assert (lease.spec.holder_identity or "").startswith(f"{NODE}/")
        signature = lease.metadata.annotations[SIGNATURE_ANNOTATION]
        for agreed, exit_code in (("another", 1), (signature, 0)):
            note = {"metadata": {"annotations": {GRANTED_ANNOTATION: agreed}}}
            await env.kube.merge_patch(LEASES, name, note, namespace=SYSTEM)
            assert exit_code == (await call(env, "ADD", "a")).exit_code

    @in_node_env
    async def test_what_was_agreed_to_before_a_question_is_signed_anew(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        before = await lease_of(env, name)
        assert before
        signature = before.metadata.annotations[SIGNATURE_ANNOTATION]
        await ask(env, "who has what")
        await asyncio.sleep(SETTLE_TIME)
        note = {"metadata": {"annotations": {GRANTED_ANNOTATION: signature}}}
        await env.kube.merge_patch(LEASES, name, note, namespace=SYSTEM)
        await asyncio.sleep(SETTLE_TIME)
        after = await lease_of(env, name)
        assert after
        assert signature != after.metadata.annotations[SIGNATURE_ANNOTATION]
        assert 1 == (await call(env, "ADD", "a")).exit_code

    @in_node_env
    async def test_who_is_asked_to_leave_what_it_only_signed_lets_go_of_it(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env, confirming=False))
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        await request_return(env, name)
        await asyncio.sleep(SETTLE_TIME)
        lease = await lease_of(env, name)
        assert lease
        assert not lease.spec.holder_identity


class TestTelling:
    @in_node_env
    async def test_a_lost_slice_is_told_for_as_long_as_it_is_in_use_or_rests(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        assert await told(env) is None
        await lose(env, name)
        await asyncio.sleep(SETTLE_TIME)
        assert SliceReport(lost=(LOST,)) == await told(env)
        await call(env, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown - SETTLE_TIME)
        assert SliceReport(lost=(LOST,)) == await told(env)
        await asyncio.sleep(2 * SETTLE_TIME)
        assert SliceReport() == await told(env)

    @in_node_env
    async def test_also_after_a_restart(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await env.kill()
        await lose(env, name)
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        assert SliceReport(lost=(LOST,)) == await told(env)

    @in_node_env
    async def test_it_is_told_no_more_when_it_is_the_nodes_again(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await lose(env, name)
        await asyncio.sleep(SETTLE_TIME)
        await assign_slice(env)
        await asyncio.sleep(SETTLE_TIME)
        assert SliceReport() == await told(env)
        assert {"1": "a"} == await pool_entries(env, name)

    @in_node_env
    async def test_a_question_is_answered_after_quorum_reads_whatever_the_watch_shows(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        env.store.on_write.append(lambda _: None)
        copy = env.store.snapshot()
        await ask(env, "first")
        await asyncio.sleep(SETTLE_TIME)
        assert SliceReport(inventory="first") == await told(env)
        env.store.restore(copy)
        await lose(env, name)
        await ask(env, "second")
        await asyncio.sleep(60.0)
        assert SliceReport(inventory="second", lost=(LOST,)) == await told(env)
        assert 1 == (await call(env, "ADD", "b")).exit_code


class TestLeaving:
    @in_node_env
    async def test_a_slice_that_is_to_leave_serves_while_it_is_the_only_one(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await request_return(env, name)
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/16"] == await add(env, "b")
        excluded = {"type": "whereabouts", "range": V4, "node_slice_size": "/28", "exclude": [SLICE]}
        assert "excluded" in (await failed(env, "ADD", "c", excluded))["msg"]

    @in_node_env
    async def test_it_is_kept_while_addresses_of_it_may_rest_that_nobody_knows_of(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await env.reboot("boot-2")
        await env.report_boot("boot-2")
        await env.start(wait=False)
        await asyncio.sleep(SETTLE_TIME)
        await request_return(env, name)
        await asyncio.sleep(SETTINGS.cooldown - 2 * SETTLE_TIME)
        lease = await lease_of(env, name)
        assert lease
        assert lease.spec.holder_identity
        await asyncio.sleep(3 * SETTLE_TIME)
        lease = await lease_of(env, name)
        assert lease
        assert not lease.spec.holder_identity

    @in_node_env
    async def test_one_that_was_handed_back_is_not_taken_again_when_a_copy_offers_it(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await request_return(env, name)
        await asyncio.sleep(SETTLE_TIME)
        await show(env, name, holder=None)
        await asyncio.sleep(SETTLE_TIME)
        lease = await lease_of(env, name)
        assert lease
        assert not lease.spec.holder_identity
        assert BOOT_ANNOTATION in lease.metadata.annotations  # so that the controller replaces it

    @in_node_env
    async def test_one_that_a_copy_shows_beside_another_is_handed_back(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(1.0)
        entries = {"1": Allocation(id="earlier", podref="default/pod-earlier", ifname="net1")}
        other = await assign_slice(env, "10.1.4.0/29", entries=entries)
        await request_return(env, other)
        await show(env, other, holder=NODE)
        await asyncio.sleep(4 * OBSERVATION_INTERVAL)
        assert ["10.1.4.2/16"] == await add(env, "b")
        lease = await lease_of(env, other)
        assert lease
        assert not lease.spec.holder_identity
        assert {} == await pool_entries(env, other)

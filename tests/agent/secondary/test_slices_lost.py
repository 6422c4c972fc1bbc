"""Slices that are lost: an API server was restored from an older copy, and knows nothing of them any more."""

import asyncio

from podpool.agent.lost_grant_gc import APART
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
from tests.agent.secondary.slice_world import (
    SLICE,
    V4,
    add,
    ask_to_leave,
    call,
    lease_of,
    offer,
    refused,
    shown,
    with_slices,
)
from tests.agent.worlds import NODE, SETTLED, SYSTEM, World, in_world

SETTINGS = Settings()
LOST = LostSlice(range=V4, slice=SLICE)


async def told(world: World) -> SliceReport | None:
    """What the agent tells on its Node."""
    node = await world.kube.get(NODES, NODE)
    return slice_report(node)


async def ask(world: World, question: str) -> None:
    """Ask as the controller does."""
    await world.kube.merge(NODES, NODE, {"metadata": {"annotations": {SLICE_INVENTORY_ANNOTATION: question}}})


async def lose(world: World, name: str) -> None:
    """Let IPPool and Lease be as if they had never been."""
    await world.kube.delete(LEASES, name, namespace=SYSTEM)
    await world.kube.delete(IP_POOLS, name, namespace=SYSTEM)


async def show(world: World, name: str, *, holder: str | None) -> None:
    """Let a Lease be as a copy has it: of before it was signed, or from when it was held in this boot."""
    uid = (await world.kube.get(NODES, NODE)).metadata.uid
    notes = {BOOT_ANNOTATION: world.boot_id, SIGNATURE_ANNOTATION: "old", GRANTED_ANNOTATION: "old"}
    change = {
        "spec": {"holderIdentity": holder and f"{holder}/{uid}"},
        "metadata": {"annotations": notes if holder else dict.fromkeys(notes)},
    }
    await world.kube.merge(LEASES, name, change, namespace=SYSTEM)


class TestAgreement:
    @in_world
    async def test_nothing_is_given_before_the_signature_is_agreed_to(self, world: World) -> None:
        name = await offer(with_slices(world, agreeing=False))
        await world.start()
        await asyncio.sleep(SETTLED)
        assert 1 == (await call(world, "ADD", "a")).exit_code
        lease = await lease_of(world, name)
        assert lease
        assert (lease.spec.holder_identity or "").startswith(f"{NODE}/")
        signature = lease.metadata.annotations[SIGNATURE_ANNOTATION]
        for agreed, exit_code in (("another", 1), (signature, 0)):
            note = {"metadata": {"annotations": {GRANTED_ANNOTATION: agreed}}}
            await world.kube.merge(LEASES, name, note, namespace=SYSTEM)
            assert exit_code == (await call(world, "ADD", "a")).exit_code

    @in_world
    async def test_what_was_agreed_to_before_a_question_is_signed_anew(self, world: World) -> None:
        name = await offer(with_slices(world, agreeing=False))
        await world.start()
        await asyncio.sleep(SETTLED)
        before = await lease_of(world, name)
        assert before
        signature = before.metadata.annotations[SIGNATURE_ANNOTATION]
        await ask(world, "who has what")
        await asyncio.sleep(SETTLED)
        note = {"metadata": {"annotations": {GRANTED_ANNOTATION: signature}}}
        await world.kube.merge(LEASES, name, note, namespace=SYSTEM)
        await asyncio.sleep(SETTLED)
        after = await lease_of(world, name)
        assert after
        assert signature != after.metadata.annotations[SIGNATURE_ANNOTATION]
        assert 1 == (await call(world, "ADD", "a")).exit_code

    @in_world
    async def test_who_is_asked_to_leave_what_it_only_signed_lets_go_of_it(self, world: World) -> None:
        name = await offer(with_slices(world, agreeing=False))
        await world.start()
        await asyncio.sleep(SETTLED)
        await ask_to_leave(world, name)
        await asyncio.sleep(SETTLED)
        lease = await lease_of(world, name)
        assert lease
        assert not lease.spec.holder_identity


class TestTelling:
    @in_world
    async def test_a_lost_slice_is_told_for_as_long_as_it_is_in_use_or_rests(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        assert await told(world) is None
        await lose(world, name)
        await asyncio.sleep(SETTLED)
        assert SliceReport(lost=(LOST,)) == await told(world)
        await call(world, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown - SETTLED)
        assert SliceReport(lost=(LOST,)) == await told(world)
        await asyncio.sleep(2 * SETTLED)
        assert SliceReport() == await told(world)

    @in_world
    async def test_also_after_a_restart(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await world.kill()
        await lose(world, name)
        await world.start()
        await asyncio.sleep(SETTLED)
        assert SliceReport(lost=(LOST,)) == await told(world)

    @in_world
    async def test_it_is_told_no_more_when_it_is_the_nodes_again(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        await lose(world, name)
        await asyncio.sleep(SETTLED)
        await offer(world)
        await asyncio.sleep(SETTLED)
        assert SliceReport() == await told(world)
        assert {"1": "a"} == await shown(world, name)

    @in_world
    async def test_a_question_is_answered_after_quorum_reads_whatever_the_watch_shows(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        world.store.on_write.append(lambda _: None)
        copy = world.store.snapshot()
        await ask(world, "first")
        await asyncio.sleep(SETTLED)
        assert SliceReport(listed="first") == await told(world)
        world.store.restore(copy)
        await lose(world, name)
        await ask(world, "second")
        await asyncio.sleep(60.0)
        assert SliceReport(listed="second", lost=(LOST,)) == await told(world)
        assert 1 == (await call(world, "ADD", "b")).exit_code


class TestLeaving:
    @in_world
    async def test_a_slice_that_is_to_leave_serves_while_it_is_the_only_one(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await ask_to_leave(world, name)
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/16"] == await add(world, "b")
        excluded = {"type": "whereabouts", "range": V4, "node_slice_size": "/28", "exclude": [SLICE]}
        assert "excluded" in (await refused(world, "ADD", "c", excluded))["msg"]

    @in_world
    async def test_it_is_kept_while_addresses_of_it_may_rest_that_nobody_knows_of(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await world.reboot("boot-2")
        await world.report_boot("boot-2")
        await world.start(wait=False)
        await asyncio.sleep(SETTLED)
        await ask_to_leave(world, name)
        await asyncio.sleep(SETTINGS.cooldown - 2 * SETTLED)
        lease = await lease_of(world, name)
        assert lease
        assert lease.spec.holder_identity
        await asyncio.sleep(3 * SETTLED)
        lease = await lease_of(world, name)
        assert lease
        assert not lease.spec.holder_identity

    @in_world
    async def test_one_that_was_handed_back_is_not_taken_again_when_a_copy_offers_it(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await ask_to_leave(world, name)
        await asyncio.sleep(SETTLED)
        await show(world, name, holder=None)
        await asyncio.sleep(SETTLED)
        lease = await lease_of(world, name)
        assert lease
        assert not lease.spec.holder_identity
        assert BOOT_ANNOTATION in lease.metadata.annotations  # so that the controller replaces it

    @in_world
    async def test_one_that_a_copy_shows_beside_another_is_handed_back(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        assert ["10.1.4.1/16"] == await add(world, "a")
        await asyncio.sleep(1.0)
        entries = {"1": Allocation(id="earlier", podref="default/pod-earlier", ifname="net1")}
        other = await offer(world, "10.1.4.0/29", entries=entries)
        await ask_to_leave(world, other)
        await show(world, other, holder=NODE)
        await asyncio.sleep(4 * APART)
        assert ["10.1.4.2/16"] == await add(world, "b")
        lease = await lease_of(world, other)
        assert lease
        assert not lease.spec.holder_identity
        assert {} == await shown(world, other)

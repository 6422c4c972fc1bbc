"""A slice's life beside its ADDs: taken, written behind, meddled with, handed back, lost; restarts and reboots."""

import asyncio
import json
import random
from typing import ClassVar

import pytest

from podpool.agent.deps import AgentDeps
from podpool.agent.lost_grant_gc import APART
from podpool.agent.metrics import AgentMetrics
from podpool.agent.secondary.slice_informers import SliceInformers
from podpool.agent.secondary.slice_leases import SliceLeases
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import LEASES, NODES, Lease
from podpool.api.whereabouts import (
    BOOT_ANNOTATION,
    GRANTED_ANNOTATION,
    IP_POOLS,
    NODE_UID_LABEL,
    SIGNATURE_ANNOTATION,
    Allocation,
)
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.runtime.process import health_handler
from podpool.runtime.transport import Request, Unreachable
from tests.agent.secondary.slice_world import (
    DUAL,
    IPAM,
    SLICE,
    SLICE6,
    V4,
    V6,
    add,
    ask_to_leave,
    call,
    lease_of,
    offer,
    pool_of,
    ranged,
    refused,
    shown,
    with_slices,
)
from tests.agent.worlds import NODE, SETTLED, SYSTEM, World, in_world

SETTINGS = Settings()
FOREIGN = Allocation(id="x", podref="default/pod-x", ifname="net1")


async def holder(world: World, name: str) -> str:
    lease = await lease_of(world, name)
    return (lease.spec.holder_identity or "") if lease else "gone"


async def scribble(world: World, name: str, entries: dict[str, Allocation | None]) -> None:
    """Write into an IPPool with another hand."""
    written = {
        key: each and {"id": each.id, "podref": each.podref, "ifname": each.ifname} for key, each in entries.items()
    }
    await world.kube.merge(IP_POOLS, name, {"spec": {"allocations": written}}, namespace=SYSTEM)


class TestTaking:
    @in_world
    async def test_nothing_is_given_while_another_holds_the_lease(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.kube.merge(LEASES, name, {"spec": {"holderIdentity": "other/1"}}, namespace=SYSTEM)
        await world.start()
        assert "held by other/1" in (await refused(world, "ADD", "a"))["msg"]
        await world.kube.merge(LEASES, name, {"spec": {"holderIdentity": None}}, namespace=SYSTEM)
        assert ["10.1.4.1/16"] == await add(world, "a")

    @in_world
    async def test_nothing_is_taken_under_another_boot(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.report_boot("another")
        await world.start()
        assert "" == await holder(world, name)
        assert "confirm" in (await refused(world, "ADD", "a"))["msg"]

    @in_world
    async def test_what_a_predecessor_gave_stays_with_its_pods(self, world: World) -> None:
        """As after moving in from Whereabouts: the entries of its Pods are believed, and their DELs are done."""
        name = await offer(with_slices(world), entries={"1": FOREIGN})
        await world.bind("pod-x")
        await world.start()
        assert ["10.1.4.2/16"] == await add(world, "a")
        assert ["10.1.4.1/16"] == await add(world, "x")
        await asyncio.sleep(1.0)
        assert {"1": "x", "2": "a"} == await shown(world, name)
        await call(world, "DEL", "x")
        await asyncio.sleep(1.0)
        assert {"2": "a"} == await shown(world, name)

    @in_world
    async def test_a_signature_counts_no_more_once_its_lease_is_let_go_of_whatever_comes_of_that(
        self, world: World
    ) -> None:
        """The answer may be lost, and a watch may show the Lease for a while as it was before."""
        name = await offer(world)
        rng = random.Random(1)  # noqa: S311  seeded
        told, clock = world.told.append, world.clock
        deps = AgentDeps(node=NODE, kube=KubeClient(world.road), clock=clock, rng=rng, settings=SETTINGS, tell=told)
        leases = SliceLeases(deps, SliceInformers(deps, SYSTEM, changed=lambda _: None), boot_id=world.boot_id)
        await leases.sign(await world.kube.get(LEASES, name, namespace=SYSTEM))
        signature = (await world.kube.get(LEASES, name, namespace=SYSTEM)).metadata.annotations[SIGNATURE_ANNOTATION]
        note = {"metadata": {"annotations": {GRANTED_ANNOTATION: signature}}}
        agreed = await world.kube.merge(LEASES, name, note, namespace=SYSTEM)
        assert leases.agreed(agreed)
        world.road.cut = True
        with pytest.raises(Unreachable):
            await leases.let_go(agreed)
        assert not leases.agreed(agreed)
        assert not leases.is_pending(agreed)


class TestWritingBehind:
    @in_world
    async def test_many_changes_are_one_patch(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        world.road.others = 0
        for each in "abcdef":
            await add(world, each)
        await call(world, "DEL", "c")
        assert {} == await shown(world, name)
        await asyncio.sleep(1.0)
        assert 1 == world.road.others
        assert list("abdef") == list((await shown(world, name)).values())

    @in_world
    async def test_out_of_reach_it_gives_and_the_pool_follows_later(self, world: World) -> None:
        name = await offer(with_slices(world))
        agent = await world.start()
        world.road.cut = True
        assert [["10.1.4.1/16"], ["10.1.4.2/16"]] == [await add(world, each) for each in "ab"]
        await asyncio.sleep(20.0)
        assert 19 < agent.picture().slices[0].lag < 21
        world.road.cut = False
        await asyncio.sleep(16.0)
        assert {"1": "a", "2": "b"} == await shown(world, name)
        assert 0.0 == agent.picture().slices[0].lag

    @in_world
    async def test_a_foreign_hand_is_mended_without_a_double_assignment(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.bind("pod-x")
        await world.start()
        await add(world, "a")
        await add(world, "b")
        await asyncio.sleep(1.0)
        await scribble(world, name, {"1": FOREIGN, "2": None, "3": FOREIGN, "nonsense": FOREIGN})
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b", "3": "x", "nonsense": "x"} == await shown(world, name)
        assert ["10.1.4.4/16"] == await add(world, "c")

    @in_world
    async def test_a_foreign_entry_whose_pod_is_gone_is_released_after_two_looks(self, world: World) -> None:
        name = await offer(with_slices(world), entries={"1": FOREIGN})
        await world.start()
        await asyncio.sleep(50.0)
        assert {"1": "x"} == await shown(world, name)
        await asyncio.sleep(90.0)
        assert {} == await shown(world, name)

    @in_world
    async def test_or_whose_pod_asks_again_in_vain(self, world: World) -> None:
        """Nobody who waits for an address waits for one of its own."""
        entries = {key: Allocation(id=f"old-{key}", podref=f"default/pod-{key}", ifname="net1") for key in "12"}
        await offer(with_slices(world), "10.1.4.0/30", entries=entries)
        await world.start()
        for pod in "12":
            await world.bind(f"pod-{pod}")
            assert "no free address" in (await refused(world, "ADD", pod))["msg"]
        await asyncio.sleep(3 * APART)
        assert {"10.1.4.1/16", "10.1.4.2/16"} == {address for pod in "12" for address in await add(world, pod)}

    @in_world
    async def test_a_foreign_entry_behind_the_back_of_an_add_comes_second(self, world: World) -> None:
        """The sandbox was answered: its entry is put back over the other's."""
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await scribble(world, name, {"1": FOREIGN})
        await asyncio.sleep(1.0)
        assert {"1": "a"} == await shown(world, name)

    @in_world
    async def test_a_pool_that_somebody_deleted_is_filled_again(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        before = await pool_of(world, name)
        await world.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        assert ["10.1.4.2/16"] == await add(world, "b")
        same = {"labels": before.metadata.labels, "annotations": before.metadata.annotations}
        again = {"metadata": {"name": name, "namespace": SYSTEM, **same}, "spec": {"range": SLICE, "allocations": {}}}
        await world.kube.create(IP_POOLS, again)
        await asyncio.sleep(2.0)
        assert {"1": "a", "2": "b"} == await shown(world, name)


class TestHandingBack:
    @in_world
    async def test_when_nothing_is_held_or_rests(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await ask_to_leave(world, name)
        await asyncio.sleep(1.0)
        assert ["10.1.4.1/16"] == await add(world, "a")
        await call(world, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown - 5)
        assert (await holder(world, name)).startswith(NODE)
        await asyncio.sleep(6)
        assert "" == await holder(world, name)
        assert {} == await shown(world, name)
        assert "handed back (the range changed)" in (await refused(world, "ADD", "b"))["msg"]

    @in_world
    async def test_another_slice_serves_meanwhile(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await ask_to_leave(world, name)
        await offer(world, "10.1.8.0/28")
        await asyncio.sleep(1.0)
        assert ["10.1.8.1/16"] == await add(world, "b")
        assert ["10.1.4.1/16"] == await add(world, "a")

    @pytest.mark.parametrize("killed_at", range(6))
    def test_a_death_on_the_way_is_finished_by_the_next(self, killed_at: int) -> None:
        @in_world
        async def story(world: World) -> None:
            name = await offer(with_slices(world))
            await world.start()
            await ask_to_leave(world, name)
            for _ in range(killed_at):
                await asyncio.sleep(0)
            await world.kill()
            await world.start()
            assert "" == await holder(world, name)
            assert 1 == (await call(world, "ADD", "c")).exit_code

        story()

    @in_world
    async def test_a_lost_lease_closes_the_slice_and_a_new_one_keeps_its_pods(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        await world.kube.delete(LEASES, name, namespace=SYSTEM)
        await world.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        await asyncio.sleep(1.0)
        assert 1 == (await call(world, "ADD", "b")).exit_code
        assert ["10.1.4.1/16"] == await add(world, "a")
        await offer(world)
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/16"] == await add(world, "b")
        assert ["10.1.4.1/16"] == await add(world, "a")
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b"} == await shown(world, name)

    @in_world
    async def test_a_lost_lease_that_a_restored_copy_brings_back_is_kept_while_pods_have_addresses(
        self, world: World
    ) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(2.0)
        held, copy = await holder(world, name), world.store.snapshot()
        await world.kube.delete(LEASES, name, namespace=SYSTEM)
        await world.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        await asyncio.sleep(SETTLED)
        world.store.restore(copy)
        await asyncio.sleep(2400.0)
        assert held == await holder(world, name)
        assert {"1": "a"} == await shown(world, name)
        await call(world, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown + SETTLED)
        assert "" == await holder(world, name)
        assert {} == await shown(world, name)

    @in_world
    async def test_but_left_alone_where_another_holds_it(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(2.0)
        await world.kube.merge(LEASES, name, {"spec": {"holderIdentity": "other/1"}}, namespace=SYSTEM)
        copy = world.store.snapshot()
        await world.kube.delete(LEASES, name, namespace=SYSTEM)
        await asyncio.sleep(SETTLED)
        world.store.restore(copy)
        await asyncio.sleep(60.0)
        assert "other/1" == await holder(world, name)


class TestAnotherRange:
    """The definition's range was made larger or smaller: the controller names the new one on the slices that fit."""

    WIDER: ClassVar = {**IPAM, "range": "10.0.0.0/15"}

    @in_world
    async def test_a_slice_that_fits_serves_the_range_as_it_is_now(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await ranged(world, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/15"] == await add(world, "b", self.WIDER)
        assert ["10.1.4.1/15"] == await add(world, "a", self.WIDER)

    @in_world
    async def test_and_nobody_who_asks_for_another(self, world: World) -> None:
        """A definition that was refused, whose range has the slice too, gets nothing of it."""
        name = await offer(with_slices(world))
        await world.start()
        await ranged(world, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert "has no slice of 10.1.0.0/16" in (await refused(world, "ADD", "a"))["msg"]

    @in_world
    async def test_also_after_a_restart_out_of_reach(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await ranged(world, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        world.road.cut = True
        await world.kill()
        await world.start()
        assert ["10.1.4.1/15"] == await add(world, "a", self.WIDER)

    @in_world
    async def test_who_waits_is_served_when_it_is_told(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        asked = asyncio.create_task(add(world, "a", self.WIDER))
        await asyncio.sleep(1.0)
        await ranged(world, name, "10.0.0.0/15")
        assert ["10.1.4.1/15"] == await asyncio.wait_for(asked, 1.0)

    @in_world
    async def test_one_that_is_asked_back_serves_until_there_is_another(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await ranged(world, name, "10.0.0.0/15", "10.0.0.0/15 is cut into slices of /29 now")
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/15"] == await add(world, "b", self.WIDER)
        await offer(world, "10.0.8.0/29", range_="10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert ["10.0.8.1/15"] == await add(world, "c", self.WIDER)

    @in_world
    async def test_only_addresses_of_the_smaller_range_are_given(self, world: World) -> None:
        smaller = {**IPAM, "range": "10.1.4.8/29", "node_slice_size": "/30"}
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await ranged(world, name, "10.1.4.8/29", "10.1.4.8/29 is cut into slices of /30 now")
        await asyncio.sleep(1.0)
        assert ["10.1.4.9/29"] == await add(world, "b", smaller)
        assert ["10.1.4.10/29"] == await add(world, "a", smaller)

    @in_world
    async def test_a_check_goes_by_what_the_sandbox_was_given(self, world: World) -> None:
        """The runtime asks with the configuration of the ADD, whatever the definition says by now."""
        name = await offer(with_slices(world))
        await world.start()
        given = (await call(world, "ADD", "a")).stdout
        await ranged(world, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert 0 == (await call(world, "CHECK", "a", prevResult=json.loads(given))).exit_code

    @in_world
    async def test_a_range_that_cannot_be_read_changes_nothing(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await ranged(world, name, "nonsense")
        await asyncio.sleep(1.0)
        assert ["10.1.4.1/16"] == await add(world, "a")


class TestRestarts:
    @in_world
    async def test_a_killed_agent_serves_again_with_nobody_to_ask(self, world: World) -> None:
        name = await offer(with_slices(world))
        await offer(world, SLICE6, range_=V6)
        await world.start()
        await add(world, "a", DUAL)
        world.road.cut = True
        await call(world, "DEL", "a", DUAL)
        await add(world, "b", DUAL)
        await world.kill()
        await world.start()
        assert ["10.1.4.2/16", "fd00::402/64"] == await add(world, "b", DUAL)
        assert ["10.1.4.3/16", "fd00::403/64"] == await add(world, "c", DUAL)
        world.road.cut = False
        await asyncio.sleep(40.0)
        assert {"2": "b", "3": "c"} == await shown(world, name)

    @in_world
    async def test_a_reboot_voids_what_sandboxes_had_and_it_rests(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        await world.reboot("boot-2", clean=True)
        await world.report_boot("boot-2")
        await world.start()
        assert ["10.1.4.2/16"] == await add(world, "b")
        await asyncio.sleep(1.0)
        assert {"2": "b"} == await shown(world, name)
        lease = await lease_of(world, name)
        assert lease
        assert "boot-2" == lease.metadata.annotations[BOOT_ANNOTATION]

    @in_world
    async def test_a_power_cut_lets_everything_rest(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await world.reboot("boot-2")
        await world.report_boot("boot-2")
        await world.start(wait=False)
        began = asyncio.get_running_loop().time()
        await add(world, "b")
        assert asyncio.get_running_loop().time() - began >= SETTINGS.cooldown_exhausted

    @in_world
    async def test_behind_the_fence_nothing_new_and_the_same_again(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        world.road.cut = True
        await asyncio.sleep(SETTINGS.fence + 1)
        assert "confirm" in (await refused(world, "ADD", "b"))["msg"]
        assert ["10.1.4.1/16"] == await add(world, "a")
        world.road.cut = False
        await asyncio.sleep(20.0)
        assert ["10.1.4.2/16"] == await add(world, "b")


class TestTheNode:
    @in_world
    async def test_98_an_agent_whose_node_is_not_there_gives_nothing_and_names_it(self, world: World) -> None:
        """Theirs does not start; ours goes on as soon as its Node is registered."""
        with_slices(world)
        await world.kube.delete(NODES, NODE)
        await world.start()
        error = await refused(world, "ADD", "a")
        assert (11, True) == (error["code"], NODE in error["msg"])
        await world.register_node()
        await offer(world)
        assert ["10.1.4.1/16"] == await add(world, "a")

    @in_world
    async def test_without_a_network_container_it_is_ready_and_confirms_itself(self, world: World) -> None:
        """A cluster of slices alone: no NNC, no ledger, no subnet."""
        await world.kube.delete(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM)
        await offer(with_slices(world))
        agent = await world.start()
        assert agent.missing() is None
        assert not agent.able.is_set()
        assert ["10.1.4.1/16"] == await add(world, "a")
        await asyncio.sleep(3 * SETTINGS.fence)
        assert ["10.1.4.2/16"] == await add(world, "b")

    @in_world
    async def test_registered_again_in_the_same_boot_it_keeps_its_slice(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        await world.kube.delete(NODES, NODE)
        await world.register_node()
        await asyncio.sleep(SETTLED)
        assert ["10.1.4.2/16"] == await add(world, "b")
        uid = (await world.kube.get(NODES, NODE)).metadata.uid
        relabelled = {"metadata": {"labels": {NODE_UID_LABEL: uid}}}
        await world.kube.merge(IP_POOLS, name, relabelled, namespace=SYSTEM)
        await world.kube.merge(LEASES, name, relabelled, namespace=SYSTEM)
        await asyncio.sleep(SETTLED)
        assert f"{NODE}/{uid}" == await holder(world, name)
        assert {"1": "a", "2": "b"} == await shown(world, name)

    @in_world
    async def test_registered_again_it_is_confirmed_when_its_leases_are_the_new_nodes(self, world: World) -> None:
        """Until then the controller misses the old Node, and the time for which it does so is not counted anew."""
        name = await offer(with_slices(world))
        await world.start()
        await world.kube.delete(NODES, NODE)
        await world.register_node()
        await asyncio.sleep(world.settings.fence + SETTLED)
        assert 1 == (await call(world, "ADD", "a")).exit_code
        uid = (await world.kube.get(NODES, NODE)).metadata.uid
        relabelled = {"metadata": {"labels": {NODE_UID_LABEL: uid}}}
        await world.kube.merge(IP_POOLS, name, relabelled, namespace=SYSTEM)
        await world.kube.merge(LEASES, name, relabelled, namespace=SYSTEM)
        await asyncio.sleep(world.settings.confirmation_interval)
        assert ["10.1.4.1/16"] == await add(world, "a")

    @in_world
    async def test_nor_does_its_network_container_confirm_it_for_slices_whose_leases_are_not_seen(
        self, world: World
    ) -> None:
        """Others may have the slice by then: the Node was away for long, and its Leases are gone."""
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        world.road.cut = True
        await asyncio.sleep(world.settings.fence + world.settings.confirmation_interval)
        await world.kube.delete(NODES, NODE)
        await world.kube.delete(LEASES, name, namespace=SYSTEM)
        await world.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        await world.register_node()
        uid = (await world.kube.get(NODES, NODE)).metadata.uid
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
        await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, {"metadata": {"ownerReferences": [owner]}}, namespace=SYSTEM)
        world.road.hide("leases")
        world.road.cut = False
        await asyncio.sleep(60.0)
        assert "confirm" in (await refused(world, "ADD", "b"))["msg"]
        assert await world.add("b")
        world.road.hide(None)
        await asyncio.sleep(60.0)
        assert "no slice" in (await refused(world, "ADD", "b"))["msg"]

    @in_world
    async def test_registered_again_in_another_boot_it_is_another_node(self, world: World) -> None:
        """Its old slice is given to others once the old Node is gone: nothing more is given of it."""
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await asyncio.sleep(1.0)
        await world.reboot("boot-2", clean=True)
        await world.kube.delete(NODES, NODE)
        await world.register_node()
        await world.start()
        assert 1 == (await call(world, "ADD", "b")).exit_code
        assert world.boot_id != ((await lease_of(world, name)) or Lease()).metadata.annotations[BOOT_ANNOTATION]
        await offer(world, "10.1.8.0/28")
        await asyncio.sleep(SETTLED)
        assert ["10.1.8.1/16"] == await add(world, "b")

    @in_world
    async def test_it_reads_nothing_of_other_nodes(self, world: World) -> None:
        name = await offer(with_slices(world))
        relabelled = {"metadata": {"labels": {NODE_UID_LABEL: "other"}}}
        await world.kube.merge(IP_POOLS, name, relabelled, namespace=SYSTEM)
        await world.kube.merge(LEASES, name, relabelled, namespace=SYSTEM)
        await world.start()
        assert 1 == (await call(world, "ADD", "a")).exit_code
        assert "" == await holder(world, name)


@in_world
async def test_metrics_tell_size_use_rest_and_lag_of_each_slice(world: World) -> None:
    await offer(with_slices(world), network="blue")
    agent = await world.start()
    for each in "abc":
        await add(world, each, {**IPAM, "network_name": "blue"})
    await call(world, "DEL", "c")
    await asyncio.sleep(0.25)
    page = AgentMetrics(agent.handle, agent.picture).page(health_handler(agent.missing))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    labels = f'{{network="blue",range="{V4}",slice="{SLICE}"}}'
    for name, value in (("size_ips", 14.0), ("assigned_ips", 2.0), ("resting_ips", 1.0), ("lag_seconds", 0.25)):
        assert f"podpool_agent_slice_{name}{labels} {value}" in text

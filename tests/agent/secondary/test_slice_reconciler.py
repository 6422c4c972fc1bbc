"""A slice's life beside its ADDs: taken, written behind, meddled with, handed back, lost; restarts and reboots."""

import asyncio
import json
import random
from typing import ClassVar

import pytest

from podpool.agent.deps import AgentDeps
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
from podpool.core.two_observations import OBSERVATION_INTERVAL
from podpool.kube.client import KubeClient
from podpool.runtime.process import health_handler
from podpool.runtime.transport import Request, Unreachable
from tests.agent.node_env import NODE, SETTLE_TIME, SYSTEM, NodeEnv, in_node_env
from tests.agent.secondary.slice_env import (
    DUAL,
    IPAM,
    SLICE,
    SLICE6,
    V4,
    V6,
    add,
    assign_slice,
    call,
    change_range,
    enable_slices,
    failed,
    lease_of,
    pool_entries,
    pool_of,
    request_return,
)

SETTINGS = Settings()
FOREIGN = Allocation(id="x", podref="default/pod-x", ifname="net1")


async def holder(env: NodeEnv, name: str) -> str:
    lease = await lease_of(env, name)
    return (lease.spec.holder_identity or "") if lease else "gone"


async def scribble(env: NodeEnv, name: str, entries: dict[str, Allocation | None]) -> None:
    """Write into an IPPool with another hand."""
    written = {
        key: each and {"id": each.id, "podref": each.podref, "ifname": each.ifname} for key, each in entries.items()
    }
    await env.kube.merge_patch(IP_POOLS, name, {"spec": {"allocations": written}}, namespace=SYSTEM)


class TestTaking:
    @in_node_env
    async def test_nothing_is_given_while_another_holds_the_lease(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.kube.merge_patch(LEASES, name, {"spec": {"holderIdentity": "other/1"}}, namespace=SYSTEM)
        await env.start()
        assert "held by other/1" in (await failed(env, "ADD", "a"))["msg"]
        await env.kube.merge_patch(LEASES, name, {"spec": {"holderIdentity": None}}, namespace=SYSTEM)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_nothing_is_taken_under_another_boot(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.report_boot("another")
        await env.start()
        assert "" == await holder(env, name)
        assert "confirm" in (await failed(env, "ADD", "a"))["msg"]

    @in_node_env
    async def test_what_a_predecessor_gave_stays_with_its_pods(self, env: NodeEnv) -> None:
        """As after moving in from Whereabouts: the entries of its Pods are believed, and their DELs are done."""
        name = await assign_slice(enable_slices(env), entries={"1": FOREIGN})
        await env.bind("pod-x")
        await env.start()
        assert ["10.1.4.2/16"] == await add(env, "a")
        assert ["10.1.4.1/16"] == await add(env, "x")
        await asyncio.sleep(1.0)
        assert {"1": "x", "2": "a"} == await pool_entries(env, name)
        await call(env, "DEL", "x")
        await asyncio.sleep(1.0)
        assert {"2": "a"} == await pool_entries(env, name)

    @in_node_env
    async def test_a_signature_counts_no_more_once_its_lease_is_let_go_of_whatever_comes_of_that(
        self, env: NodeEnv
    ) -> None:
        """The answer may be lost, and a watch may show the Lease for a while as it was before."""
        name = await assign_slice(env)
        rng = random.Random(1)  # noqa: S311  seeded
        told, clock = env.warnings.append, env.clock
        deps = AgentDeps(node=NODE, kube=KubeClient(env.transport), clock=clock, rng=rng, settings=SETTINGS, tell=told)
        leases = SliceLeases(deps, SliceInformers(deps, SYSTEM, changed=lambda _: None), boot_id=env.boot_id)
        await leases.sign(await env.kube.get(LEASES, name, namespace=SYSTEM))
        signature = (await env.kube.get(LEASES, name, namespace=SYSTEM)).metadata.annotations[SIGNATURE_ANNOTATION]
        note = {"metadata": {"annotations": {GRANTED_ANNOTATION: signature}}}
        agreed = await env.kube.merge_patch(LEASES, name, note, namespace=SYSTEM)
        assert leases.agreed(agreed)
        env.transport.cut = True
        with pytest.raises(Unreachable):
            await leases.let_go(agreed)
        assert not leases.agreed(agreed)
        assert not leases.is_pending(agreed)


class TestWritingBehind:
    @in_node_env
    async def test_many_changes_are_one_patch(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        env.transport.others = 0
        for each in "abcdef":
            await add(env, each)
        await call(env, "DEL", "c")
        assert {} == await pool_entries(env, name)
        await asyncio.sleep(1.0)
        assert 1 == env.transport.others
        assert list("abdef") == list((await pool_entries(env, name)).values())

    @in_node_env
    async def test_out_of_reach_it_gives_and_the_pool_follows_later(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        agent = await env.start()
        env.transport.cut = True
        assert [["10.1.4.1/16"], ["10.1.4.2/16"]] == [await add(env, each) for each in "ab"]
        await asyncio.sleep(20.0)
        assert 19 < agent.picture().slices[0].lag < 21
        env.transport.cut = False
        await asyncio.sleep(16.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)
        assert 0.0 == agent.picture().slices[0].lag

    @in_node_env
    async def test_a_foreign_hand_is_mended_without_a_double_assignment(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.bind("pod-x")
        await env.start()
        await add(env, "a")
        await add(env, "b")
        await asyncio.sleep(1.0)
        await scribble(env, name, {"1": FOREIGN, "2": None, "3": FOREIGN, "nonsense": FOREIGN})
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b", "3": "x", "nonsense": "x"} == await pool_entries(env, name)
        assert ["10.1.4.4/16"] == await add(env, "c")

    @in_node_env
    async def test_a_foreign_entry_whose_pod_is_gone_is_released_after_two_looks(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env), entries={"1": FOREIGN})
        await env.start()
        await asyncio.sleep(50.0)
        assert {"1": "x"} == await pool_entries(env, name)
        await asyncio.sleep(90.0)
        assert {} == await pool_entries(env, name)

    @in_node_env
    async def test_or_whose_pod_asks_again_in_vain(self, env: NodeEnv) -> None:
        """Nobody who waits for an address waits for one of its own."""
        entries = {key: Allocation(id=f"old-{key}", podref=f"default/pod-{key}", ifname="net1") for key in "12"}
        await assign_slice(enable_slices(env), "10.1.4.0/30", entries=entries)
        await env.start()
        for pod in "12":
            await env.bind(f"pod-{pod}")
            assert "no free address" in (await failed(env, "ADD", pod))["msg"]
        await asyncio.sleep(3 * OBSERVATION_INTERVAL)
        assert {"10.1.4.1/16", "10.1.4.2/16"} == {address for pod in "12" for address in await add(env, pod)}

    @in_node_env
    async def test_a_foreign_entry_behind_the_back_of_an_add_comes_second(self, env: NodeEnv) -> None:
        """The sandbox was answered: its entry is put back over the other's."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await scribble(env, name, {"1": FOREIGN})
        await asyncio.sleep(1.0)
        assert {"1": "a"} == await pool_entries(env, name)

    @in_node_env
    async def test_a_pool_that_somebody_deleted_is_filled_again(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        before = await pool_of(env, name)
        await env.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        assert ["10.1.4.2/16"] == await add(env, "b")
        same = {"labels": before.metadata.labels, "annotations": before.metadata.annotations}
        again = {"metadata": {"name": name, "namespace": SYSTEM, **same}, "spec": {"range": SLICE, "allocations": {}}}
        await env.kube.create(IP_POOLS, again)
        await asyncio.sleep(2.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)


class TestHandingBack:
    @in_node_env
    async def test_when_nothing_is_held_or_rests(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await request_return(env, name)
        await asyncio.sleep(1.0)
        assert ["10.1.4.1/16"] == await add(env, "a")
        await call(env, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown - 5)
        assert (await holder(env, name)).startswith(NODE)
        await asyncio.sleep(6)
        assert "" == await holder(env, name)
        assert {} == await pool_entries(env, name)
        assert "handed back (the range changed)" in (await failed(env, "ADD", "b"))["msg"]

    @in_node_env
    async def test_another_slice_serves_meanwhile(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await request_return(env, name)
        await assign_slice(env, "10.1.8.0/28")
        await asyncio.sleep(1.0)
        assert ["10.1.8.1/16"] == await add(env, "b")
        assert ["10.1.4.1/16"] == await add(env, "a")

    @pytest.mark.parametrize("killed_at", range(6))
    def test_a_death_on_the_way_is_finished_by_the_next(self, killed_at: int) -> None:
        @in_node_env
        async def story(env: NodeEnv) -> None:
            name = await assign_slice(enable_slices(env))
            await env.start()
            await request_return(env, name)
            for _ in range(killed_at):
                await asyncio.sleep(0)
            await env.kill()
            await env.start()
            assert "" == await holder(env, name)
            assert 1 == (await call(env, "ADD", "c")).exit_code

        story()

    @in_node_env
    async def test_a_lost_lease_closes_the_slice_and_a_new_one_keeps_its_pods(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await env.kube.delete(LEASES, name, namespace=SYSTEM)
        await env.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        await asyncio.sleep(1.0)
        assert 1 == (await call(env, "ADD", "b")).exit_code
        assert ["10.1.4.1/16"] == await add(env, "a")
        await assign_slice(env)
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/16"] == await add(env, "b")
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)

    @in_node_env
    async def test_a_lost_lease_that_a_restored_copy_brings_back_is_kept_while_pods_have_addresses(
        self, env: NodeEnv
    ) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(2.0)
        held, copy = await holder(env, name), env.store.snapshot()
        await env.kube.delete(LEASES, name, namespace=SYSTEM)
        await env.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        await asyncio.sleep(SETTLE_TIME)
        env.store.restore(copy)
        await asyncio.sleep(2400.0)
        assert held == await holder(env, name)
        assert {"1": "a"} == await pool_entries(env, name)
        await call(env, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown + SETTLE_TIME)
        assert "" == await holder(env, name)
        assert {} == await pool_entries(env, name)

    @in_node_env
    async def test_but_left_alone_where_another_holds_it(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(2.0)
        await env.kube.merge_patch(LEASES, name, {"spec": {"holderIdentity": "other/1"}}, namespace=SYSTEM)
        copy = env.store.snapshot()
        await env.kube.delete(LEASES, name, namespace=SYSTEM)
        await asyncio.sleep(SETTLE_TIME)
        env.store.restore(copy)
        await asyncio.sleep(60.0)
        assert "other/1" == await holder(env, name)


class TestAnotherRange:
    """The definition's range was made larger or smaller: the controller names the new one on the slices that fit."""

    WIDER: ClassVar = {**IPAM, "range": "10.0.0.0/15"}

    @in_node_env
    async def test_a_slice_that_fits_serves_the_range_as_it_is_now(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await change_range(env, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/15"] == await add(env, "b", self.WIDER)
        assert ["10.1.4.1/15"] == await add(env, "a", self.WIDER)

    @in_node_env
    async def test_and_nobody_who_asks_for_another(self, env: NodeEnv) -> None:
        """A definition that was failed, whose range has the slice too, gets nothing of it."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await change_range(env, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert "has no slice of 10.1.0.0/16" in (await failed(env, "ADD", "a"))["msg"]

    @in_node_env
    async def test_also_after_a_restart_out_of_reach(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await change_range(env, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        env.transport.cut = True
        await env.kill()
        await env.start()
        assert ["10.1.4.1/15"] == await add(env, "a", self.WIDER)

    @in_node_env
    async def test_who_waits_is_served_when_it_is_told(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        asked = asyncio.create_task(add(env, "a", self.WIDER))
        await asyncio.sleep(1.0)
        await change_range(env, name, "10.0.0.0/15")
        assert ["10.1.4.1/15"] == await asyncio.wait_for(asked, 1.0)

    @in_node_env
    async def test_one_that_is_asked_back_serves_until_there_is_another(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await change_range(env, name, "10.0.0.0/15", "10.0.0.0/15 is divided into node slices of /29 now")
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/15"] == await add(env, "b", self.WIDER)
        await assign_slice(env, "10.0.8.0/29", range_="10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert ["10.0.8.1/15"] == await add(env, "c", self.WIDER)

    @in_node_env
    async def test_only_addresses_of_the_smaller_range_are_given(self, env: NodeEnv) -> None:
        smaller = {**IPAM, "range": "10.1.4.8/29", "node_slice_size": "/30"}
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await change_range(env, name, "10.1.4.8/29", "10.1.4.8/29 is divided into node slices of /30 now")
        await asyncio.sleep(1.0)
        assert ["10.1.4.9/29"] == await add(env, "b", smaller)
        assert ["10.1.4.10/29"] == await add(env, "a", smaller)

    @in_node_env
    async def test_a_check_goes_by_what_the_sandbox_was_given(self, env: NodeEnv) -> None:
        """The runtime asks with the configuration of the ADD, whatever the definition says by now."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        given = (await call(env, "ADD", "a")).stdout
        await change_range(env, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert 0 == (await call(env, "CHECK", "a", prevResult=json.loads(given))).exit_code

    @in_node_env
    async def test_a_range_that_cannot_be_read_changes_nothing(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await change_range(env, name, "nonsense")
        await asyncio.sleep(1.0)
        assert ["10.1.4.1/16"] == await add(env, "a")


class TestRestarts:
    @in_node_env
    async def test_a_killed_agent_serves_again_with_nobody_to_ask(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await assign_slice(env, SLICE6, range_=V6)
        await env.start()
        await add(env, "a", DUAL)
        env.transport.cut = True
        await call(env, "DEL", "a", DUAL)
        await add(env, "b", DUAL)
        await env.kill()
        await env.start()
        assert ["10.1.4.2/16", "fd00::402/64"] == await add(env, "b", DUAL)
        assert ["10.1.4.3/16", "fd00::403/64"] == await add(env, "c", DUAL)
        env.transport.cut = False
        await asyncio.sleep(40.0)
        assert {"2": "b", "3": "c"} == await pool_entries(env, name)

    @in_node_env
    async def test_a_reboot_voids_what_sandboxes_had_and_it_rests(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await env.reboot("boot-2", clean=True)
        await env.report_boot("boot-2")
        await env.start()
        assert ["10.1.4.2/16"] == await add(env, "b")
        await asyncio.sleep(1.0)
        assert {"2": "b"} == await pool_entries(env, name)
        lease = await lease_of(env, name)
        assert lease
        assert "boot-2" == lease.metadata.annotations[BOOT_ANNOTATION]

    @in_node_env
    async def test_a_power_cut_lets_everything_rest(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await env.reboot("boot-2")
        await env.report_boot("boot-2")
        await env.start(wait=False)
        began = asyncio.get_running_loop().time()
        await add(env, "b")
        assert asyncio.get_running_loop().time() - began >= SETTINGS.cooldown_exhausted

    @in_node_env
    async def test_behind_the_fence_nothing_new_and_the_same_again(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        env.transport.cut = True
        await asyncio.sleep(SETTINGS.fence + 1)
        assert "confirm" in (await failed(env, "ADD", "b"))["msg"]
        assert ["10.1.4.1/16"] == await add(env, "a")
        env.transport.cut = False
        await asyncio.sleep(20.0)
        assert ["10.1.4.2/16"] == await add(env, "b")


class TestTheNode:
    @in_node_env
    async def test_98_an_agent_whose_node_is_not_there_gives_nothing_and_names_it(self, env: NodeEnv) -> None:
        """Theirs does not start; ours goes on as soon as its Node is registered."""
        enable_slices(env)
        await env.kube.delete(NODES, NODE)
        await env.start()
        error = await failed(env, "ADD", "a")
        assert (11, True) == (error["code"], NODE in error["msg"])
        await env.register_node()
        await assign_slice(env)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_without_a_network_container_it_is_ready_and_confirms_itself(self, env: NodeEnv) -> None:
        """A cluster of slices alone: no NNC, no ledger, no subnet."""
        await env.kube.delete(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM)
        await assign_slice(enable_slices(env))
        agent = await env.start()
        assert agent.missing() is None
        assert not agent.able.is_set()
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(3 * SETTINGS.fence)
        assert ["10.1.4.2/16"] == await add(env, "b")

    @in_node_env
    async def test_registered_again_in_the_same_boot_it_keeps_its_slice(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await env.kube.delete(NODES, NODE)
        await env.register_node()
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.1.4.2/16"] == await add(env, "b")
        uid = (await env.kube.get(NODES, NODE)).metadata.uid
        relabelled = {"metadata": {"labels": {NODE_UID_LABEL: uid}}}
        await env.kube.merge_patch(IP_POOLS, name, relabelled, namespace=SYSTEM)
        await env.kube.merge_patch(LEASES, name, relabelled, namespace=SYSTEM)
        await asyncio.sleep(SETTLE_TIME)
        assert f"{NODE}/{uid}" == await holder(env, name)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)

    @in_node_env
    async def test_registered_again_it_is_confirmed_when_its_leases_are_the_new_nodes(self, env: NodeEnv) -> None:
        """Until then the controller misses the old Node, and the time for which it does so is not counted anew."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await env.kube.delete(NODES, NODE)
        await env.register_node()
        await asyncio.sleep(env.settings.fence + SETTLE_TIME)
        assert 1 == (await call(env, "ADD", "a")).exit_code
        uid = (await env.kube.get(NODES, NODE)).metadata.uid
        relabelled = {"metadata": {"labels": {NODE_UID_LABEL: uid}}}
        await env.kube.merge_patch(IP_POOLS, name, relabelled, namespace=SYSTEM)
        await env.kube.merge_patch(LEASES, name, relabelled, namespace=SYSTEM)
        await asyncio.sleep(env.settings.confirmation_interval)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_nor_does_its_network_container_confirm_it_for_slices_whose_leases_are_not_seen(
        self, env: NodeEnv
    ) -> None:
        """Others may have the slice by then: the Node was away for long, and its Leases are gone."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        env.transport.cut = True
        await asyncio.sleep(env.settings.fence + env.settings.confirmation_interval)
        await env.kube.delete(NODES, NODE)
        await env.kube.delete(LEASES, name, namespace=SYSTEM)
        await env.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        await env.register_node()
        uid = (await env.kube.get(NODES, NODE)).metadata.uid
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
        await env.kube.merge_patch(
            NODE_NETWORK_CONFIGS, NODE, {"metadata": {"ownerReferences": [owner]}}, namespace=SYSTEM
        )
        env.transport.hide("leases")
        env.transport.cut = False
        await asyncio.sleep(60.0)
        assert "confirm" in (await failed(env, "ADD", "b"))["msg"]
        assert await env.add("b")
        env.transport.hide(None)
        await asyncio.sleep(60.0)
        assert "no slice" in (await failed(env, "ADD", "b"))["msg"]

    @in_node_env
    async def test_registered_again_in_another_boot_it_is_another_node(self, env: NodeEnv) -> None:
        """Its old slice is given to others once the old Node is gone: nothing more is given of it."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await env.reboot("boot-2", clean=True)
        await env.kube.delete(NODES, NODE)
        await env.register_node()
        await env.start()
        assert 1 == (await call(env, "ADD", "b")).exit_code
        assert env.boot_id != ((await lease_of(env, name)) or Lease()).metadata.annotations[BOOT_ANNOTATION]
        await assign_slice(env, "10.1.8.0/28")
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.1.8.1/16"] == await add(env, "b")

    @in_node_env
    async def test_it_reads_nothing_of_other_nodes(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        relabelled = {"metadata": {"labels": {NODE_UID_LABEL: "other"}}}
        await env.kube.merge_patch(IP_POOLS, name, relabelled, namespace=SYSTEM)
        await env.kube.merge_patch(LEASES, name, relabelled, namespace=SYSTEM)
        await env.start()
        assert 1 == (await call(env, "ADD", "a")).exit_code
        assert "" == await holder(env, name)


@in_node_env
async def test_metrics_tell_size_use_rest_and_lag_of_each_slice(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env), network="blue")
    agent = await env.start()
    for each in "abc":
        await add(env, each, {**IPAM, "network_name": "blue"})
    await call(env, "DEL", "c")
    await asyncio.sleep(0.25)
    page = AgentMetrics(agent.handle, agent.picture).page(health_handler(agent.missing))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    labels = f'{{network="blue",range="{V4}",slice="{SLICE}"}}'
    for name, value in (("size_ips", 14.0), ("assigned_ips", 2.0), ("resting_ips", 1.0), ("lag_seconds", 0.25)):
        assert f"podpool_agent_slice_{name}{labels} {value}" in text

"""The lifecycle of a slice: acquired, written, changed by third parties, returned, lost; restarts and reboots."""

import asyncio
import json
from typing import ClassVar

import msgspec
import pytest

from podpool.agent.metrics import AgentMetrics
from podpool.agent.state import RETRY_INTERVAL
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.api.node_slices import NODE_SLICES, FormerNode
from podpool.api.whereabouts import IP_POOLS, NODE_ANNOTATION, NODE_UID_LABEL, Allocation
from podpool.core.settings import Settings
from podpool.core.two_observations import OBSERVATION_INTERVAL
from podpool.runtime.process import health_handler
from podpool.runtime.transport import Request
from tests.agent.disks import DroppingDisk
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
    is_held,
    is_returned,
    lease_of,
    node_slices,
    own_node,
    pool_entries,
    pool_of,
    reported,
    request_return,
    withdraw,
    write_spec,
)

SETTINGS = Settings()
THIRD_PARTY = Allocation(id="x", podref="default/pod-x", ifname="net1")


async def write_entries(env: NodeEnv, name: str, entries: dict[str, Allocation | None]) -> None:
    """Write entries into an IPPool as a third party."""
    written = {
        key: each and {"id": each.id, "podref": each.podref, "ifname": each.ifname} for key, each in entries.items()
    }
    await env.kube.merge_patch(IP_POOLS, name, {"spec": {"allocations": written}}, namespace=SYSTEM)


class TestAcquiring:
    @in_node_env
    async def test_nothing_is_assigned_while_node_slices_is_of_another_node(self, env: NodeEnv) -> None:
        """Another machine of this name may use what is assigned."""
        await assign_slice(enable_slices(env))
        await write_spec(env, msgspec.structs.replace((await node_slices(env)).spec, node_uid="another"))
        await env.start()
        assert 11 == (await failed(env, "ADD", "a"))["code"]
        assert 0 == (await node_slices(env)).status.protocol
        await own_node(env)
        await asyncio.sleep(20.0)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_nothing_is_acquired_while_the_node_reports_another_boot(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.report_boot("another")
        await env.start()
        assert () == (await node_slices(env)).status.slices
        assert "confirm" in (await failed(env, "ADD", "a"))["msg"]

    @in_node_env
    async def test_existing_entries_are_kept(self, env: NodeEnv) -> None:
        """As after a migration from Whereabouts: the entries of its Pods count, and their DELs release them."""
        name = await assign_slice(enable_slices(env), entries={"1": THIRD_PARTY})
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
    async def test_entries_of_a_node_that_is_gone_are_removed(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env), entries={"1": THIRD_PARTY})
        labels = {"metadata": {"labels": {NODE_UID_LABEL: "gone"}, "annotations": {NODE_ANNOTATION: NODE}}}
        await env.kube.merge_patch(IP_POOLS, name, labels, namespace=SYSTEM)
        await env.start()
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_many_slices_are_acknowledged_and_held_with_one_patch_each(self, env: NodeEnv) -> None:
        enable_slices(env)
        for number in range(10):
            await assign_slice(env, network=f"net{number}")
        await env.start()
        await asyncio.sleep(SETTLE_TIME)
        assert 2 == env.transport.others
        status = (await node_slices(env)).status
        assert [True] * 10 == [each.held for each in status.slices]
        assert (1, env.boot_id) == (status.protocol, status.boot_id)

    @in_node_env
    async def test_an_invalid_assignment_does_not_affect_others(self, env: NodeEnv) -> None:
        enable_slices(env)
        for slice_ in ("10.1.4.0/99", SLICE):
            spec = (await node_slices(env)).spec
            await assign_slice(env)
            last = (await node_slices(env)).spec
            changed = msgspec.structs.replace(last.assignments[-1], slice=slice_)
            await write_spec(env, msgspec.structs.replace(last, assignments=(*spec.assignments, changed)))
        await env.start()
        assert ["10.1.4.1/16"] == await add(env, "a")


class TestWritingPools:
    @in_node_env
    async def test_changes_are_collected_into_one_patch(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "x")
        await asyncio.sleep(SETTLE_TIME + 1.0)
        await call(env, "DEL", "x")
        env.transport.others = 0
        for each in "abcdef":
            await add(env, each)
        await call(env, "DEL", "c")
        assert ["x"] == list((await pool_entries(env, name)).values())
        await asyncio.sleep(1.0)
        assert 1 == env.transport.others
        assert list("abdef") == list((await pool_entries(env, name)).values())

    @in_node_env
    async def test_addresses_are_assigned_without_the_api_server_and_written_later(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        agent = await env.start()
        env.transport.cut = True
        assert [["10.1.4.1/16"], ["10.1.4.2/16"]] == [await add(env, each) for each in "ab"]
        await asyncio.sleep(20.0)
        assert 19 < agent.metrics_snapshot().slices[0].lag < 21
        env.transport.cut = False
        await asyncio.sleep(60.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)
        assert 0.0 == agent.metrics_snapshot().slices[0].lag

    @in_node_env
    async def test_third_party_changes_are_corrected_without_a_double_assignment(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.bind("pod-x")
        await env.start()
        await add(env, "a")
        await add(env, "b")
        await asyncio.sleep(1.0)
        await write_entries(env, name, {"1": THIRD_PARTY, "2": None, "4": THIRD_PARTY, "nonsense": THIRD_PARTY})
        assert ["10.1.4.3/16"] == await add(env, "c")
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b", "3": "c", "4": "x", "nonsense": "x"} == await pool_entries(env, name)
        assert ["10.1.4.5/16"] == await add(env, "d")

    @in_node_env
    async def test_a_third_party_entry_without_a_pod_is_released_after_two_observations(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env), entries={"1": THIRD_PARTY})
        await env.start()
        await asyncio.sleep(50.0)
        assert {"1": "x"} == await pool_entries(env, name)
        await asyncio.sleep(90.0)
        assert {} == await pool_entries(env, name)

    @in_node_env
    async def test_a_third_party_entry_is_released_if_its_pod_waits_for_an_address(self, env: NodeEnv) -> None:
        """A waiting Pod has no other sandbox."""
        entries = {key: Allocation(id=f"old-{key}", podref=f"default/pod-{key}", ifname="net1") for key in "12"}
        await assign_slice(enable_slices(env), "10.1.4.0/30", entries=entries)
        await env.start()
        for pod in "12":
            await env.bind(f"pod-{pod}")
            assert "no free address" in (await failed(env, "ADD", pod))["msg"]
        await asyncio.sleep(3 * OBSERVATION_INTERVAL)
        assert {"10.1.4.1/16", "10.1.4.2/16"} == {address for pod in "12" for address in await add(env, pod)}

    @in_node_env
    async def test_a_third_party_entry_for_an_assigned_address_is_overwritten(self, env: NodeEnv) -> None:
        """The ADD was answered, so its entry is restored."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await write_entries(env, name, {"1": THIRD_PARTY})
        await add(env, "b")
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)

    @in_node_env
    async def test_a_deleted_pool_is_created_again_with_the_next_change(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await env.kube.delete(IP_POOLS, name, namespace=SYSTEM)
        assert ["10.1.4.2/16"] == await add(env, "b")
        await asyncio.sleep(2.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)
        pool, lease = await pool_of(env, name), await lease_of(env, name)
        assert pool
        assert lease
        assert [pool.metadata.uid] == [each.uid for each in lease.metadata.owner_references]

    @in_node_env
    async def test_pools_are_written_again_after_a_restore(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        copy = env.store.snapshot()
        await add(env, "a")
        await asyncio.sleep(SETTLE_TIME + 1.0)
        env.store.restore(copy)
        await asyncio.sleep(60.0)
        assert {"1": "a"} == await pool_entries(env, name)
        assert (await node_slices(env)).status.rolled_back


class TestReturning:
    @in_node_env
    async def test_a_slice_is_returned_after_the_last_cooldown(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await request_return(env, name)
        await asyncio.sleep(1.0)
        assert ["10.1.4.1/16"] == await add(env, "a")
        await call(env, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown_roomy - 5)
        assert await is_held(env, name)
        await asyncio.sleep(6)
        assert await is_returned(env, name)
        assert "being returned (the range changed)" in (await failed(env, "ADD", "b"))["msg"]
        assert (None, None) == (await pool_of(env, name), await lease_of(env, name))

    @in_node_env
    async def test_a_third_party_entry_is_found_before_the_slice_is_returned(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.bind("pod-x")
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await call(env, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown_roomy + SETTLE_TIME)
        await write_entries(env, name, {"3": THIRD_PARTY})
        await request_return(env, name)
        await asyncio.sleep(SETTINGS.cooldown_roomy + SETTLE_TIME)
        assert await is_held(env, name)
        assert {"3": "x"} == await pool_entries(env, name)

    @in_node_env
    async def test_a_returned_slice_is_removed_from_the_status_with_its_assignment(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await request_return(env, name)
        await asyncio.sleep(SETTLE_TIME)
        assert await is_returned(env, name)
        await withdraw(env, name)
        await asyncio.sleep(SETTLE_TIME)
        assert await reported(env, name) is None
        await assign_slice(env)
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_another_slice_is_used_meanwhile(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await request_return(env, name)
        await assign_slice(env, "10.1.8.0/28")
        await asyncio.sleep(1.0)
        assert ["10.1.8.1/16"] == await add(env, "b")
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_a_return_is_not_withdrawn_after_a_reboot(self, env: NodeEnv) -> None:
        """Which starts the cooldown of a power failure before it again."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        for boot in ("boot-2", "boot-3"):
            await env.reboot(boot)
            await env.report_boot(boot)
            await env.start()
            if boot == "boot-2":
                await asyncio.sleep(SETTINGS.cooldown_roomy + SETTLE_TIME)
                await request_return(env, name)
            await asyncio.sleep(SETTLE_TIME)
            assert await is_returned(env, name)

    @in_node_env
    async def test_the_lease_is_deleted_before_the_pool(self, env: NodeEnv) -> None:
        """Node GC finds by the IPPool what a machine left that died meanwhile."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await call(env, "DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown_roomy + SETTLE_TIME)
        env.transport.hide(f"DELETE /apis/{IP_POOLS.group}")
        await request_return(env, name)
        await asyncio.sleep(SETTLE_TIME)
        assert await is_returned(env, name)
        assert await pool_of(env, name)
        assert await lease_of(env, name) is None

    @pytest.mark.parametrize("killed_at", range(6))
    def test_a_return_is_completed_after_a_kill(self, killed_at: int) -> None:
        @in_node_env
        async def body(env: NodeEnv) -> None:
            name = await assign_slice(enable_slices(env))
            await env.start()
            await request_return(env, name)
            for _ in range(killed_at):
                await asyncio.sleep(0)
            await env.kill()
            await env.start()
            assert await is_returned(env, name)
            assert 1 == (await call(env, "ADD", "c")).exit_code

        body()

    @in_node_env
    async def test_a_return_is_sent_again_until_it_is_stored(self, env: NodeEnv) -> None:
        """The agent is killed, and the API server is unreachable."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await request_return(env, name)
        env.transport.hide("/status")
        await asyncio.sleep(SETTLE_TIME)
        await env.kill()
        await env.start()
        assert not await is_returned(env, name)
        assert 1 == (await call(env, "ADD", "a")).exit_code
        env.transport.hide(None)
        await asyncio.sleep(20.0)
        assert await is_returned(env, name)


class TestClosed:
    """A slice of an earlier Node of this name: a restored API server may show this machine as one."""

    @in_node_env
    async def test_a_closed_slice_that_is_listed_again_is_used_again(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env), id_="one")
        await env.start()
        await add(env, "a")
        listed = (await node_slices(env)).spec
        former = FormerNode(node_uid="earlier", assignments=listed.assignments)
        await write_spec(env, msgspec.structs.replace(listed, assignments=(), former=(former,)))
        await asyncio.sleep(SETTLE_TIME)
        assert 1 == (await call(env, "ADD", "b")).exit_code
        await write_spec(env, listed)
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.1.4.2/16"] == await add(env, "b")
        assert ["10.1.4.1/16"] == await add(env, "a")


class TestLostAssignments:
    """NodeSlices does not list a slice that the journal has: a copy was restored."""

    @in_node_env
    async def test_a_lost_slice_is_suspended_and_its_pods_keep_their_addresses(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env), id_="one")
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        before = await reported(env, name)
        await withdraw(env, name)
        await asyncio.sleep(SETTLE_TIME + 1.0)
        assert 1 == (await call(env, "ADD", "b")).exit_code
        assert ["10.1.4.1/16"] == await add(env, "a")
        after = await reported(env, name)
        assert before
        assert after
        assert ("one", True, True) == (after.id, after.held, after.in_use)
        assert before.acknowledgement != after.acknowledgement

    @in_node_env
    async def test_it_is_used_again_when_it_is_listed_and_confirmed_anew(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env), id_="one")
        await env.start()
        await add(env, "a")
        old = (await node_slices(env)).spec.assignments[0]
        await withdraw(env, name)
        await asyncio.sleep(SETTLE_TIME)
        env.store.on_write.pop()  # the controller
        await assign_slice(env, id_="one", confirmed=old.confirmed)
        assert 1 == (await call(env, "ADD", "b")).exit_code
        entry = await reported(env, name)
        assert entry
        await withdraw(env, name)
        await assign_slice(env, id_="one", confirmed=entry.acknowledgement)
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/16"] == await add(env, "b")

    @in_node_env
    async def test_a_suspended_slice_is_not_used_after_a_restart_without_the_api_server(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await withdraw(env, name)
        await asyncio.sleep(1.0)
        env.transport.cut = True
        await env.kill()
        await env.start()
        assert "not confirmed" in (await failed(env, "ADD", "b"))["msg"]

    @in_node_env
    async def test_all_slices_are_suspended_while_node_slices_is_missing(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env), id_="one")
        await env.start()
        await add(env, "a")
        await env.kube.delete(NODE_SLICES, NODE)
        await asyncio.sleep(1.0)
        assert 1 == (await call(env, "ADD", "b")).exit_code
        await own_node(env)
        await asyncio.sleep(SETTLE_TIME)
        assert [("one", True)] == [(each.id, each.held) for each in (await node_slices(env)).status.slices]
        await assign_slice(env, id_="one")
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/16"] == await add(env, "b")

    @in_node_env
    async def test_another_assignment_of_its_addresses_keeps_its_pods(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env), id_="one")
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await withdraw(env, name)
        await assign_slice(env, id_="two")
        await asyncio.sleep(SETTLE_TIME + 1.0)
        assert ["10.1.4.2/16"] == await add(env, "b")
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)
        assert ["two"] == [each.id for each in (await node_slices(env)).status.slices]


class TestAnotherRange:
    """The range of the NAD became larger or smaller: the controller writes it to the slices that fit."""

    WIDER: ClassVar = {**IPAM, "range": "10.0.0.0/15"}

    @in_node_env
    async def test_a_slice_that_fits_is_used_for_the_new_range(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await change_range(env, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/15"] == await add(env, "b", self.WIDER)
        assert ["10.1.4.1/15"] == await add(env, "a", self.WIDER)

    @in_node_env
    async def test_it_is_not_used_for_the_former_range(self, env: NodeEnv) -> None:
        """A rejected NAD whose range contains the slice gets no address."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        await change_range(env, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert "has no slice of 10.1.0.0/16" in (await failed(env, "ADD", "a"))["msg"]

    @in_node_env
    async def test_the_new_range_survives_a_restart_without_the_api_server(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await change_range(env, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        env.transport.cut = True
        await env.kill()
        await env.start()
        assert ["10.1.4.1/15"] == await add(env, "a", self.WIDER)

    @in_node_env
    async def test_waiting_adds_are_served_when_the_range_changes(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        adding = asyncio.create_task(add(env, "a", self.WIDER))
        await asyncio.sleep(1.0)
        await change_range(env, name, "10.0.0.0/15")
        assert ["10.1.4.1/15"] == await asyncio.wait_for(adding, 1.0)

    @in_node_env
    async def test_a_slice_to_be_returned_is_used_until_there_is_another(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await change_range(env, name, "10.0.0.0/15", "10.0.0.0/15 is divided into slices of /29")
        await asyncio.sleep(1.0)
        assert ["10.1.4.2/15"] == await add(env, "b", self.WIDER)
        await assign_slice(env, "10.0.8.0/29", range_="10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert ["10.0.8.1/15"] == await add(env, "c", self.WIDER)

    @in_node_env
    async def test_only_addresses_of_the_smaller_range_are_assigned(self, env: NodeEnv) -> None:
        smaller = {**IPAM, "range": "10.1.4.8/29", "node_slice_size": "/30"}
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await change_range(env, name, "10.1.4.8/29", "10.1.4.8/29 is divided into slices of /30")
        await asyncio.sleep(1.0)
        assert ["10.1.4.9/29"] == await add(env, "b", smaller)
        assert ["10.1.4.10/29"] == await add(env, "a", smaller)

    @in_node_env
    async def test_a_check_succeeds_with_the_configuration_of_the_add(self, env: NodeEnv) -> None:
        """The runtime sends the configuration of the ADD, also after the NAD changed."""
        name = await assign_slice(enable_slices(env))
        await env.start()
        given = (await call(env, "ADD", "a")).stdout
        await change_range(env, name, "10.0.0.0/15")
        await asyncio.sleep(1.0)
        assert 0 == (await call(env, "CHECK", "a", prevResult=json.loads(given))).exit_code

    @in_node_env
    async def test_an_invalid_range_is_ignored(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await change_range(env, name, "10.1.0.0/99")
        await asyncio.sleep(1.0)
        assert ["10.1.4.1/16"] == await add(env, "a")


class TestRestarts:
    @in_node_env
    async def test_a_killed_agent_serves_again_without_the_api_server(self, env: NodeEnv) -> None:
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
    async def test_slices_are_watched_again_after_a_failed_sync(self, env: NodeEnv) -> None:
        disk = DroppingDisk()
        await enable_slices(env).start(disk=disk)
        await asyncio.sleep(SETTLE_TIME)  # all that was written is synced
        await add(env, "a", {"type": "whereabouts", "range": "10.2.0.0/24"})
        disk.failing = 1  # of the shared-range log: the address is synced later
        await asyncio.sleep(RETRY_INTERVAL + 1.0)
        assert not disk.failing
        await assign_slice(env)
        assert ["10.1.4.1/16"] == await add(env, "b")

    @in_node_env
    async def test_after_a_reboot_assigned_addresses_cool_down(self, env: NodeEnv) -> None:
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
        assert "boot-2" == (await node_slices(env)).status.boot_id

    @in_node_env
    async def test_nothing_is_assigned_in_a_new_boot_before_it_is_confirmed_anew(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        await env.reboot("boot-2", clean=True)
        await env.report_boot("boot-2")
        env.store.on_write.pop()  # the controller
        await env.start()
        assert "not confirmed" in (await failed(env, "ADD", "b"))["msg"]

    @in_node_env
    async def test_after_a_power_failure_every_address_cools_down(self, env: NodeEnv) -> None:
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
    async def test_a_fenced_agent_assigns_nothing_new(self, env: NodeEnv) -> None:
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

    @in_node_env
    async def test_after_the_fence_was_closed_every_slice_is_confirmed_anew(self, env: NodeEnv) -> None:
        """Node GC may have given it to another node, and a copy from before that may have been restored."""
        await assign_slice(enable_slices(env))
        await env.start()
        env.transport.cut = True
        await asyncio.sleep(SETTINGS.fence + 1)
        env.store.on_write.pop()  # the controller
        env.transport.cut = False
        await asyncio.sleep(30.0)
        assert "not confirmed" in (await failed(env, "ADD", "b"))["msg"]
        await env.kill()
        await env.start()
        assert "not confirmed" in (await failed(env, "ADD", "b"))["msg"]


class TestNode:
    @in_node_env
    async def test_98_an_agent_without_a_node_assigns_nothing(self, env: NodeEnv) -> None:
        """Whereabouts does not start; podpool continues as soon as its Node is registered."""
        enable_slices(env)
        await env.kube.delete(NODES, NODE)
        await env.start()
        error = await failed(env, "ADD", "a")
        assert (11, True) == (error["code"], NODE in error["msg"])
        await env.register_node()
        await assign_slice(env)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_without_an_nc_it_is_ready_and_confirms_its_node(self, env: NodeEnv) -> None:
        """A cluster with slices only: no NNC, no ledger, no subnet."""
        await env.kube.delete(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM)
        await assign_slice(enable_slices(env))
        agent = await env.start()
        assert agent.not_ready_reason() is None
        assert not agent.ready.is_set()
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(3 * SETTINGS.fence)
        assert ["10.1.4.2/16"] == await add(env, "b")

    @in_node_env
    async def test_a_node_registered_again_in_the_same_boot_keeps_its_slice(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await env.kube.delete(NODES, NODE)
        await env.register_node()
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.1.4.2/16"] == await add(env, "b")
        await own_node(env)
        await asyncio.sleep(SETTLE_TIME + 1.0)
        uid = (await env.kube.get(NODES, NODE)).metadata.uid
        pool, lease = await pool_of(env, name), await lease_of(env, name)
        assert pool
        assert lease
        assert uid == (await node_slices(env)).status.node_uid
        assert (uid, f"{NODE}/{uid}") == (pool.metadata.labels[NODE_UID_LABEL], lease.spec.holder_identity)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)

    @in_node_env
    async def test_a_node_registered_again_is_confirmed_when_node_slices_has_its_uid(self, env: NodeEnv) -> None:
        """Until then node GC counts the time for which the former Node is missing."""
        await assign_slice(enable_slices(env))
        await env.start()
        await env.kube.delete(NODES, NODE)
        await env.register_node()
        await asyncio.sleep(env.settings.fence + SETTLE_TIME)
        assert 1 == (await call(env, "ADD", "a")).exit_code
        await own_node(env)
        await asyncio.sleep(env.settings.confirmation_interval)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_the_node_alone_is_not_confirmed_once_slices_are_assigned(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await write_spec(env, msgspec.structs.replace((await node_slices(env)).spec, node_uid="another"))
        agent = await env.start()
        assert "confirm" in (await failed(env, "ADD", "a"))["msg"]
        await own_node(env)
        await asyncio.sleep(20.0)
        assert agent.not_ready_reason() is None

    @in_node_env
    async def test_an_nc_does_not_confirm_a_node_for_slices(self, env: NodeEnv) -> None:
        """Another node may have the slice: this one was missing for long, and node GC released what it had."""
        await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        env.transport.cut = True
        await asyncio.sleep(env.settings.fence + env.settings.confirmation_interval)
        await env.kube.delete(NODES, NODE)
        await env.kube.delete(NODE_SLICES, NODE)
        await env.register_node()
        uid = (await env.kube.get(NODES, NODE)).metadata.uid
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
        await env.kube.merge_patch(
            NODE_NETWORK_CONFIGS, NODE, {"metadata": {"ownerReferences": [owner]}}, namespace=SYSTEM
        )
        env.transport.cut = False
        await asyncio.sleep(60.0)
        assert "confirm" in (await failed(env, "ADD", "b"))["msg"]
        assert await env.add("b")
        await own_node(env)
        await asyncio.sleep(60.0)
        assert "no slice" in (await failed(env, "ADD", "b"))["msg"]

    @in_node_env
    async def test_a_node_registered_again_in_another_boot_is_another_node(self, env: NodeEnv) -> None:
        """Node GC releases its former slice, so nothing of it is assigned, and the status does not list it."""
        await assign_slice(enable_slices(env), id_="one")
        await env.start()
        await add(env, "a")
        await asyncio.sleep(1.0)
        await env.reboot("boot-2", clean=True)
        await env.kube.delete(NODES, NODE)
        await env.register_node()
        await env.start()
        assert 1 == (await call(env, "ADD", "b")).exit_code
        assert "boot-1" == (await node_slices(env)).status.boot_id
        spec = (await node_slices(env)).spec
        former = FormerNode(node_uid=spec.node_uid, boot_id="boot-1", assignments=spec.assignments)
        await write_spec(env, msgspec.structs.replace(spec, assignments=(), former=(former,)))
        await own_node(env)
        await assign_slice(env, "10.1.8.0/28", id_="two")
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.1.8.1/16"] == await add(env, "b")
        status = (await node_slices(env)).status
        assert ("boot-2", ["two"]) == (status.boot_id, [each.id for each in status.slices])

    @in_node_env
    async def test_a_machine_that_is_not_its_node_any_more_writes_nothing(self, env: NodeEnv) -> None:
        """It was cut off, and another machine has its name."""
        await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await asyncio.sleep(SETTLE_TIME + 1.0)
        await env.report_boot("boot-of-another-machine")
        await asyncio.sleep(1.0)
        before = await node_slices(env)
        await call(env, "DEL", "a")
        await asyncio.sleep(2 * SETTINGS.cooldown_roomy)
        assert before == await node_slices(env)


@in_node_env
async def test_metrics_of_slices(env: NodeEnv) -> None:
    await assign_slice(enable_slices(env), network="blue")
    agent = await env.start()
    for each in "abc":
        await add(env, each, {**IPAM, "network_name": "blue"})
    await call(env, "DEL", "c")
    await asyncio.sleep(0.25)
    page = AgentMetrics(agent.handle, agent.metrics_snapshot).page(health_handler(agent.health_checks))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    labels = f'{{network="blue",range="{V4}",slice="{SLICE}"}}'
    for name, value in (("size_ips", 14.0), ("assigned_ips", 2.0), ("cooling_down_ips", 1.0), ("lag_seconds", 0.25)):
        assert f"podpool_agent_slice_{name}{labels} {value}" in text

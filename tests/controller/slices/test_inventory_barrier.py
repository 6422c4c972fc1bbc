"""The slice inventory: no assignment before agents have reported, at leader start and after signs of a restore."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from podpool.api.builtin import CONFIG_MAPS, NODES
from podpool.api.node_slices import INVENTORY_COMPLETE_ANNOTATION, INVENTORY_CONFIG_MAP, NODE_SLICES, Assignment
from podpool.controller.slices import inventory_barrier
from podpool.core.settings import Settings
from tests.controller.slices.slice_env import FakeAgent, SliceEnv

RunScenario = Callable[[Callable[[SliceEnv], Coroutine[Any, Any, None]]], None]

SLOW = Settings(utilization_poll=0.2, fence=3.0, confirmation_interval=1.0, clock_error=0.1, node_gc_delay=5.0)
REPORTED_AFTER = 3.0
"""Seconds after which silent nodes are reported, where a test on a real API server waits for the report."""


async def attach(env: SliceEnv) -> None:
    await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")


async def requested(env: SliceEnv, *, before: str = "") -> str:
    """Wait for a new inventory request, and return its ID."""

    async def request_id() -> str:
        found = await env.inventory_request()
        return "" if found == before else found

    return await env.until(request_id, "an inventory is requested")


async def scope(env: SliceEnv) -> str:
    return (await env.client.get(CONFIG_MAPS, INVENTORY_CONFIG_MAP, namespace=env.namespace)).data["scope"]


def hold(agent: FakeAgent, slice_: str, id_: str = "held-before") -> Assignment:
    """The journal of an agent has a slice."""
    assignment = Assignment(id=id_, network="red", range="10.1.0.0/24", slice=slice_)
    agent.set(assignment, acknowledgement="again", held=True, in_use=True)
    return assignment


async def drop_assignments(env: SliceEnv, node: str) -> None:
    """Remove all assignments of a node, as a restored API server does."""
    await env.client.merge_patch(NODE_SLICES, node, {"spec": {"assignments": []}})


async def delete_object(env: SliceEnv, node: str) -> None:
    """Remove the object of a node, as a restored API server does."""
    await env.client.delete(NODE_SLICES, node)
    await env.client.merge_patch(NODE_SLICES, node, {"metadata": {"finalizers": None}})


class TestLeaderStart:
    def test_all_nodes_report_first(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await attach(env)
            for name in ("n1", "n2"):
                await env.create_node(name, agent=False)
            env.start(common=Settings())
            request = await requested(env)
            assert "ready" == await scope(env)
            for name in ("n1", "n2"):
                await env.until(partial(env.node_slices, name), "the agent can answer")
            await env.write_status(env.agents["boot-of-n1"], inventory=request)
            await asyncio.sleep(1.0)
            assert {} == await env.assignments()
            hold(env.agents["boot-of-n2"], "10.1.0.0/26")
            await env.write_status(env.agents["boot-of-n2"], inventory=request)
            env.agents["boot-of-n1"].running = env.agents["boot-of-n2"].running = True
            await env.wait_slices("red-n1-10.1.0.64-26", "red-n2-10.1.0.0-26")

        run_scenario(scenario)

    def test_the_wait_is_limited(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await attach(env)
            await env.create_node("n1", agent=False)
            env.start()
            await env.wait_slices("red-n1-10.1.0.0-26")

        run_scenario(scenario)

    def test_nodes_that_are_not_ready_are_not_awaited(
        self, run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(inventory_barrier, "STARTUP_TIMEOUT", 600.0)  # longer than the test waits

        async def scenario(env: SliceEnv) -> None:
            await attach(env)
            await env.create_node("n1")
            await env.create_node("n2", agent=False)
            conditions = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
            await env.client.merge_patch(NODES, "n2", conditions, subresource="status")
            env.start(common=Settings())
            await env.until(lambda: env.assignment("red-n1-10.1.0.0-26"), "slices are assigned")

        run_scenario(scenario)

    def test_nothing_is_asked_before_there_is_something_to_decide(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await attach(env)
            await env.create_node("n1")
            await env.take("red-n1-10.1.0.0-26")
            await env.stop(controller)
            before = await env.inventory_request()
            env.start()
            await asyncio.sleep(3.0)
            assert before == await env.inventory_request()
            await env.create_node("n2")
            await env.until(lambda: env.assignment("red-n2-10.1.0.64-26"), "the other node gets a slice")
            assert before != await env.inventory_request()

        run_scenario(scenario)

    def test_a_slice_is_withdrawn_only_from_an_agent_that_answered(self, run_scenario: RunScenario) -> None:
        """A restored API server may show as unused what a node that cannot be reached holds."""

        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await attach(env)
            for name in ("n1", "n2"):
                await env.create_node(name)
            names = "red-n1-10.1.0.0-26", "red-n2-10.1.0.64-26"
            await env.wait_slices(*names)
            await env.stop(controller)
            env.agents["boot-of-n1"].running = False
            await env.delete_nad("red")
            env.start()
            await env.wait_slices(names[0])
            await asyncio.sleep(4.0)
            await env.wait_slices(names[0])
            env.agents["boot-of-n1"].running = True
            await env.wait_slices()

        run_scenario(scenario)


class TestSignsOfARestore:
    def test_a_lost_assignment_is_listed_again_and_nothing_assigned_before_all_reported(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            taken, before = await env.assignment(name), await env.inventory_request()
            agents = [env.agents["boot-of-n1"]]
            agents[0].running = False
            await drop_assignments(env, "n1")
            await env.create_node("n2", agent=False)
            agents.append(env.agents["boot-of-n2"])
            request = await requested(env, before=before)
            assert "all" == await scope(env)
            await env.wait_slices(name)
            found = await env.assignment(name)
            assert taken
            assert found
            assert (taken.id, "") == (found.id, found.confirmed)
            await env.until(lambda: env.node_slices("n2"), "the other can answer")
            await env.write_status(agents[1], inventory=request)
            await asyncio.sleep(3.0)
            await env.wait_slices(name)
            agents[0].set(found, acknowledgement="again", held=True)
            await env.write_status(agents[0], inventory=request)
            await env.wait_confirmed(name, "again")
            await env.wait_slices(name, "red-n2-10.1.0.64-26")

        run_scenario(scenario)

    def test_a_slice_whose_object_disappeared_belongs_to_its_node_until_it_reports(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start(common=SLOW)
            await env.create_nad("red", network_name="red", range="10.1.0.0/25", node_slice_size="/26")
            await env.create_node("n1")
            name = "red-n1-10.1.0.0-26"
            await env.take(name)
            agent, before = env.agents["boot-of-n1"], await env.inventory_request()
            agent.running = False
            await delete_object(env, "n1")
            await env.create_node("n2")
            request = await requested(env, before=before)
            await env.until(lambda: env.node_slices("n1"), "there is an object for the answer")
            await asyncio.sleep(8.0)  # longer than node_gc_delay
            assert {} == await env.assignments()
            await env.write_status(agent, inventory=request)
            await env.wait_slices(name, "red-n2-10.1.0.64-26")

        run_scenario(scenario)

    def test_an_emptied_api_server_gives_nothing_away(self, run_scenario: RunScenario) -> None:
        """Node and object disappear together; another node may have the slice after node GC."""

        async def scenario(env: SliceEnv) -> None:
            env.start(common=SLOW)
            await env.create_nad("red", network_name="red", range="10.1.0.0/26", node_slice_size="/26")
            await env.create_node("n1")
            await env.take("red-n1-10.1.0.0-26")
            await env.delete_node("n1")
            await delete_object(env, "n1")
            await env.create_node("n2")
            await asyncio.sleep(4.0)
            assert {} == await env.assignments()
            await env.wait_slices("red-n2-10.1.0.0-26")
            (event,) = await env.wait_events("SlicesReleased")
            assert "n1" == event.regarding.name

        run_scenario(scenario)

    def test_a_reported_rollback_is_a_sign(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice()
            assert "ready" == await scope(env)
            before = await env.inventory_request()
            agent = env.agents["boot-of-n1"]
            agent.rolled_back = "1234567"
            await env.write_status(agent)
            await env.create_node("n2")
            request = await requested(env, before=before)
            assert "all" == await scope(env)
            await env.until(lambda: env.assignment("red-n2-10.1.0.64-26"), "all have answered")
            assert request == await env.inventory_request()  # the report in the answer is no new sign

        run_scenario(scenario)

    def test_the_next_leader_awaits_the_same_nodes(self, run_scenario: RunScenario) -> None:
        """A change of leader neither ends an inventory of all nodes, nor repeats one that is complete."""

        async def scenario(env: SliceEnv) -> None:
            controller = env.start(common=SLOW)
            await attach(env)
            for name in ("n1", "n2"):
                await env.create_node(name)
            names = ["red-n1-10.1.0.0-26", "red-n2-10.1.0.64-26"]
            for name in names:
                await env.take(name)
            before = await env.inventory_request()
            env.agents["boot-of-n2"].running = False
            await drop_assignments(env, "n1")
            after = await requested(env, before=before)
            await env.stop(controller)
            controller = env.start(common=SLOW)
            request = await requested(env, before=after)
            assert "all" == await scope(env)
            await env.create_node("n3")
            await asyncio.sleep(2 * SLOW.node_gc_delay)
            await env.wait_slices(*names)
            env.agents["boot-of-n2"].running = True
            await env.wait_slices(*names, "red-n3-10.1.0.128-26")
            await env.stop(controller)
            env.start(common=SLOW)
            await env.create_node("n4")
            await requested(env, before=request)
            assert "ready" == await scope(env)

        run_scenario(scenario)

    def test_an_operator_excuses_a_silent_node(
        self, run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(inventory_barrier, "STARTUP_TIMEOUT", REPORTED_AFTER)

        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await attach(env)
            await env.create_node("n1")
            await env.take("red-n1-10.1.0.0-26")
            before = await env.inventory_request()
            await env.create_node("n3")
            await env.until(lambda: env.assignment("red-n3-10.1.0.64-26"), "it has a slice")
            await env.take("red-n3-10.1.0.64-26")
            env.agents["boot-of-n3"].running = False
            await drop_assignments(env, "n1")
            request = await requested(env, before=before)
            await env.create_node("n2")
            (event,) = await env.wait_events("SliceInventoryIncomplete")
            assert "1 nodes have reported theirs (n3)" in (event.note or "")
            assert "podpool_controller_slices_inventory_pending 1.0" in controller.render_metrics().decode()
            assert {"red-n1-10.1.0.0-26", "red-n3-10.1.0.64-26"} == (await env.assignments()).keys()
            annotations = {"metadata": {"annotations": {INVENTORY_COMPLETE_ANNOTATION: request}}}
            await env.client.merge_patch(CONFIG_MAPS, INVENTORY_CONFIG_MAP, annotations, namespace=env.namespace)
            await env.until(lambda: env.assignment("red-n2-10.1.0.128-26"), "the other node gets a slice")
            assert "podpool_controller_slices_inventory_pending 0.0" in controller.render_metrics().decode()

        run_scenario(scenario)

    def test_a_slice_that_an_agent_reports_belongs_to_it_until_the_node_is_gone(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            await env.create_node("n1")
            hold(env.agents["boot-of-n1"], "10.1.0.0/26")
            await env.create_nad("red", network_name="red", range="10.1.0.0/26", node_slice_size="/26")
            await env.wait_slices("red-n1-10.1.0.0-26")
            await env.delete_node("n1")
            await env.create_node("n2")
            await env.wait_slices("red-n2-10.1.0.0-26")  # after node_gc_delay
            (event,) = await env.wait_events("SlicesReleased")
            assert "n1" == event.regarding.name

        run_scenario(scenario)

    def test_a_hostile_agent_neither_takes_a_network_away_nor_keeps_the_inventory_going(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start(common=Settings())
            await attach(env)
            await env.create_node("n1")
            await env.take("red-n1-10.1.0.0-26")
            await env.create_node("bad")
            await env.until(lambda: env.assignment("red-bad-10.1.0.64-26"), "it has a slice")
            agent, before = env.agents["boot-of-bad"], await env.inventory_request()
            hold(agent, "10.0.0.0/8", "all of it")
            await env.write_status(agent)
            (event,) = await env.wait_events("SliceClaimsIgnored")
            assert ("bad", True) == (event.regarding.name, "10.0.0.0/8 of network 'red'" in (event.note or ""))
            await env.create_node("n2")
            await env.until(lambda: env.assignment("red-n2-10.1.0.128-26"), "others get slices")
            assert before == await env.inventory_request()
            hold(agent, "10.1.0.192/26", "one more")
            await env.write_status(agent)
            await requested(env, before=before)
            await env.until(lambda: env.assignment("red-bad-10.1.0.192-26"), "a plausible claim counts")
            await asyncio.sleep(0.3)
            again = await env.inventory_request()
            agent.rolled_back = "99999999"
            await env.write_status(agent)
            await asyncio.sleep(0.3)
            assert again == await env.inventory_request()

        run_scenario(scenario)

    def test_a_node_without_an_agent_does_not_block_for_ever(
        self, run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No agent has ever reported from it, nothing was confirmed to it, and its kubelet reports that it is ready."""
        monkeypatch.setattr(inventory_barrier, "STARTUP_TIMEOUT", REPORTED_AFTER)

        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            before = await env.inventory_request()
            await env.create_node("control-plane", agent=False)
            await drop_assignments(env, "n1")
            await requested(env, before=before)
            await env.wait_slices(name)
            await env.until(lambda: env.assignment("red-control-plane-10.1.0.64-26"), "the inventory is complete")

        run_scenario(scenario)


class TestConfirmation:
    def test_each_acknowledgement_is_confirmed_anew(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            await attach(env)
            await env.create_node("n1")
            for acknowledgement in ("first", "second"):
                await env.acknowledge("red-n1-10.1.0.0-26", acknowledgement)
                await env.wait_confirmed("red-n1-10.1.0.0-26", acknowledgement)

        run_scenario(scenario)

    def test_after_a_reboot_the_slice_is_confirmed_anew(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            before = await env.assignment(name)
            agent = env.agents.pop("boot-of-n1")
            agent.boot = "rebooted"
            env.agents["rebooted"] = agent
            await env.client.merge_patch(
                NODES, "n1", {"status": {"nodeInfo": {"bootID": "rebooted"}}}, subresource="status"
            )
            after = await env.take(name)
            assert before
            assert before.id == after.id

        run_scenario(scenario)

    def test_an_unconfirmed_slice_yields_to_one_in_use(self, run_scenario: RunScenario) -> None:
        """A restored API server shows an old assignment, which its node acknowledges; Pods of another use it."""

        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await attach(env)
            await env.create_node("n1")
            old = "red-n1-10.1.0.0-26"
            await env.until(lambda: env.assignment(old), "it is assigned")
            await env.stop(controller)
            await env.acknowledge(old, "mine")
            await env.create_node("n2")
            hold(env.agents["boot-of-n2"], "10.1.0.0/26")
            env.start()
            assert "no NetworkAttachmentDefinition uses it any more" == await env.wait_return_requested(old)
            found = await env.assignment(old)
            assert found
            assert not found.confirmed
            await env.return_slice(old)
            await env.wait_slices("red-n1-10.1.0.64-26", "red-n2-10.1.0.0-26")
            await env.wait_confirmed("red-n2-10.1.0.0-26", "again")

        run_scenario(scenario)

    def test_two_nodes_that_use_the_same_addresses_are_reported_and_one_must_return_them(
        self, run_scenario: RunScenario
    ) -> None:
        """What was assigned and confirmed stays; the one that only its agent lists gets another slice."""

        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.create_node("n2")
            await env.until(lambda: env.assignment("red-n2-10.1.0.64-26"), "it has a slice")
            hold(env.agents["boot-of-n2"], "10.1.0.0/27")
            await env.write_status(env.agents["boot-of-n2"])
            assert "another node may use its addresses" == await env.wait_return_requested("red-n2-10.1.0.0-27")
            events = await env.wait_events("SliceConflict", 2)
            assert {"n1", "n2"} == {each.regarding.name for each in events}
            await asyncio.sleep(2.0)
            await env.wait_slices(name, "red-n2-10.1.0.0-27", "red-n2-10.1.0.64-26")
            lost, kept = await env.assignment("red-n2-10.1.0.0-27"), await env.assignment(name)
            assert lost
            assert kept
            assert ("", "") == (lost.confirmed, kept.return_reason)
            await env.acknowledge(name, "after the fence")
            await asyncio.sleep(2.0)
            kept = await env.assignment(name)
            assert kept
            assert "after the fence" != kept.confirmed
            await env.return_slice("red-n2-10.1.0.0-27")
            await env.wait_confirmed(name, "after the fence")

        run_scenario(scenario)


class TestOwnership:
    def test_an_ippool_of_an_agent_is_no_claim(self, run_scenario: RunScenario) -> None:
        """IPPools of slices follow from what agents know, and may be old."""

        async def scenario(env: SliceEnv) -> None:
            await env.create_node("n1")
            await env.create_node("n2")
            labels = {"podpool.io/node-uid": (await env.client.get(NODES, "n2")).metadata.uid}
            annotations = {"podpool.io/node": "n2", "podpool.io/network": "red", "podpool.io/range": "10.1.0.0/24"}
            await env.create_pool("10.1.0.0/26", name="red-n2-10.1.0.0-26", labels=labels, annotations=annotations)
            await attach(env)
            env.start()
            await env.wait_slices("red-n1-10.1.0.0-26", "red-n2-10.1.0.64-26")
            assert [] == await env.events("SliceConflict")

        run_scenario(scenario)

    def test_a_pool_of_a_deleted_node_counts_from_the_start(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.create_pool("10.1.0.0/26", name="red-n9-10.1.0.0-26")
            await env.allocate("red-n9-10.1.0.0-26", "1", "p")
            await env.create_pod("p", "n9")
            await attach(env)
            await env.create_node("n1")
            env.start()
            await env.until(lambda: env.assignment("red-n1-10.1.0.64-26"), "another slice is assigned")

        run_scenario(scenario)

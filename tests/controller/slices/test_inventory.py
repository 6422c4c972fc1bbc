"""The slice inventory: no assignment before agents have reported, at leader start and after a Lease is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from podpool.api.builtin import LEASES, NODES
from podpool.api.whereabouts import (
    ACKNOWLEDGED_ANNOTATION,
    BOOT_ANNOTATION,
    CONFIRMED_ANNOTATION,
    IP_POOLS,
    NODE_UID_LABEL,
    SLICE_INVENTORY_ANNOTATION,
    SLICE_REPORT_ANNOTATION,
    LostSlice,
    SliceReport,
)
from podpool.core.settings import Settings
from tests.controller.slices.slice_env import SliceEnv

RunScenario = Callable[[Callable[[SliceEnv], Coroutine[Any, Any, None]]], None]


async def requested(env: SliceEnv, node: str, *, before: str = "") -> str:
    """Wait for a new inventory request on a node, and return its ID."""

    async def request_id() -> str:
        found = (await env.client.get(NODES, node)).metadata.annotations.get(SLICE_INVENTORY_ANNOTATION, "")
        return "" if found == before else found

    return await env.until(request_id, f"{node} is asked")


async def report(env: SliceEnv, node: str, request_id: str, *lost: str) -> None:
    """Write a slice report as the node's agent does."""
    slices = tuple(LostSlice(network="red", range="10.1.0.0/24", slice=each) for each in lost)
    annotation = msgspec.json.encode(SliceReport(inventory=request_id, lost=slices)).decode()
    await env.client.merge_patch(NODES, node, {"metadata": {"annotations": {SLICE_REPORT_ANNOTATION: annotation}}})


async def acknowledge(env: SliceEnv, name: str, acknowledgement: str) -> None:
    """Acknowledge a Lease as an agent does."""
    await env.take(name)
    note = {"metadata": {"annotations": {ACKNOWLEDGED_ANNOTATION: acknowledgement}}}
    await env.client.merge_patch(LEASES, name, note, namespace=env.namespace)


async def confirmed(env: SliceEnv, name: str, acknowledgement: str) -> None:
    """Wait until an acknowledgement is confirmed."""

    async def is_confirmed() -> bool:
        lease = await env.lease(name)
        return lease is not None and lease.metadata.annotations.get(CONFIRMED_ANNOTATION) == acknowledgement

    await env.until(is_confirmed, f"{acknowledgement} is confirmed")


async def uid(env: SliceEnv, name: str) -> str:
    lease = await env.lease(name)
    return lease.metadata.uid if lease else ""


async def attach(env: SliceEnv) -> None:
    await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")


class TestLeaderStart:
    def test_nodes_without_a_slice_report_first(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await attach(env)
            for name in ("n1", "n2"):
                await env.create_node(name)
            env.start(common=Settings())
            requests = {name: await requested(env, name) for name in ("n1", "n2")}
            assert 1 == len(set(requests.values()))
            await report(env, "n1", requests["n1"])
            assert [] == await env.leases()
            await report(env, "n2", requests["n2"], "10.1.0.0/26")
            await env.wait_slices("red-n1-10.1.0.64-26", "red-n2-10.1.0.0-26")

        run_scenario(scenario)

    def test_what_was_assigned_before_the_reports_is_assigned_anew(self, run_scenario: RunScenario) -> None:
        """The NodeSlicePool is published before the agents report; no slice is created from it."""

        async def scenario(env: SliceEnv) -> None:
            await attach(env)
            for name in ("n1", "n2"):
                await env.create_node(name)
            env.start(common=Settings())
            await env.until(lambda: env.slices("red"), "slices are published")
            await asyncio.sleep(1.0)  # no assignment is due any more
            requests = {name: await requested(env, name) for name in ("n1", "n2")}
            await report(env, "n1", requests["n1"])
            await report(env, "n2", requests["n2"], "10.1.0.0/26")
            await env.wait_slices("red-n1-10.1.0.64-26", "red-n2-10.1.0.0-26")

        run_scenario(scenario)

    def test_the_wait_is_limited(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await attach(env)
            await env.create_node("n1")
            env.start()
            await env.wait_slices("red-n1-10.1.0.0-26")

        run_scenario(scenario)

    def test_nodes_with_a_slice_are_not_asked(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await attach(env)
            await env.create_node("n1")
            await env.take("red-n1-10.1.0.0-26")
            await env.stop(controller)
            before = await env.client.get(NODES, "n1")
            await env.create_node("n2")
            env.start(common=Settings())
            await report(env, "n2", await requested(env, "n2"))
            await env.until(lambda: env.lease("red-n2-10.1.0.64-26"), "the other node gets a slice")
            assert before == await env.client.get(NODES, "n1")

        run_scenario(scenario)


class TestLostLease:
    def test_its_node_gets_the_slice_again_and_nothing_else_is_assigned_before_all_reported(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            before = (await env.client.get(NODES, "n1")).metadata.annotations.get(SLICE_INVENTORY_ANNOTATION, "")
            await env.delete("leases", name)
            request = await requested(env, "n1", before=before)
            await env.create_node("n2")
            assert request == await requested(env, "n2")
            await report(env, "n2", request)
            await report(env, "n1", "an older request", "10.1.0.0/26")
            await acknowledge(env, name, "mine")
            await confirmed(env, name, "mine")
            assert [name] == await env.leases()
            await report(env, "n1", request)
            await env.wait_slices(name, "red-n2-10.1.0.64-26")

        run_scenario(scenario)

    def test_a_returned_lease_is_not_replaced_before_all_reported(self, run_scenario: RunScenario) -> None:
        """A restored API server reuses versions: a Lease seen without a holder may have one at the same version."""

        async def scenario(env: SliceEnv) -> None:
            name, other = await env.take_first_slice(), "red-n2-10.1.0.64-26"
            await env.create_node("n2")
            await env.take(other)
            before = (await env.client.get(NODES, "n1")).metadata.annotations.get(SLICE_INVENTORY_ANNOTATION, "")
            await env.delete("leases", other)
            request = await requested(env, "n1", before=before)
            returned = await env.lease(name)
            await env.return_slice(name)
            await asyncio.sleep(1.0)
            assert returned
            assert returned.metadata.uid == await uid(env, name)
            for node in ("n1", "n2"):
                await report(env, node, request)

            async def is_replaced() -> bool:
                return await uid(env, name) not in ("", returned.metadata.uid)

            await env.until(is_replaced, "it is assigned again")

        run_scenario(scenario)

    def test_a_reported_slice_belongs_to_its_node_until_that_is_gone(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            await env.create_nad("red", network_name="red", range="10.1.0.0/26", node_slice_size="/26")
            await env.create_node("n1")
            await report(env, "n1", "", "10.1.0.0/26")
            await env.wait_slices("red-n1-10.1.0.0-26")
            await env.delete_node("n1")
            await env.create_node("n2")
            await env.wait_slices("red-n2-10.1.0.0-26")  # after node_gc_delay
            (event,) = await env.wait_events("SlicesReleased")
            assert "n1" == event.regarding.name

        run_scenario(scenario)

    def test_a_node_that_is_registered_again_is_asked_again(self, run_scenario: RunScenario) -> None:
        """The report on the former Node counts until the agent reports on the new one."""

        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            node = await env.client.get(NODES, "n1")
            await report(env, "n1", "", "10.1.0.64/26")
            other = "red-n1-10.1.0.64-26"
            await env.wait_slices(name, other)
            await env.delete_node("n1")
            await env.create_node("n1", boot=node.boot_id)
            await report(env, "n1", await requested(env, "n1"))
            await env.wait_slices(name)

        run_scenario(scenario)


class TestConfirmation:
    def test_each_is_confirmed_to_anew(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            await attach(env)
            await env.create_node("n1")
            for acknowledgement in ("first", "second"):
                await acknowledge(env, "red-n1-10.1.0.0-26", acknowledgement)
                await confirmed(env, "red-n1-10.1.0.0-26", acknowledgement)

        run_scenario(scenario)

    def test_what_the_same_agent_reports_as_lost_does_not_block(self, run_scenario: RunScenario) -> None:
        """A damaged journal has slices of two sizes: the agent reports one as lost and acknowledges the other again."""

        async def scenario(env: SliceEnv) -> None:
            name, other = await env.take_first_slice(), "red-n1-10.1.0.0-27"
            await env.allocate(name, "1", "default/web-0")
            await report(env, "n1", "", "10.1.0.0/27")
            await env.until(lambda: env.lease(other), "the reported slice is assigned")
            await acknowledge(env, name, "mine")
            await confirmed(env, name, "mine")

        run_scenario(scenario)

    def test_what_the_same_agent_holds_does_not_block_a_slice_to_be_returned(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name, other = await env.take_first_slice(), "red-n1-10.1.0.0-27"
            await acknowledge(env, name, "mine")
            await confirmed(env, name, "mine")
            await report(env, "n1", "", "10.1.0.0/27")
            assert await env.wait_return_requested(other)
            await acknowledge(env, other, "former")
            await confirmed(env, other, "former")

        run_scenario(scenario)

    def test_an_unconfirmed_slice_yields_to_one_in_use(self, run_scenario: RunScenario) -> None:
        """A restored API server shows an old Lease, which its node acknowledges; Pods of another use it."""

        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await attach(env)
            await env.create_node("n1")
            old = "red-n1-10.1.0.0-26"
            await env.until(lambda: env.lease(old), "it is assigned")
            await env.stop(controller)
            await acknowledge(env, old, "mine")
            await env.create_node("n2")
            await report(env, "n2", "", "10.1.0.0/26")
            env.start()
            assert "no NetworkAttachmentDefinition uses it any more" == await env.wait_return_requested(old)
            lease = await env.lease(old)
            assert lease
            assert CONFIRMED_ANNOTATION not in lease.metadata.annotations
            await env.return_slice(old)
            await env.wait_slices("red-n1-10.1.0.64-26", "red-n2-10.1.0.0-26")

        run_scenario(scenario)


class TestOwnership:
    def test_a_pool_without_a_lease_is_no_conflict(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            other = await env.create_node("n2")
            await env.until(lambda: env.lease("red-n2-10.1.0.64-26"), "the other has its own slice")
            notes = {"podpool.io/node": "n2", "podpool.io/network": "red", "podpool.io/range": "10.1.0.0/24"}
            meta = {"labels": {"podpool.io/node-uid": other.metadata.uid}, "annotations": notes}
            await env.create_pool("10.1.0.0/26", name="red-n2-10.1.0.0-26", **meta)
            await env.wait_slices(name, "red-n2-10.1.0.64-26")
            assert [] == await env.events("SliceConflict")

        run_scenario(scenario)

    def test_a_pool_that_overlaps_a_slice_in_use_of_the_same_node_gets_no_lease(
        self, run_scenario: RunScenario
    ) -> None:
        """A leader created it before it knew what a restored API server shows."""

        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await attach(env)
            node, old, fits = await env.create_node("n1"), "red-n1-10.1.0.0-26", "red-n1-10.1.0.0-25"
            await env.take(old)
            await env.allocate(old, "1", "p")
            await env.stop(controller)
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/25")
            notes = {"podpool.io/node": "n1", "podpool.io/network": "red", "podpool.io/range": "10.1.0.0/24"}
            meta = {"labels": {"podpool.io/node-uid": node.metadata.uid}, "annotations": notes}
            await env.create_pool("10.1.0.0/25", name=fits, **meta)
            env.start()
            assert "10.1.0.0/24 is now divided into slices of /25" == await env.wait_return_requested(old)
            await env.wait_slices(old)
            await env.return_slice(old)
            await env.wait_slices(fits)

        run_scenario(scenario)

    def test_a_pool_of_a_deleted_node_counts_from_the_start(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.create_pool("10.1.0.0/26", name="red-n9-10.1.0.0-26")
            await env.allocate("red-n9-10.1.0.0-26", "1", "p")
            await env.create_pod("p", "n9")
            await attach(env)
            await env.create_node("n1")
            env.start()
            await env.until(lambda: env.lease("red-n1-10.1.0.64-26"), "another slice is assigned")

        run_scenario(scenario)

    def test_the_boot_id_of_a_deleted_lease_is_read_from_the_pool(self, run_scenario: RunScenario) -> None:
        """A leader was killed after it deleted the Lease of a Node that was then registered again in the same boot."""

        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.allocate(name, "1", "p")
            note = {"metadata": {"annotations": {BOOT_ANNOTATION: "boot-of-n1"}}}
            await env.client.merge_patch(IP_POOLS, name, note, namespace=env.namespace)
            await env.delete_node("n1")
            await env.delete("leases", name)
            node = await env.create_node("n1")
            await report(env, "n1", await requested(env, "n1"))

            async def owned() -> bool:
                lease = await env.lease(name)
                return lease is not None and lease.metadata.labels[NODE_UID_LABEL] == node.metadata.uid

            await env.until(owned, "it belongs to the new Node")
            assert [name] == await env.pools()

        run_scenario(scenario)

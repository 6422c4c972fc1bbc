"""From a NAD to slices: NodeSlicePools, IPPools and Leases, as nodes and NADs are created and deleted."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from podpool.api.builtin import LEASES
from podpool.api.meta import Condition
from podpool.api.whereabouts import NODE_UID_LABEL
from tests.controller.slices.slice_env import SliceEnv

RunScenario = Callable[[Callable[[SliceEnv], Coroutine[Any, Any, None]]], None]


def summary(condition: Condition) -> tuple[str, str, str]:
    return condition.type, condition.status, condition.reason


class TestJoining:
    def test_every_node_gets_a_slice_with_ippool_and_lease(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            node = await env.create_node("n1")
            await env.create_node("n2")
            env.start()
            await env.wait_slices("red-n1-10.1.0.0-26", "red-n2-10.1.0.64-26")
            pool, lease = await env.pool("red-n1-10.1.0.0-26"), await env.lease("red-n1-10.1.0.0-26")
            assert pool
            assert lease
            assert ("10.1.0.0/26", {}) == (pool.spec.range, pool.spec.allocations)
            assert {"podpool.io/node": "n1", "podpool.io/network": "red", "podpool.io/range": "10.1.0.0/24"} == (
                pool.metadata.annotations
            )
            for each in (pool, lease):
                assert {NODE_UID_LABEL: node.metadata.uid} == each.metadata.labels
            assert not lease.spec.holder_identity
            table = await env.slice_pool("red")
            assert table
            assert ("10.1.0.0/24", "/26") == (table.spec.range, table.spec.slice_size)
            assert ["n1", "n2", "", ""] == [each.node_name for each in table.status.allocations]

        run_scenario(scenario)

    def test_nads_of_several_namespaces_share_one_slice_table(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            await env.create_nad("one", range="10.1.0.0/24", node_slice_size="/26", top="one")
            await env.create_nad("two", namespace="default", range="10.1.0.0/24", node_slice_size="/26", top="two")
            await env.create_node("n1")
            await env.wait_slices("n1-10.1.0.0-26")
            await env.until(lambda: env.slice_pool("two"), "the second NodeSlicePool exists")
            assert {"n1": "10.1.0.0/26"} == await env.slices("one") == await env.slices("two")

        run_scenario(scenario)

    def test_the_flat_file_has_defaults_for_nads(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start(flat_file=b'{"range": "10.1.0.0/24", "node_slice_size": "/26"}')
            await env.create_nad("red", network_name="red")
            await env.create_nad("blue", network_name="blue", range="10.2.0.0/24")
            await env.create_node("n1")
            await env.wait_slices("red-n1-10.1.0.0-26", "blue-n1-10.2.0.0-26")

        run_scenario(scenario)

    def test_two_families_and_exclusions(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            ranges = [{"range": "10.1.0.0/24", "exclude": ["10.1.0.0/26"]}, {"range": "fd00::/64"}]
            await env.create_nad("dual", network_name="dual", ipRanges=ranges, node_slice_size="/26")
            await env.create_node("n1")
            await env.wait_slices("dual-n1-10.1.0.64-26", "dual-n1-fd00---122")
            assert {"n1": "10.1.0.64/26"} == await env.slices("dual")
            assert {"n1": "fd00::/122"} == await env.slices("dual-fd00---64")

        run_scenario(scenario)

    def test_a_nodeslicepool_that_would_be_too_large_lists_only_assigned_slices(
        self, run_scenario: RunScenario
    ) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            await env.create_nad("wide", network_name="wide", range="10.0.0.0/8", node_slice_size="/24")
            await env.create_node("n1")
            await env.wait_slices("wide-n1-10.0.0.0-24")
            table = await env.slice_pool("wide")
            assert table
            assert 1 == len(table.status.allocations)

        run_scenario(scenario)


class TestScarcity:
    def test_the_longest_waiting_node_is_first_also_after_a_leader_change(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await env.create_nad("red", network_name="red", range="10.1.0.0/25", node_slice_size="/26")
            for name in ("n1", "n2"):
                await env.create_node(name)
                await env.until(lambda: env.slices("red"), "the NodeSlicePool exists")
            await env.wait_slices("red-n1-10.1.0.0-26", "red-n2-10.1.0.64-26")
            await env.create_node("z-first")
            await env.wait_events("NoFreeSlice")
            await env.create_node("a-second")
            await env.wait_events("NoFreeSlice", 2)
            (short,) = await env.wait_events("InsufficientSlices")
            assert ("NetworkAttachmentDefinition", "red") == (short.regarding.kind, short.regarding.name)
            table = await env.slice_pool("red")
            assert table
            assert "z-first a-second" == table.metadata.annotations["podpool.io/waiting"]
            (condition,) = table.status.conditions or ()
            assert ("InsufficientSlices", "True", "MoreNodesThanSlices") == summary(condition)
            assert condition.message.startswith("2 nodes wait for a slice of 10.1.0.0/25, which has 2: use a larger")
            page = controller.render_metrics().decode()
            assert 'podpool_controller_slices_nodes_waiting{network="red",range="10.1.0.0/25"} 2.0' in page
            await env.stop(controller)
            await env.delete_node("n1")  # its slice was assigned, and never taken
            env.start()
            await env.wait_slices("red-n2-10.1.0.64-26", "red-z-first-10.1.0.0-26")
            await env.delete_node("n2")
            await env.wait_slices("red-a-second-10.1.0.64-26", "red-z-first-10.1.0.0-26")
            table = await env.slice_pool("red")
            assert table
            assert "podpool.io/waiting" not in table.metadata.annotations
            (sufficient,) = table.status.conditions or ()
            assert ("InsufficientSlices", "False", "Sufficient") == summary(sufficient)
            assert (condition.last_transition_time or "") <= (sufficient.last_transition_time or "")

        run_scenario(scenario)

    def test_a_node_is_replaced_while_all_slices_are_assigned(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice("10.1.0.0/26")
            await env.delete_node("n1")
            await env.create_node("n2")
            await env.wait_slices("red-n2-10.1.0.0-26")  # after node_gc_delay
            assert {"n2": "10.1.0.0/26"} == await env.slices("red")

        run_scenario(scenario)


class TestNodeGC:
    def test_a_slice_in_use_is_kept_until_its_node_is_gone(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice("10.1.0.0/26")
            await env.create_pod("p", "n1")
            await env.delete_node("n1")
            await env.create_node("n2")
            await asyncio.sleep(4.0)  # the four times node_gc_delay, but a Pod is bound to it
            await env.wait_slices(name)
            await env.delete_pod("p")
            await env.wait_slices("red-n2-10.1.0.0-26")
            (event,) = await env.wait_events("SlicesReleased")
            assert ("n1", "the Node is deleted: 1 slice released") == (event.regarding.name, event.note)

        run_scenario(scenario)

    def test_a_node_that_is_registered_again_keeps_its_slice(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.allocate(name, "1", "p")
            before = await env.lease(name)
            await env.delete_node("n1")
            node = await env.create_node("n1")

            async def owned() -> bool:
                found = await env.pool(name), await env.lease(name)
                return all(each and each.metadata.labels[NODE_UID_LABEL] == node.metadata.uid for each in found)

            await env.until(owned, "it belongs to the new Node")
            await asyncio.sleep(3.0)
            await env.wait_slices(name)
            after, pool = await env.lease(name), await env.pool(name)
            assert before
            assert after
            assert pool
            assert before.metadata.uid == after.metadata.uid
            assert ["1"] == list(pool.spec.allocations)

        run_scenario(scenario)

    def test_another_machine_of_the_same_name_gets_another_slice(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice()
            await env.delete_node("n1")
            await env.create_node("n1", boot="another")
            await env.until(lambda: env.lease("red-n1-10.1.0.64-26"), "it has its own slice")
            await env.take("red-n1-10.1.0.64-26", boot="another")
            await env.wait_slices("red-n1-10.1.0.64-26")

        run_scenario(scenario)

    def test_an_empty_pool_of_whereabouts_own_slices_is_deleted_with_its_lease_after_its_node(
        self, run_scenario: RunScenario
    ) -> None:
        """Pools with allocations, pools of nodes with Pods, and shared pools are kept."""

        async def scenario(env: SliceEnv) -> None:
            gone, full, bound = (f"red-{node}-10.1.0.{at}-26" for node, at in (("x", 64), ("y", 128), ("z", 192)))
            for name, range_ in ((gone, "10.1.0.64/26"), (full, "10.1.0.128/26"), (bound, "10.1.0.192/26")):
                await env.create_pool(range_, name=name)
            await env.create_pool("10.1.0.128/26", name="blue-10.1.0.128-26")
            await env.client.create(LEASES, {"metadata": {"name": gone, "namespace": env.namespace}, "spec": {}})
            await env.allocate(full, "1", "web")
            await env.create_pod("web", "z")
            await env.create_nad("blue", network_name="blue", range="10.1.0.128/26")
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await env.create_node("n1")
            env.start()
            left = sorted([full, bound, "blue-10.1.0.128-26", "red-n1-10.1.0.0-26"])

            async def deleted() -> bool:
                return left == await env.pools()

            await env.until(deleted, "it is deleted")
            assert await env.lease(gone) is None
            await asyncio.sleep(4.0)  # the four times node_gc_delay
            assert left == await env.pools()

        run_scenario(scenario)


class TestChangingNADs:
    def test_a_changed_size_waits_until_the_slices_are_returned(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await env.create_node("n1")
            await env.create_node("n2")
            old = "red-n1-10.1.0.0-26"
            await env.take(old)
            await env.allocate(old, "1", "p")
            await env.until(lambda: env.lease("red-n2-10.1.0.64-26"), "the other is assigned its own")
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/27")
            assert "10.1.0.0/24 is now divided into slices of /27" == await env.wait_return_requested(old)
            await env.wait_slices(old, "red-n2-10.1.0.64-27")  # the other had not taken its own
            await env.stop(controller)
            env.start()
            await asyncio.sleep(1.0)
            await env.wait_slices(old, "red-n2-10.1.0.64-27")
            await env.return_slice(old)
            await env.wait_slices("red-n1-10.1.0.0-27", "red-n2-10.1.0.64-27")

        run_scenario(scenario)

    def test_a_larger_range_with_the_same_slices_keeps_them(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.create_nad("red", network_name="red", range="10.1.0.0/23", node_slice_size="/26")

            async def updated() -> bool:
                pool = await env.pool(name)
                return pool is not None and pool.metadata.annotations["podpool.io/range"] == "10.1.0.0/23"

            await env.until(updated, "the pool has the larger range")
            await env.wait_slices(name)
            pool = await env.pool(name)
            assert pool
            assert "podpool.io/return" not in pool.metadata.annotations

        run_scenario(scenario)

    def test_slices_in_use_outlive_their_nad(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.create_node("n2")
            await env.allocate(name, "1", "p")
            await env.until(lambda: env.lease("red-n2-10.1.0.64-26"), "the other is assigned its own")
            await env.delete_nad("red")
            assert "no NetworkAttachmentDefinition uses it any more" == await env.wait_return_requested(name)
            await env.wait_slices(name)  # what was not taken is deleted
            assert await env.slice_pool("red")
            await env.return_slice(name)
            await env.wait_slices()

            async def cleared() -> bool:
                return await env.slice_pool("red") is None

            await env.until(cleared, "its NodeSlicePool is deleted too")

        run_scenario(scenario)

    def test_a_nad_that_is_created_again_cancels_the_return(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.delete_nad("red")
            await env.wait_return_requested(name)
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")

            async def stays() -> bool:
                pool = await env.pool(name)
                return pool is not None and "podpool.io/return" not in pool.metadata.annotations

            await env.until(stays, "its return is no longer requested")

        run_scenario(scenario)


class TestRepair:
    def test_deleted_objects_are_created_again(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            for kind, path in (("ippools", name), ("nodeslicepools", "red")):
                await env.delete(kind, path)
            await env.wait_slices(name)
            await env.until(lambda: env.slices("red"), "the NodeSlicePool is written")
            lease = await env.lease(name)
            assert lease
            assert lease.spec.holder_identity

        run_scenario(scenario)

    def test_a_pool_of_a_whereabouts_plugin_is_adopted_with_its_allocations(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.create_node("n0")
            await env.create_node("n1")
            name = "red-n1-10.1.0.0-26"
            await env.create_pool("10.1.0.0/26", name=name)
            await env.allocate(name, "1", "p")
            env.start()
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await env.wait_slices(name, "red-n0-10.1.0.64-26")
            pool = await env.take(name)
            assert ["1"] == list(pool.spec.allocations)

        run_scenario(scenario)


class TestRejections:
    def test_both_nads_are_reported_and_others_are_not_affected(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            await env.create_node("n1")
            await env.create_nad("first", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await env.until(lambda: env.slice_pool("red"), "the first has a NodeSlicePool")
            await env.create_nad("second", network_name="red", range="10.1.0.0/23", node_slice_size="/26")
            await env.create_nad("third", network_name="blue", range="10.1.0.0/23", node_slice_size="/26")
            await env.create_nad("broken", network_name="green", range="10.2.0.0/24", node_slice_size="/99")
            events = await env.wait_events("NetworkRejected", 3)
            assert {"first", "second", "broken"} == {each.regarding.name for each in events}
            await env.wait_slices("blue-n1-10.1.0.0-26", "red-n1-10.1.0.0-26")

        run_scenario(scenario)

    def test_unknown_keys_are_reported_on_the_nad(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start()
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", enable_l3=True)
            (event,) = await env.wait_events("UnknownKeys")
            assert ("red", True) == (event.regarding.name, "no effect: enable_l3" in event.note)

        run_scenario(scenario)

    def test_a_slice_size_is_suggested_for_fast_ipam(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            for name in ("n1", "n2", "n3"):
                await env.create_node(name)
            env.start()
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", fast_ipam=True)
            (event,) = await env.wait_events("SliceSizeMissing")
            assert 'set "node_slice_size": "/27", which fits 3 nodes' in event.note
            assert [] == await env.pools()

        run_scenario(scenario)

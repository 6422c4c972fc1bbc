"""From a NAD to slices: NodeSlices and NodeSlicePools, as nodes and NADs are created and deleted."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from podpool.api.builtin import LEASES, NODES
from podpool.api.meta import Condition
from podpool.api.node_slices import FINALIZER
from podpool.api.whereabouts import NODE_SLICE_POOLS, NODE_UID_LABEL
from podpool.core.settings import Settings
from tests.controller.slices.slice_env import SliceEnv

RunScenario = Callable[[Callable[[SliceEnv], Coroutine[Any, Any, None]]], None]


def summary(condition: Condition) -> tuple[str, str, str]:
    return condition.type, condition.status, condition.reason


SLOW = Settings(utilization_poll=0.2, fence=3.0, confirmation_interval=1.0, clock_error=0.1, node_gc_delay=5.0)


async def attach(env: SliceEnv, *, range_: str = "10.1.0.0/24") -> None:
    await env.create_nad("red", network_name="red", range=range_, node_slice_size="/26")


async def answered(env: SliceEnv, node: str) -> bool:
    obj = await env.node_slices(node)
    return obj is not None and obj.status.inventory == await env.inventory_request()


async def waiting(env: SliceEnv, names: str) -> bool:
    table = await env.slice_pool("red")
    return table is not None and table.metadata.annotations.get("podpool.io/waiting", "") == names


async def is_fresh(env: SliceEnv, name: str) -> bool:
    found = await env.assignment(name)
    return found is not None and not found.confirmed


async def create_derived(env: SliceEnv, name: str, *, node: str, uid: str) -> None:
    """Create the IPPool and the Lease of a slice as an agent does."""
    annotations = {"podpool.io/node": node, "podpool.io/network": "red", "podpool.io/range": "10.1.0.0/24"}
    meta = {"labels": {NODE_UID_LABEL: uid}, "annotations": annotations}
    range_ = name.rpartition(f"{node}-")[2].replace("-", "/")
    await env.create_pool(range_, name=name, **meta)
    await env.client.create(LEASES, {"metadata": {"name": name, "namespace": env.namespace, **meta}, "spec": {}})


class TestJoining:
    def test_every_node_gets_an_object_with_its_slice(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            node = await env.create_node("n1")
            await env.create_node("n2")
            env.start()
            await env.wait_slices("red-n1-10.1.0.0-26", "red-n2-10.1.0.64-26")
            obj = await env.node_slices("n1")
            assert obj
            assert (node.metadata.uid, ()) == (obj.spec.node_uid, obj.spec.former)
            assert ((FINALIZER,), ()) == (obj.metadata.finalizers, obj.metadata.owner_references)
            (assignment,) = obj.spec.assignments
            assert ("red", "10.1.0.0/24", "10.1.0.0/26") == (assignment.network, assignment.range, assignment.slice)
            assert ("", "") == (assignment.confirmed, assignment.return_reason)
            table = await env.until(lambda: env.slice_pool("red"), "the NodeSlicePool exists")
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
            await env.until(lambda: waiting(env, "z-first a-second"), "both wait in order")
            table = await env.slice_pool("red")
            assert table
            (condition,) = table.status.conditions or ()
            assert ("InsufficientSlices", "True", "MoreNodesThanSlices") == summary(condition)
            assert condition.message.startswith("2 nodes wait for a slice of 10.1.0.0/25, which has 2: use a larger")
            page = controller.render_metrics().decode()
            assert 'podpool_controller_slices_nodes_waiting{network="red",range="10.1.0.0/25"} 2.0' in page
            await env.stop(controller)
            await env.delete_node("n1")
            env.start()
            await env.wait_slices("red-n2-10.1.0.64-26", "red-z-first-10.1.0.0-26")
            await env.delete_node("n2")
            await env.wait_slices("red-a-second-10.1.0.64-26", "red-z-first-10.1.0.0-26")
            await env.until(lambda: waiting(env, ""), "nobody waits")
            table = await env.slice_pool("red")
            assert table
            (sufficient,) = table.status.conditions or ()
            assert ("InsufficientSlices", "False", "Sufficient") == summary(sufficient)
            assert (condition.last_transition_time or "") <= (sufficient.last_transition_time or "")

        run_scenario(scenario)

    def test_a_node_that_waits_has_an_object_in_which_its_agent_can_report(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice("10.1.0.0/26")
            await env.create_node("n2")
            obj = await env.until(lambda: env.node_slices("n2"), "it has an object")
            assert () == obj.spec.assignments

        run_scenario(scenario)

    def test_a_node_is_replaced_while_all_slices_are_assigned(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice("10.1.0.0/26")
            await env.delete_node("n1")
            await env.create_node("n2")
            await env.wait_slices("red-n2-10.1.0.0-26")  # after node_gc_delay

            async def published() -> bool:
                return {"n2": "10.1.0.0/26"} == await env.slices("red")

            await env.until(published, "the NodeSlicePool shows it")

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
            before = await env.assignment(name)
            await env.delete_node("n1")
            node = await env.create_node("n1")

            async def owned() -> bool:
                obj = await env.node_slices("n1")
                return obj is not None and obj.spec.node_uid == obj.status.node_uid == node.metadata.uid

            await env.until(owned, "it belongs to the new Node")
            await asyncio.sleep(3.0)
            await env.wait_slices(name)
            assert before == await env.assignment(name)

        run_scenario(scenario)

    def test_another_machine_of_the_same_name_gets_another_slice(self, run_scenario: RunScenario) -> None:
        """The former one's is kept for it until node GC."""

        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            former = await env.client.get(NODES, "n1")
            await env.delete_node("n1")
            await env.create_node("n1", boot="another")
            await env.until(lambda: env.assignment("red-n1-10.1.0.64-26"), "it has its own slice")
            obj = await env.node_slices("n1")
            assert obj
            (kept,) = obj.spec.former
            assert (former.metadata.uid, "boot-of-n1") == (kept.node_uid, kept.boot_id)
            assert ["10.1.0.0/26"] == [each.slice for each in kept.assignments]
            await env.take("red-n1-10.1.0.64-26", boot="another")
            await env.wait_slices("red-n1-10.1.0.64-26")
            assert name not in await env.assignments()

        run_scenario(scenario)

    def test_a_machine_that_was_replaced_and_comes_back_has_its_slice_again(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start(common=SLOW)
            await attach(env)
            await env.create_node("n1")
            name, other = "red-n1-10.1.0.0-26", "red-n1-10.1.0.64-26"
            taken = await env.take(name)
            await env.delete_node("n1")
            await env.create_node("n1", boot="another")
            await env.take(other, boot="another")
            await env.delete_node("n1")
            node = await env.create_node("n1")

            async def swapped() -> bool:
                obj = await env.node_slices("n1")
                return obj is not None and obj.spec.node_uid == node.metadata.uid

            await env.until(swapped, "the first machine is the present one")
            obj = await env.node_slices("n1")
            assert obj
            assert [taken.id] == [each.id for each in obj.spec.assignments]
            assert [("another", ["10.1.0.64/26"])] == [
                (each.boot_id, [slice_.slice for slice_ in each.assignments]) for each in obj.spec.former
            ]

        run_scenario(scenario)

    def test_what_a_deleted_node_never_acknowledged_is_withdrawn_at_once(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            env.start(common=Settings())
            await attach(env, range_="10.1.0.0/26")
            await env.create_node("n1")
            await env.wait_slices("red-n1-10.1.0.0-26")
            await env.until(lambda: answered(env, "n1"), "its agent has reported")
            await env.delete_node("n1")
            await env.create_node("n2")
            await env.wait_slices("red-n2-10.1.0.0-26")
            assert await env.node_slices("n1") is None

        run_scenario(scenario)

    def test_a_node_whose_agent_never_reported_holds_what_is_assigned(self, run_scenario: RunScenario) -> None:
        """It may be an older agent, or one that could not write its status."""

        async def scenario(env: SliceEnv) -> None:
            env.start(common=SLOW)
            await attach(env)
            await env.create_node("n1", agent=False)
            await env.until(lambda: env.assignment("red-n1-10.1.0.0-26"), "it has a slice")
            await env.delete_nad("red")
            await env.wait_return_requested("red-n1-10.1.0.0-26")
            await env.delete_node("n1")
            await asyncio.sleep(3.0)
            assert ["red-n1-10.1.0.0-26"] == [*await env.assignments()]
            await env.wait_slices()  # after node_gc_delay

        run_scenario(scenario)

    def test_ippool_and_lease_of_a_gone_node_are_deleted(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            uid = (await env.client.get(NODES, "n1")).metadata.uid
            await create_derived(env, name, node="n1", uid=uid)
            await env.delete_node("n1")
            await env.wait_slices()

            async def deleted() -> bool:
                return await env.pool(name) is None and await env.lease(name) is None

            await env.until(deleted, "both are deleted")

        run_scenario(scenario)

    def test_a_leftover_ippool_of_a_former_node_is_deleted(self, run_scenario: RunScenario) -> None:
        """A leader was killed after it released the slice; the node's own pools are not touched."""

        async def scenario(env: SliceEnv) -> None:
            name, left = await env.take_first_slice(), "red-n1-10.1.0.64-26"
            uid = (await env.client.get(NODES, "n1")).metadata.uid
            await create_derived(env, name, node="n1", uid=uid)
            await create_derived(env, left, node="n1", uid="former")

            async def deleted() -> bool:
                return await env.pool(left) is None and await env.lease(left) is None

            await env.until(deleted, "it is deleted")
            await asyncio.sleep(4.0)
            assert await env.pool(name)

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
            left = sorted([full, bound, "blue-10.1.0.128-26"])

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
            await env.until(lambda: env.assignment("red-n2-10.1.0.64-26"), "the other is assigned its own")
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
                found = await env.assignment(name)
                return found is not None and found.range == "10.1.0.0/23"

            await env.until(updated, "the assignment has the larger range")
            await env.wait_slices(name)
            found = await env.assignment(name)
            assert found
            assert not found.return_reason

        run_scenario(scenario)

    def test_slices_in_use_outlive_their_nad_and_their_nodeslicepool(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.create_node("n2")
            await env.until(lambda: env.assignment("red-n2-10.1.0.64-26"), "the other is assigned its own")
            await env.until(lambda: env.slice_pool("red"), "there is a NodeSlicePool")
            await env.delete_nad("red")
            assert "no NetworkAttachmentDefinition uses it any more" == await env.wait_return_requested(name)
            await env.wait_slices(name)  # what was not taken is withdrawn

            async def cleared() -> bool:
                return await env.slice_pool("red") is None

            await env.until(cleared, "its NodeSlicePool is deleted")
            await env.create_nad("blue", network_name="red", range="10.1.0.0/23", node_slice_size="/26")
            await env.until(lambda: env.assignment("red-n2-10.1.0.64-26"), "its addresses are not given away")
            await env.return_slice(name)
            await env.until(lambda: is_fresh(env, name), "it is assigned anew")

        run_scenario(scenario)

    def test_a_nad_that_is_created_again_cancels_the_return(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.delete_nad("red")
            await env.wait_return_requested(name)
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")

            async def stays() -> bool:
                found = await env.assignment(name)
                return found is not None and not found.return_reason

            await env.until(stays, "its return is no longer requested")

        run_scenario(scenario)


class TestRepair:
    def test_a_deleted_nodeslicepool_is_created_again(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice()
            await env.until(lambda: env.slices("red"), "the NodeSlicePool is written")
            await env.delete("nodeslicepools", "red")
            await env.until(lambda: env.slices("red"), "the NodeSlicePool is written again")

        run_scenario(scenario)

    def test_a_new_leader_keeps_nodeslicepools(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            controller = env.start()
            await attach(env)
            await env.create_node("n1")
            before = await env.until(lambda: env.slice_pool("red"), "the NodeSlicePool is written")
            await env.stop(controller)
            env.start()
            await env.create_node("n2")

            async def shown() -> bool:
                return {"n1", "n2"} == (await env.slices("red")).keys()

            await env.until(shown, "it is updated")
            after = await env.slice_pool("red")
            assert after
            assert before.metadata.uid == after.metadata.uid

        run_scenario(scenario)

    def test_an_object_that_is_deleted_by_hand_stays_while_its_node_has_slices(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name = await env.take_first_slice()
            await env.delete("nodeslices", "n1")
            await env.take(name)  # acknowledged and confirmed anew
            await env.delete_nad("red")
            await env.wait_return_requested(name)
            await env.return_slice(name)
            await env.wait_slices()

        run_scenario(scenario)

    def test_a_row_of_a_nodeslicepool_counts_until_its_node_reports(self, run_scenario: RunScenario) -> None:
        """Whereabouts' own slice controller wrote it: a node has its slice, and that of a missing one is kept."""

        async def scenario(env: SliceEnv) -> None:
            rows = {"n1": "10.1.0.192/26", "gone": "10.1.0.0/26"}
            status = {"allocations": [{"nodeName": node, "sliceRange": slice_} for node, slice_ in rows.items()]}
            meta = {"name": "red", "namespace": env.namespace}
            spec = {"range": "10.1.0.0/24", "sliceSize": "/26"}
            await env.client.create(NODE_SLICE_POOLS, {"metadata": meta, "spec": spec, "status": status})
            await env.create_node("n1", agent=False)
            await env.create_node("n2")
            await attach(env)
            env.start(common=SLOW)
            await env.wait_slices("red-n1-10.1.0.192-26", "red-n2-10.1.0.64-26")
            await asyncio.sleep(6.0)  # node_gc_delay
            await env.create_node("n3")
            await env.until(lambda: env.assignment("red-n3-10.1.0.0-26"), "the missing node's slice is free")

        run_scenario(scenario)

    def test_a_row_of_another_size_ends_with_its_nodes_answer(self, run_scenario: RunScenario) -> None:
        """It is to be returned, and nothing else is to be decided: its node is asked nevertheless."""

        async def scenario(env: SliceEnv) -> None:
            meta = {"name": "red", "namespace": env.namespace}
            status = {"allocations": [{"nodeName": "n1", "sliceRange": "10.1.0.0/27"}]}
            spec = {"range": "10.1.0.0/24", "sliceSize": "/27"}
            await env.client.create(NODE_SLICE_POOLS, {"metadata": meta, "spec": spec, "status": status})
            await env.create_node("n1")
            await attach(env)
            env.start(common=SLOW)
            await env.wait_slices("red-n1-10.1.0.0-26")

        run_scenario(scenario)

    def test_a_slice_that_a_whereabouts_plugin_uses_is_assigned_to_its_node(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.create_node("n0")
            await env.create_node("n1")
            name = "red-n1-10.1.0.0-26"
            await env.create_pool("10.1.0.0/26", name=name)
            await env.allocate(name, "1", "p")
            env.start()
            await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await env.wait_slices(name, "red-n0-10.1.0.64-26")
            pool = await env.pool(name)
            assert pool
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

"""From a definition to slices: tables, IPPools and Leases, as nodes and definitions come and go."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from podpool.api.builtin import LEASES
from podpool.api.meta import Condition
from podpool.api.whereabouts import NODE_UID_LABEL
from tests.controller.slices.harness import SliceSite

Tell = Callable[[Callable[[SliceSite], Coroutine[Any, Any, None]]], None]


def condition_words(condition: Condition) -> tuple[str, str, str]:
    return condition.type, condition.status, condition.reason


class TestJoining:
    def test_every_node_gets_a_slice_with_pool_and_lease(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            node = await site.join("n1")
            await site.join("n2")
            site.start()
            await site.comes("red-n1-10.1.0.0-26", "red-n2-10.1.0.64-26")
            pool, lease = await site.pool("red-n1-10.1.0.0-26"), await site.lease("red-n1-10.1.0.0-26")
            assert pool
            assert lease
            assert ("10.1.0.0/26", {}) == (pool.spec.range, pool.spec.allocations)
            assert {"podpool.io/node": "n1", "podpool.io/network": "red", "podpool.io/range": "10.1.0.0/24"} == (
                pool.metadata.annotations
            )
            for each in (pool, lease):
                assert {NODE_UID_LABEL: node.metadata.uid} == each.metadata.labels
            assert not lease.spec.holder_identity
            table = await site.table("red")
            assert table
            assert ("10.1.0.0/24", "/26") == (table.spec.range, table.spec.slice_size)
            assert ["n1", "n2", "", ""] == [each.node_name for each in table.status.allocations]

        tell(story)

    def test_several_definitions_share_one_table_also_from_other_namespaces(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            site.start()
            await site.attach("one", range="10.1.0.0/24", node_slice_size="/26", top="one")
            await site.attach("two", namespace="default", range="10.1.0.0/24", node_slice_size="/26", top="two")
            await site.join("n1")
            await site.comes("n1-10.1.0.0-26")
            await site.until(lambda: site.table("two"), "the second shows the table")
            assert {"n1": "10.1.0.0/26"} == await site.slices("one") == await site.slices("two")

        tell(story)

    def test_a_flat_file_fills_what_definitions_leave_empty(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            site.start(flat_file=b'{"range": "10.1.0.0/24", "node_slice_size": "/26"}')
            await site.attach("red", network_name="red")
            await site.attach("blue", network_name="blue", range="10.2.0.0/24")
            await site.join("n1")
            await site.comes("red-n1-10.1.0.0-26", "blue-n1-10.2.0.0-26")

        tell(story)

    def test_two_families_and_exclusions(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            site.start()
            ranges = [{"range": "10.1.0.0/24", "exclude": ["10.1.0.0/26"]}, {"range": "fd00::/64"}]
            await site.attach("dual", network_name="dual", ipRanges=ranges, node_slice_size="/26")
            await site.join("n1")
            await site.comes("dual-n1-10.1.0.64-26", "dual-n1-fd00---122")
            assert {"n1": "10.1.0.64/26"} == await site.slices("dual")
            assert {"n1": "fd00::/122"} == await site.slices("dual-fd00---64")

        tell(story)

    def test_a_range_with_more_slices_than_an_object_holds_lists_those_that_are_held(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            site.start()
            await site.attach("wide", network_name="wide", range="10.0.0.0/8", node_slice_size="/24")
            await site.join("n1")
            await site.comes("wide-n1-10.0.0.0-24")
            table = await site.table("wide")
            assert table
            assert 1 == len(table.status.allocations)

        tell(story)


class TestScarcity:
    def test_who_waits_longest_is_served_first_also_by_the_next_leader(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            controller = site.start()
            await site.attach("red", network_name="red", range="10.1.0.0/25", node_slice_size="/26")
            for name in ("n1", "n2"):
                await site.join(name)
                await site.until(lambda: site.slices("red"), "the table is there")
            await site.comes("red-n1-10.1.0.0-26", "red-n2-10.1.0.64-26")
            await site.join("z-first")
            await site.told("NoSlice")
            await site.join("a-second")
            await site.told("NoSlice", 2)
            (short,) = await site.told("SlicesShort")
            assert ("NetworkAttachmentDefinition", "red") == (short.regarding.kind, short.regarding.name)
            table = await site.table("red")
            assert table
            assert "z-first a-second" == table.metadata.annotations["podpool.io/waiting"]
            (condition,) = table.status.conditions or ()
            assert ("SlicesShort", "True", "MoreNodesThanSlices") == condition_words(condition)
            assert condition.message.startswith("2 nodes wait for a slice of 10.1.0.0/25, which has 2: use a larger")
            page = controller.render_metrics().decode()
            assert 'podpool_controller_slices_nodes_waiting{network="red",range="10.1.0.0/25"} 2.0' in page
            await site.stop(controller)
            await site.leave("n1")  # its slice was offered, and never taken
            site.start()
            await site.comes("red-n2-10.1.0.64-26", "red-z-first-10.1.0.0-26")
            await site.leave("n2")
            await site.comes("red-a-second-10.1.0.64-26", "red-z-first-10.1.0.0-26")
            table = await site.table("red")
            assert table
            assert "podpool.io/waiting" not in table.metadata.annotations
            (enough,) = table.status.conditions or ()
            assert ("SlicesShort", "False", "Enough") == condition_words(enough)
            assert (condition.last_transition_time or "") <= (enough.last_transition_time or "")

        tell(story)

    def test_a_full_table_in_which_a_node_is_swapped(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.taken("10.1.0.0/26")
            await site.leave("n1")
            await site.join("n2")
            await site.comes("red-n2-10.1.0.0-26")  # after the gone time
            assert {"n2": "10.1.0.0/26"} == await site.slices("red")

        tell(story)


class TestGone:
    def test_a_slice_in_use_stays_with_its_node_until_that_is_gone(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken("10.1.0.0/26")
            await site.bind("p", "n1")
            await site.leave("n1")
            await site.join("n2")
            await asyncio.sleep(4.0)  # the gone time four times over, but a Pod is bound to it
            await site.comes(name)
            await site.unbind("p")
            await site.comes("red-n2-10.1.0.0-26")
            (freed,) = await site.told("SlicesFreed")
            assert ("n1", "the Node is gone: its slice is free") == (freed.regarding.name, freed.note)

        tell(story)

    def test_a_machine_that_is_registered_again_keeps_its_slice(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            await site.use(name, "1", "p")
            before = await site.lease(name)
            await site.leave("n1")
            node = await site.join("n1")

            async def owned() -> bool:
                found = await site.pool(name), await site.lease(name)
                return all(each and each.metadata.labels[NODE_UID_LABEL] == node.metadata.uid for each in found)

            await site.until(owned, "it belongs to the new Node")
            await asyncio.sleep(3.0)
            await site.comes(name)
            after, pool = await site.lease(name), await site.pool(name)
            assert before
            assert after
            assert pool
            assert before.metadata.uid == after.metadata.uid
            assert ["1"] == list(pool.spec.allocations)

        tell(story)

    def test_another_machine_of_the_same_name_inherits_nothing(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.taken()
            await site.leave("n1")
            await site.join("n1", boot="another")
            await site.until(lambda: site.lease("red-n1-10.1.0.64-26"), "it has a slice of its own")
            await site.take("red-n1-10.1.0.64-26", boot="another")
            await site.comes("red-n1-10.1.0.64-26")

        tell(story)

    def test_a_pool_of_whereabouts_own_slices_goes_with_its_lease_when_it_is_empty_and_its_node_is_gone(
        self, tell: Tell
    ) -> None:
        """One with entries stays, and one whose node has a Pod bound to it, and pools that all share."""

        async def story(site: SliceSite) -> None:
            gone, full, bound = (f"red-{node}-10.1.0.{at}-26" for node, at in (("x", 64), ("y", 128), ("z", 192)))
            for name, range_ in ((gone, "10.1.0.64/26"), (full, "10.1.0.128/26"), (bound, "10.1.0.192/26")):
                await site.pool_of_all(range_, name=name)
            await site.pool_of_all("10.1.0.128/26", name="blue-10.1.0.128-26")
            await site.client.create(LEASES, {"metadata": {"name": gone, "namespace": site.namespace}, "spec": {}})
            await site.use(full, "1", "web")
            await site.bind("web", "z")
            await site.attach("blue", network_name="blue", range="10.1.0.128/26")
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await site.join("n1")
            site.start()
            left = sorted([full, bound, "blue-10.1.0.128-26", "red-n1-10.1.0.0-26"])

            async def deleted() -> bool:
                return left == await site.pools()

            await site.until(deleted, "it is deleted")
            assert await site.lease(gone) is None
            await asyncio.sleep(4.0)  # the gone time four times over
            assert left == await site.pools()

        tell(story)


class TestMoving:
    def test_a_changed_size_waits_for_the_agents_consent(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            controller = site.start()
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await site.join("n1")
            await site.join("n2")
            old = "red-n1-10.1.0.0-26"
            await site.take(old)
            await site.use(old, "1", "p")
            await site.until(lambda: site.lease("red-n2-10.1.0.64-26"), "the other is offered its own")
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/27")
            assert "10.1.0.0/24 is cut into slices of /27 now" == await site.asked_back(old)
            await site.comes(old, "red-n2-10.1.0.64-27")  # the other had not taken its own
            await site.stop(controller)
            site.start()
            await asyncio.sleep(1.0)
            await site.comes(old, "red-n2-10.1.0.64-27")
            await site.hand_back(old)
            await site.comes("red-n1-10.1.0.0-27", "red-n2-10.1.0.64-27")

        tell(story)

    def test_a_larger_range_of_the_same_cut_moves_nobody(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            await site.attach("red", network_name="red", range="10.1.0.0/23", node_slice_size="/26")

            async def told() -> bool:
                pool = await site.pool(name)
                return pool is not None and pool.metadata.annotations["podpool.io/range"] == "10.1.0.0/23"

            await site.until(told, "the pool is of the larger range")
            await site.comes(name)
            pool = await site.pool(name)
            assert pool
            assert "podpool.io/return" not in pool.metadata.annotations

        tell(story)

    def test_a_deleted_definition_takes_nothing_from_a_node_that_uses_it(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            await site.join("n2")
            await site.use(name, "1", "p")
            await site.until(lambda: site.lease("red-n2-10.1.0.64-26"), "the other is offered its own")
            await site.detach("red")
            assert "no NetworkAttachmentDefinition asks for it any more" == await site.asked_back(name)
            await site.comes(name)  # what was not taken is gone
            assert await site.table("red")
            await site.hand_back(name)
            await site.comes()

            async def cleared() -> bool:
                return await site.table("red") is None

            await site.until(cleared, "its NodeSlicePool is gone too")

        tell(story)

    def test_a_definition_that_comes_back_in_time_asks_for_nothing(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            await site.detach("red")
            await site.asked_back(name)
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")

            async def stays() -> bool:
                pool = await site.pool(name)
                return pool is not None and "podpool.io/return" not in pool.metadata.annotations

            await site.until(stays, "it is asked back no more")

        tell(story)


class TestMending:
    def test_what_somebody_deletes_is_made_again(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            for kind, path in (("ippools", name), ("nodeslicepools", "red")):
                await site.remove(kind, path)
            await site.comes(name)
            await site.until(lambda: site.slices("red"), "the table is shown")
            lease = await site.lease(name)
            assert lease
            assert lease.spec.holder_identity

        tell(story)

    def test_a_pool_of_a_plugin_that_was_there_before_is_taken_over_with_its_entries(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.join("n0")
            await site.join("n1")
            name = "red-n1-10.1.0.0-26"
            await site.pool_of_all("10.1.0.0/26", name=name)
            await site.use(name, "1", "p")
            site.start()
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await site.comes(name, "red-n0-10.1.0.64-26")
            pool = await site.take(name)
            assert ["1"] == list(pool.spec.allocations)

        tell(story)


class TestRefusals:
    def test_both_are_told_and_the_others_go_on(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            site.start()
            await site.join("n1")
            await site.attach("first", network_name="red", range="10.1.0.0/24", node_slice_size="/26")
            await site.until(lambda: site.table("red"), "the first is served")
            await site.attach("second", network_name="red", range="10.1.0.0/23", node_slice_size="/26")
            await site.attach("third", network_name="blue", range="10.1.0.0/23", node_slice_size="/26")
            await site.attach("broken", network_name="green", range="10.2.0.0/24", node_slice_size="/99")
            told = await site.told("SlicesRefused", 3)
            assert {"first", "second", "broken"} == {each.regarding.name for each in told}
            await site.comes("blue-n1-10.1.0.0-26", "red-n1-10.1.0.0-26")

        tell(story)

    def test_who_wishes_for_slices_is_told_a_size(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            for name in ("n1", "n2", "n3"):
                await site.join(name)
            site.start()
            await site.attach("red", network_name="red", range="10.1.0.0/24", fast_ipam=True)
            (told,) = await site.told("SliceSizeMissing")
            assert 'set "node_slice_size": "/27", which fits 3 nodes' in told.note
            assert [] == await site.pools()

        tell(story)

"""Who uses what is asked for before anything new is given: when a lead begins, and when a Lease is gone."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from podpool.api.builtin import LEASES, NODES
from podpool.api.whereabouts import (
    BOOT_ANNOTATION,
    GRANTED_ANNOTATION,
    IP_POOLS,
    NODE_UID_LABEL,
    SIGNATURE_ANNOTATION,
    SLICE_INVENTORY_ANNOTATION,
    SLICE_REPORT_ANNOTATION,
    LostSlice,
    SliceReport,
)
from podpool.core.settings import Settings
from tests.controller.slices.harness import SliceSite

Tell = Callable[[Callable[[SliceSite], Coroutine[Any, Any, None]]], None]


async def asked(site: SliceSite, node: str, *, before: str = "") -> str:
    """Wait until a node is asked, and not what it was asked before; gives the question."""

    async def question() -> str:
        found = (await site.client.get(NODES, node)).metadata.annotations.get(SLICE_INVENTORY_ANNOTATION, "")
        return "" if found == before else found

    return await site.until(question, f"{node} is asked")


async def answer(site: SliceSite, node: str, question: str, *lost: str) -> None:
    """Have a node's agent answer."""
    slices = tuple(LostSlice(network="red", range="10.1.0.0/24", slice=each) for each in lost)
    told = msgspec.json.encode(SliceReport(inventory=question, lost=slices)).decode()
    await site.client.merge_patch(NODES, node, {"metadata": {"annotations": {SLICE_REPORT_ANNOTATION: told}}})


async def sign(site: SliceSite, name: str, signature: str) -> None:
    """Have an agent sign a Lease."""
    await site.take(name)
    note = {"metadata": {"annotations": {SIGNATURE_ANNOTATION: signature}}}
    await site.client.merge_patch(LEASES, name, note, namespace=site.namespace)


async def agreed(site: SliceSite, name: str, signature: str) -> None:
    """Wait until a signature is agreed to."""

    async def is_agreed() -> bool:
        lease = await site.lease(name)
        return lease is not None and lease.metadata.annotations.get(GRANTED_ANNOTATION) == signature

    await site.until(is_agreed, f"{signature} is agreed to")


async def uid(site: SliceSite, name: str) -> str:
    lease = await site.lease(name)
    return lease.metadata.uid if lease else ""


async def attach(site: SliceSite) -> None:
    await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/26")


class TestALeadBegins:
    def test_nodes_without_a_slice_are_heard_first(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await attach(site)
            for name in ("n1", "n2"):
                await site.join(name)
            site.start(common=Settings())
            questions = {name: await asked(site, name) for name in ("n1", "n2")}
            assert 1 == len(set(questions.values()))
            await answer(site, "n1", questions["n1"])
            assert [] == await site.leases()
            await answer(site, "n2", questions["n2"], "10.1.0.0/26")
            await site.comes("red-n1-10.1.0.64-26", "red-n2-10.1.0.0-26")

        tell(story)

    def test_but_not_for_ever(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await attach(site)
            await site.join("n1")
            site.start()
            await site.comes("red-n1-10.1.0.0-26")

        tell(story)

    def test_who_has_its_slice_is_not_asked(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            controller = site.start()
            await attach(site)
            await site.join("n1")
            await site.take("red-n1-10.1.0.0-26")
            await site.stop(controller)
            before = await site.client.get(NODES, "n1")
            await site.join("n2")
            site.start(common=Settings())
            await answer(site, "n2", await asked(site, "n2"))
            await site.until(lambda: site.lease("red-n2-10.1.0.64-26"), "the next is served")
            assert before == await site.client.get(NODES, "n1")

        tell(story)


class TestALeaseIsGone:
    def test_its_node_gets_its_slice_again_and_nobody_anything_else_before_all_have_answered(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            before = (await site.client.get(NODES, "n1")).metadata.annotations.get(SLICE_INVENTORY_ANNOTATION, "")
            await site.remove("leases", name)
            question = await asked(site, "n1", before=before)
            await site.join("n2")
            assert question == await asked(site, "n2")
            await answer(site, "n2", question)
            await answer(site, "n1", "an older one", "10.1.0.0/26")
            await sign(site, name, "mine")
            await agreed(site, name, "mine")
            assert [name] == await site.leases()
            await answer(site, "n1", question)
            await site.comes(name, "red-n2-10.1.0.64-26")

        tell(story)

    def test_nor_is_a_lease_replaced_that_was_handed_back_which_may_be_another_by_now(self, tell: Tell) -> None:
        """A restored server counts its versions anew: one that was seen empty may be signed at the same version."""

        async def story(site: SliceSite) -> None:
            name, other = await site.taken(), "red-n2-10.1.0.64-26"
            await site.join("n2")
            await site.take(other)
            asked_before = (await site.client.get(NODES, "n1")).metadata.annotations.get(SLICE_INVENTORY_ANNOTATION, "")
            await site.remove("leases", other)
            question = await asked(site, "n1", before=asked_before)
            handed_back = await site.lease(name)
            await site.hand_back(name)
            await asyncio.sleep(1.0)
            assert handed_back
            assert handed_back.metadata.uid == await uid(site, name)
            for node in ("n1", "n2"):
                await answer(site, node, question)

            async def is_replaced() -> bool:
                return await uid(site, name) not in ("", handed_back.metadata.uid)

            await site.until(is_replaced, "it is offered anew")

        tell(story)

    def test_what_an_agent_lost_stays_its_own_until_it_says_otherwise(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            site.start()
            await site.attach("red", network_name="red", range="10.1.0.0/26", node_slice_size="/26")
            await site.join("n1")
            await answer(site, "n1", "", "10.1.0.0/26")
            await site.comes("red-n1-10.1.0.0-26")
            await site.leave("n1")
            await site.join("n2")
            await site.comes("red-n2-10.1.0.0-26")  # after the gone time
            (freed,) = await site.told("SlicesFreed")
            assert "n1" == freed.regarding.name

        tell(story)

    def test_who_is_registered_again_is_asked_what_it_told_before(self, tell: Tell) -> None:
        """The word on the Node before counts until its agent has spoken on this one."""

        async def story(site: SliceSite) -> None:
            name = await site.taken()
            node = await site.client.get(NODES, "n1")
            await answer(site, "n1", "", "10.1.0.64/26")
            other = "red-n1-10.1.0.64-26"
            await site.comes(name, other)
            await site.leave("n1")
            await site.join("n1", boot=node.boot_id)
            await answer(site, "n1", await asked(site, "n1"))
            await site.comes(name)

        tell(story)


class TestSignatures:
    def test_each_is_agreed_to_anew(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            site.start()
            await attach(site)
            await site.join("n1")
            for signature in ("first", "second"):
                await sign(site, "red-n1-10.1.0.0-26", signature)
                await agreed(site, "red-n1-10.1.0.0-26", signature)

        tell(story)

    def test_what_its_own_agent_lost_does_not_stand_in_its_way(self, tell: Tell) -> None:
        """A journal is damaged that has seen another size: its agent goes by what is left of it, and signs anew."""

        async def story(site: SliceSite) -> None:
            name, other = await site.taken(), "red-n1-10.1.0.0-27"
            await site.use(name, "1", "default/web-0")
            await answer(site, "n1", "", "10.1.0.0/27")
            await site.until(lambda: site.lease(other), "what was lost is offered")
            await sign(site, name, "mine")
            await agreed(site, name, "mine")

        tell(story)

    def test_nor_does_what_it_has_when_it_is_to_hand_back_what_it_lost(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name, other = await site.taken(), "red-n1-10.1.0.0-27"
            await sign(site, name, "mine")
            await agreed(site, name, "mine")
            await answer(site, "n1", "", "10.1.0.0/27")
            assert await site.asked_back(other)
            await sign(site, other, "of the past")
            await agreed(site, other, "of the past")

        tell(story)

    def test_who_has_only_signed_gives_way_to_who_uses_it(self, tell: Tell) -> None:
        """An old offer is shown by a restored copy, and its node has signed it; another's Pods have its addresses."""

        async def story(site: SliceSite) -> None:
            controller = site.start()
            await attach(site)
            await site.join("n1")
            old = "red-n1-10.1.0.0-26"
            await site.until(lambda: site.lease(old), "it is offered")
            await site.stop(controller)
            await sign(site, old, "mine")
            await site.join("n2")
            await answer(site, "n2", "", "10.1.0.0/26")
            site.start()
            assert "no NetworkAttachmentDefinition asks for it any more" == await site.asked_back(old)
            lease = await site.lease(old)
            assert lease
            assert GRANTED_ANNOTATION not in lease.metadata.annotations
            await site.hand_back(old)
            await site.comes("red-n1-10.1.0.64-26", "red-n2-10.1.0.0-26")

        tell(story)


class TestClaims:
    def test_a_pool_without_a_lease_disputes_nothing(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            other = await site.join("n2")
            await site.until(lambda: site.lease("red-n2-10.1.0.64-26"), "the other has its own")
            notes = {"podpool.io/node": "n2", "podpool.io/network": "red", "podpool.io/range": "10.1.0.0/24"}
            meta = {"labels": {"podpool.io/node-uid": other.metadata.uid}, "annotations": notes}
            await site.pool_of_all("10.1.0.0/26", name="red-n2-10.1.0.0-26", **meta)
            await site.comes(name, "red-n2-10.1.0.64-26")
            assert [] == await site.events("SliceDisputed")

        tell(story)

    def test_a_pool_with_addresses_that_its_node_uses_under_another_name_is_not_offered(self, tell: Tell) -> None:
        """A leader made it before it knew what a restored copy shows; nobody could ever take it."""

        async def story(site: SliceSite) -> None:
            controller = site.start()
            await attach(site)
            node, old, fits = await site.join("n1"), "red-n1-10.1.0.0-26", "red-n1-10.1.0.0-25"
            await site.take(old)
            await site.use(old, "1", "p")
            await site.stop(controller)
            await site.attach("red", network_name="red", range="10.1.0.0/24", node_slice_size="/25")
            notes = {"podpool.io/node": "n1", "podpool.io/network": "red", "podpool.io/range": "10.1.0.0/24"}
            meta = {"labels": {"podpool.io/node-uid": node.metadata.uid}, "annotations": notes}
            await site.pool_of_all("10.1.0.0/25", name=fits, **meta)
            site.start()
            assert "10.1.0.0/24 is cut into slices of /25 now" == await site.asked_back(old)
            await site.comes(old)
            await site.hand_back(old)
            await site.comes(fits)

        tell(story)

    def test_a_pool_of_a_node_that_is_gone_counts_from_the_first_look_on(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.pool_of_all("10.1.0.0/26", name="red-n9-10.1.0.0-26")
            await site.use("red-n9-10.1.0.0-26", "1", "p")
            await site.bind("p", "n9")
            await attach(site)
            await site.join("n1")
            site.start()
            await site.until(lambda: site.lease("red-n1-10.1.0.64-26"), "another slice is offered")

        tell(story)

    def test_a_pool_tells_the_boot_of_a_lease_that_is_gone(self, tell: Tell) -> None:
        """A leader died after it had deleted the Lease of a Node that then came back, in the same boot."""

        async def story(site: SliceSite) -> None:
            name = await site.taken()
            await site.use(name, "1", "p")
            note = {"metadata": {"annotations": {BOOT_ANNOTATION: "boot-of-n1"}}}
            await site.client.merge_patch(IP_POOLS, name, note, namespace=site.namespace)
            await site.leave("n1")
            await site.remove("leases", name)
            node = await site.join("n1")
            await answer(site, "n1", await asked(site, "n1"))

            async def owned() -> bool:
                lease = await site.lease(name)
                return lease is not None and lease.metadata.labels[NODE_UID_LABEL] == node.metadata.uid

            await site.until(owned, "it is the new Node's")
            assert [name] == await site.pools()

        tell(story)

"""A range that all nodes shared is cut into slices, and shared again: no address is in both."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from podpool.api.whereabouts import IP_POOLS, SEALED_ANNOTATION
from podpool.runtime.transport import Request
from tests.controller.slices.harness import SliceSite

Tell = Callable[[Callable[[SliceSite], Coroutine[Any, Any, None]]], None]

POOL = "red-10.1.0.0-24"
SHARED: dict[str, Any] = {"network_name": "red", "range": "10.1.0.0/24"}
SLICED: dict[str, Any] = {**SHARED, "node_slice_size": "/26"}


async def shared_by_a_pod(site: SliceSite, key: str = "1") -> None:
    """A Pod that runs has an address of a range that all share."""
    await site.attach("red", **SHARED)
    await site.join("n1")
    await site.bind("web", "n1")
    await site.pool_of_all("10.1.0.0/24", name=POOL)
    await site.use(POOL, key, "web")


async def release(site: SliceSite, key: str = "1", name: str = POOL) -> None:
    """A DEL takes the entry out."""
    patch = {"spec": {"allocations": {key: None}}}
    await site.client.merge_patch(IP_POOLS, name, patch, namespace=site.namespace)


class TestCutting:
    def test_a_slice_with_an_address_of_a_running_pod_is_nobodys_until_that_is_free(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await shared_by_a_pod(site)
            site.start()
            await site.attach("red", **SLICED)
            await site.comes("red-n1-10.1.0.64-26")
            assert [POOL] == await site.shut()
            (told,) = await site.told("SlicesKeptBack")
            assert "red" == told.regarding.name
            assert "1 addresses of 10.1.0.0/24 are in use from before it was cut: 1 slices with them" in (
                told.note or ""
            )
            await site.join("n2")
            await site.join("n3")
            await site.join("n4")
            names = ("red-n1-10.1.0.64-26", "red-n2-10.1.0.128-26", "red-n3-10.1.0.192-26")
            await site.comes(*names)
            (short,) = await site.told("SlicesShort")
            assert "until those Pods are gone" in (short.note or "")
            await release(site)
            await site.comes("red-n4-10.1.0.0-26", *names)

        tell(story)

    def test_an_entry_that_came_before_the_mark_counts(self, tell: Tell) -> None:
        """An agent that had looked before was faster: what it wrote is in the answer."""

        async def story(site: SliceSite) -> None:
            await shared_by_a_pod(site)
            written = asyncio.Event()

            async def slip_in(request: Request) -> None:
                if request.method == "PATCH" and request.path.endswith(POOL) and not written.is_set():
                    written.set()
                    await site.use(POOL, "65", "web")

            site.road.before = slip_in
            site.start()
            await site.attach("red", **SLICED)
            await site.comes("red-n1-10.1.0.128-26")
            assert written.is_set()

        tell(story)

    def test_the_pool_of_a_range_that_nobody_shared_is_made_shut_and_goes_with_the_last_slice(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            assert [POOL] == await site.shut()
            await site.detach("red")
            await site.asked_back(name)
            assert [POOL] == await site.shut()
            await site.hand_back(name)
            await site.comes()
            await site.until(lambda: nothing_shut(site), "the pool is gone")

        tell(story)

    def test_pools_whose_ranges_overlap_are_shut_too_and_those_of_other_networks_not(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.attach("blue", network_name="blue", range="10.1.0.0/24")
            for name, range_ in (("red-10.1.0.0-25", "10.1.0.0/25"), ("blue-10.1.0.0-24", "10.1.0.0/24")):
                await site.pool_of_all(range_, name=name)
                await site.use(name, "1", "web")
            await site.bind("web", "n1")
            await site.attach("red", **SLICED)
            await site.join("n1")
            site.start()
            await site.until(lambda: site.lease("red-n1-10.1.0.64-26"), "the second slice is offered")
            assert ["red-10.1.0.0-24", "red-10.1.0.0-25"] == await site.shut()

        tell(story)

    def test_one_that_was_made_since_is_shut_as_soon_as_it_is_seen_and_who_has_both_is_told(self, tell: Tell) -> None:
        """A plugin of Whereabouts knows no marks."""

        async def story(site: SliceSite) -> None:
            name = await site.taken()
            await site.bind("web", "n1")
            await site.pool_of_all("10.1.0.0/28", name="red-10.1.0.0-28")
            await site.use("red-10.1.0.0-28", "1", "web")
            (told,) = await site.told("SliceDisputed")
            assert name == told.regarding.name
            assert "it shares addresses with 10.1.0.1 in a pool that all nodes share" in (told.note or "")
            assert ["red-10.1.0.0-24", "red-10.1.0.0-28"] == await site.shut()

        tell(story)

    def test_the_next_leader_marks_with_a_word_of_its_own(self, tell: Tell) -> None:
        """Or what the last one meant to take off could be taken off after all."""

        async def story(site: SliceSite) -> None:
            await site.attach("red", **SLICED)
            await site.join("n1")
            controller = site.start()
            await site.comes("red-n1-10.1.0.0-26")
            first = await word(site)
            await site.stop(controller)
            site.start()

            async def another() -> bool:
                return await word(site) not in ("", first)

            await site.until(another, "it is marked anew")

        tell(story)


class TestRefused:
    def test_who_shares_what_another_has_cut_is_told_that_it_gets_no_new_addresses(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.taken()
            await site.attach("red-too", **SHARED)
            told = await site.told("SlicesRefused", 2)
            name = f"{site.namespace}/red-too"
            assert {True} == {
                (each.note or "").startswith(f"{name} gets no new addresses: {name} and") for each in told
            }

        tell(story)


class TestSharingAgain:
    def test_it_is_shut_until_the_last_slice_is_handed_back(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            name = await site.taken()
            await site.use(name, "1", "web")
            await site.bind("web", "n1")
            await site.attach("red", **SHARED)
            assert "no NetworkAttachmentDefinition asks for it any more" == await site.asked_back(name)
            await asyncio.sleep(1.0)
            assert [POOL] == await site.shut()
            await site.hand_back(name)
            await site.until(lambda: nothing_shut(site), "the range may be shared again")

        tell(story)

    def test_a_pool_with_entries_stays_and_loses_its_mark(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await shared_by_a_pod(site)
            site.start()
            await site.attach("red", **SLICED)
            await site.comes("red-n1-10.1.0.64-26")
            await site.attach("red", **SHARED)
            await site.until(lambda: nothing_shut(site), "the range may be shared again")
            pool = await site.pool(POOL)
            assert pool
            assert ({}, ["1"]) == (pool.metadata.annotations, [*pool.spec.allocations])

        tell(story)


async def word(site: SliceSite) -> str:
    pool = await site.pool(POOL)
    return pool.metadata.annotations[SEALED_ANNOTATION] if pool else ""


async def nothing_shut(site: SliceSite) -> bool:
    return not await site.shut()

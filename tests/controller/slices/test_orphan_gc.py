"""Entries and reservations that are left behind by Pods, and those that only seem to be."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS
from podpool.controller.slices import orphan_gc as sweep
from podpool.runtime.transport import Request
from podpool.whereabouts import orphan_gc
from podpool.whereabouts.ippool import AllocationChange, allocation_patch
from tests.controller.slices.harness import SliceSite

Tell = Callable[[Callable[[SliceSite], Coroutine[Any, Any, None]]], None]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute is a second and a half: on a real API server it is waited for."""
    for module in (sweep, orphan_gc):
        monkeypatch.setattr(module, "APART", 1.5)


async def entries(site: SliceSite, name: str) -> list[str]:
    pool = await site.pool(name)
    return sorted(pool.spec.allocations) if pool else []


async def given_again(site: SliceSite) -> None:
    """A Pod is gone in both looks, but its address has been given again before the patch arrives."""
    await site.pool_of_all("10.1.0.0/24", name="10.1.0.0-24")
    await site.use("10.1.0.0-24", "1", "gone")
    patched = asyncio.Event()

    async def give_again(request: Request) -> None:
        if request.method == "PATCH" and "ippools" in request.path and not patched.is_set():
            patched.set()
            await site.use("10.1.0.0-24", "1", "lives")

    site.road.before = give_again
    await site.bind("lives", "n1")
    site.start()
    await asyncio.wait_for(patched.wait(), 60)
    await asyncio.sleep(1.0)
    assert ["1"] == await entries(site, "10.1.0.0-24")


def untested(changes: Iterable[AllocationChange]) -> list[dict[str, Any]]:
    """Write a patch that fits whatever entry is there."""
    return [each for each in allocation_patch(changes) if each["op"] != "test"]


class TestSharedPools:
    def test_entries_and_reservations_of_pods_that_are_gone_are_released(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.pool_of_all("10.1.0.0/24", name="10.1.0.0-24")
            for key, pod in (("1", "lives"), ("2", "gone"), ("3", "gone-too")):
                await site.use("10.1.0.0-24", key, pod)
            await site.reserve("10.1.0.1", "lives")
            await site.reserve("10.1.0.2", "gone")
            await site.bind("lives", "n1")
            controller = site.start()

            async def swept() -> bool:
                return ["1"] == await entries(site, "10.1.0.0-24") and await site.reservations() == ["10.1.0.1"]

            await site.until(swept, "what is left behind is released")
            (told,) = await site.told("Released")
            assert "2 addresses of Pods that are gone are free again" == told.note
            page = controller.render_metrics().decode()
            assert 'podpool_controller_garbage_mended_total{kind="entry"} 2.0' in page
            assert 'podpool_controller_garbage_mended_total{kind="reservation"} 1.0' in page

        tell(story)

    def test_an_entry_that_is_anothers_by_now_stays(self, tell: Tell) -> None:
        tell(given_again)

    def test_a_release_that_tests_nothing_would_take_it(self, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
        """The test above can fail."""
        monkeypatch.setattr(sweep, "allocation_patch", untested)
        with pytest.raises(AssertionError):
            tell(given_again)

    def test_the_pool_of_a_nodes_slice_is_judged_by_its_agent_alone(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.taken()
            await site.use("red-n1-10.1.0.0-26", "1", "nobody-sees-it")
            await site.pool_of_all("10.2.0.0/24", name="10.2.0.0-24")
            await site.use("10.2.0.0-24", "1", "gone")

            async def swept() -> bool:
                return [] == await entries(site, "10.2.0.0-24")

            await site.until(swept, "the shared one is swept")
            assert ["1"] == await entries(site, "red-n1-10.1.0.0-26")

        tell(story)

    def test_where_nothing_is_shared_no_pods_are_listed(self, tell: Tell) -> None:
        async def story(site: SliceSite) -> None:
            await site.taken()
            site.road.sent.clear()
            await asyncio.sleep(4.0)
            assert [] == [each.path for each in site.road.sent if each.path.endswith("/pods") and not each.body]

        tell(story)

    def test_what_nobody_can_judge_is_no_reason_to_look_again_and_again(self, tell: Tell) -> None:
        """Entries and reservations that name no Pod, entries that are none, and pools of no range."""

        async def story(site: SliceSite) -> None:
            for name, range_ in (("10.1.0.0-24", "10.1.0.0/24"), ("10.1.0.0-64", "10.1.0.0/64")):
                await site.pool_of_all(range_, name=name)
            await site.use("10.1.0.0-64", "1", "gone")
            await site.use("10.1.0.0-24", "300", "gone")
            nobodys: dict[str, Any] = {
                "spec": {"allocations": {"1": {"id": "x", "podref": "nobody", "ifname": "net1"}}}
            }
            await site.client.merge_patch(IP_POOLS, "10.1.0.0-24", nobodys, namespace=site.namespace)
            meta = {"name": "10.1.0.1", "namespace": site.namespace}
            await site.client.create(IP_RESERVATIONS, {"metadata": meta, "spec": {"podref": "nobody"}})
            site.start()
            await asyncio.sleep(3.0)
            site.road.sent.clear()
            await asyncio.sleep(6.0)
            quorum = [each for each in site.road.sent if "resourceVersion" not in each.query and not each.body]
            assert [] == [each.path for each in quorum if each.path.endswith(("/ippools", "/pods"))]
            assert ["1", "300"] == await entries(site, "10.1.0.0-24")

        tell(story)

"""Orphan GC of allocations and reservations in shared pools."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from podpool.api.builtin import NODES
from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS, NODE_UID_LABEL
from podpool.controller.slices import shared_pool_orphan_gc
from podpool.core import two_observations
from podpool.runtime.transport import Request
from podpool.whereabouts.ippool import AllocationChange, allocation_patch
from tests.controller.slices.slice_env import SliceEnv

RunScenario = Callable[[Callable[[SliceEnv], Coroutine[Any, Any, None]]], None]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute is a second and a half, because on a real API server the test waits for it."""
    monkeypatch.setattr(shared_pool_orphan_gc, "OBSERVATION_INTERVAL", 1.5)
    monkeypatch.setattr(two_observations.TwoObservations.__init__, "__defaults__", (1.5,))


async def entries(env: SliceEnv, name: str) -> list[str]:
    pool = await env.pool(name)
    return sorted(pool.spec.allocations) if pool else []


async def reallocated(env: SliceEnv) -> None:
    """A Pod is absent in both snapshots, but its address is allocated again before the patch arrives."""
    await env.create_pool("10.1.0.0/24", name="10.1.0.0-24")
    await env.allocate("10.1.0.0-24", "1", "gone")
    patched = asyncio.Event()

    async def reallocate(request: Request) -> None:
        if request.method == "PATCH" and "ippools" in request.path and not patched.is_set():
            patched.set()
            await env.allocate("10.1.0.0-24", "1", "lives")

    env.transport.before = reallocate
    await env.create_pod("lives", "n1")
    env.start()
    await asyncio.wait_for(patched.wait(), 60)
    await asyncio.sleep(1.0)
    assert ["1"] == await entries(env, "10.1.0.0-24")


def untested(changes: Iterable[AllocationChange]) -> list[dict[str, Any]]:
    """Return a patch without tests of the allocation."""
    return [each for each in allocation_patch(changes) if each["op"] != "test"]


class TestSharedPools:
    def test_allocations_and_reservations_of_deleted_pods_are_released(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.create_pool("10.1.0.0/24", name="10.1.0.0-24")
            for key, pod in (("1", "lives"), ("2", "gone"), ("3", "gone-too")):
                await env.allocate("10.1.0.0-24", key, pod)
            await env.create_reservation("10.1.0.1", "lives")
            await env.create_reservation("10.1.0.2", "gone")
            await env.create_pod("lives", "n1")
            controller = env.start()

            async def released() -> bool:
                return ["1"] == await entries(env, "10.1.0.0-24") and await env.reservations() == ["10.1.0.1"]

            await env.until(released, "the orphans are released")
            (event,) = await env.wait_events("OrphansReleased")
            assert "released 2 addresses of deleted or finished Pods" == event.note
            page = controller.render_metrics().decode()
            assert 'podpool_controller_orphans_released_total{kind="allocation"} 2.0' in page
            assert 'podpool_controller_orphans_released_total{kind="reservation"} 1.0' in page

        run_scenario(scenario)

    def test_an_allocation_that_has_changed_is_kept(self, run_scenario: RunScenario) -> None:
        run_scenario(reallocated)

    def test_a_release_without_a_test_would_remove_it(
        self, run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The test above can fail."""
        monkeypatch.setattr(shared_pool_orphan_gc, "allocation_patch", untested)
        with pytest.raises(AssertionError):
            run_scenario(reallocated)

    def test_allocations_in_slices_are_left_to_the_agent(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            name, uid = await env.take_first_slice(), (await env.client.get(NODES, "n1")).metadata.uid
            meta = {"labels": {NODE_UID_LABEL: uid}, "annotations": {"podpool.io/node": "n1"}}
            await env.create_pool("10.1.0.0/26", name=name, **meta)
            await env.allocate(name, "1", "unseen")
            await env.create_pool("10.2.0.0/24", name="10.2.0.0-24")
            await env.allocate("10.2.0.0-24", "1", "gone")

            async def released() -> bool:
                return [] == await entries(env, "10.2.0.0-24")

            await env.until(released, "the orphan in the shared pool is released")
            assert ["1"] == await entries(env, "red-n1-10.1.0.0-26")

        run_scenario(scenario)

    def test_without_shared_pools_no_pods_are_listed(self, run_scenario: RunScenario) -> None:
        async def scenario(env: SliceEnv) -> None:
            await env.take_first_slice()
            env.transport.sent.clear()
            await asyncio.sleep(4.0)
            assert [] == [each.path for each in env.transport.sent if each.path.endswith("/pods") and not each.body]

        run_scenario(scenario)

    def test_invalid_allocations_cause_no_quorum_reads(self, run_scenario: RunScenario) -> None:
        """Allocations and reservations without a Pod, invalid allocations, and pools with an invalid range."""

        async def scenario(env: SliceEnv) -> None:
            for name, range_ in (("10.1.0.0-24", "10.1.0.0/24"), ("10.1.0.0-64", "10.1.0.0/64")):
                await env.create_pool(range_, name=name)
            await env.allocate("10.1.0.0-64", "1", "gone")
            await env.allocate("10.1.0.0-24", "300", "gone")
            without_pod: dict[str, Any] = {
                "spec": {"allocations": {"1": {"id": "x", "podref": "none", "ifname": "net1"}}}
            }
            await env.client.merge_patch(IP_POOLS, "10.1.0.0-24", without_pod, namespace=env.namespace)
            meta = {"name": "10.1.0.1", "namespace": env.namespace}
            await env.client.create(IP_RESERVATIONS, {"metadata": meta, "spec": {"podref": "none"}})
            env.start()
            await asyncio.sleep(3.0)
            env.transport.sent.clear()
            await asyncio.sleep(6.0)
            quorum = [each for each in env.transport.sent if "resourceVersion" not in each.query and not each.body]
            assert [] == [each.path for each in quorum if each.path.endswith(("/ippools", "/pods"))]
            assert ["1", "300"] == await entries(env, "10.1.0.0-24")

        run_scenario(scenario)

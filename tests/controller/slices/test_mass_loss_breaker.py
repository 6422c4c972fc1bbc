"""The mass-loss breaker of slices: what closes it, what does not, and that one confirmation is for one loss."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import pytest

from podpool.api.builtin import CONFIG_MAPS
from podpool.api.node_slices import CONFIRM_LOSS_ANNOTATION, INVENTORY_CONFIG_MAP
from podpool.core.mass_loss import BreakerSettings
from tests.controller.slices.slice_env import SliceEnv, SliceEnvs
from tests.kube.api_servers import ApiServerUnderTest

RunScenario = Callable[[Callable[[SliceEnv], Coroutine[Any, Any, None]]], None]

NAMES = [f"n{number:02}" for number in range(12)]
LONG = 4.0
"""Seconds: much longer than the node GC delay of the tests."""
DAY = 86_400.0


@pytest.fixture
def run_lite() -> RunScenario:
    """Run a scenario in virtual time."""
    return SliceEnvs(ApiServerUnderTest(None), real=False).run


async def fill(env: SliceEnv, names: list[str]) -> None:
    """Create Nodes that hold a slice each."""
    await env.create_nad("red", network_name="red", range="10.1.0.0/24", node_slice_size="/28")
    for name in names:
        await env.create_node(name)
    for number, name in enumerate(names):
        await env.take(f"red-{name}-10.1.0.{16 * number}-28")


async def delete(env: SliceEnv, names: list[str]) -> None:
    for name in names:
        await env.delete_node(name)


async def state(env: SliceEnv) -> Mapping[str, str]:
    """Return what the ConfigMap shows."""
    return (await env.client.get(CONFIG_MAPS, INVENTORY_CONFIG_MAP, namespace=env.namespace)).data


async def loss(env: SliceEnv, *, before: str = "") -> str:
    """Wait until a mass loss is recorded, another than the one before, and return its ID."""

    async def recorded() -> str:
        found = (await state(env)).get("loss", "")
        return "" if found == before else found

    return await env.until(recorded, "a mass loss is recorded")


async def confirm(env: SliceEnv) -> str:
    """Confirm the mass loss as an operator does, and return its ID."""
    id_ = await loss(env)
    annotations = {"metadata": {"annotations": {CONFIRM_LOSS_ANNOTATION: id_}}}
    await env.client.merge_patch(CONFIG_MAPS, INVENTORY_CONFIG_MAP, annotations, namespace=env.namespace)
    return id_


async def held(env: SliceEnv, count: int) -> None:
    """Wait until so many slices are assigned."""

    async def are_held() -> bool:
        return count == len(await env.assignments())

    await env.until(are_held, f"{count} slices are assigned")


async def is_over(env: SliceEnv) -> bool:
    return not (await state(env)).get("loss")


async def gone(env: SliceEnv, node: str) -> bool:
    return await env.node_slices(node) is None


def test_nothing_is_released_until_an_operator_confirms(run_scenario: RunScenario) -> None:
    async def scenario(env: SliceEnv) -> None:
        controller = env.start()
        await fill(env, NAMES)
        await delete(env, NAMES[:6])
        (event,) = await env.wait_events("NodeGCPaused")
        assert "6 of 12 nodes with slices are missing at once" in (event.note or "")
        await asyncio.sleep(LONG)
        assert 12 == len(await env.assignments())
        assert "podpool_controller_slices_node_gc_paused 1.0" in controller.render_metrics().decode()
        await env.stop(controller)
        env.start()
        await asyncio.sleep(LONG)
        assert 12 == len(await env.assignments())
        assert "6" == (await state(env))["missing"]
        await confirm(env)
        await held(env, 6)

    run_scenario(scenario)


def test_four_missing_nodes_are_no_mass_loss(run_scenario: RunScenario) -> None:
    async def scenario(env: SliceEnv) -> None:
        env.start()
        await fill(env, NAMES[:4])
        await delete(env, NAMES[:4])
        await env.wait_slices()
        for name in NAMES[:4]:
            await env.until(partial(gone, env, name), "the object is deleted")

    run_scenario(scenario)


def test_it_closes_when_the_nodes_are_back(run_scenario: RunScenario) -> None:
    """Else the time that it was open would count for the next loss."""

    async def scenario(env: SliceEnv) -> None:
        controller = env.start()
        await fill(env, NAMES)
        await delete(env, NAMES[:6])
        await loss(env)
        for name in NAMES[:6]:
            await env.create_node(name)
        await env.until(partial(is_over, env), "the mass loss is over")
        assert "podpool_controller_slices_node_gc_paused 0.0" in controller.render_metrics().decode()

    run_scenario(scenario)


def test_a_confirmation_does_not_cover_the_next_loss(run_scenario: RunScenario) -> None:
    async def scenario(env: SliceEnv) -> None:
        env.start()
        await fill(env, NAMES)
        await delete(env, NAMES[:6])
        confirmed = await confirm(env)
        await held(env, 6)
        await asyncio.sleep(LONG)
        await delete(env, NAMES[6:])
        await loss(env, before=confirmed)
        await asyncio.sleep(LONG)
        assert 6 == len(await env.assignments())

    run_scenario(scenario)


def test_a_confirmation_ends_while_nodes_cannot_be_released(
    run_lite: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods are bound to the missing nodes, so the mass loss goes on; what is lost later is another one."""
    set_breaker(monkeypatch, confirmed=LONG)

    async def scenario(env: SliceEnv) -> None:
        env.start()
        await fill(env, NAMES)
        for name in NAMES[:6]:
            await env.create_pod(f"pod-on-{name}", name)
        await delete(env, NAMES[:6])
        confirmed = await confirm(env)
        await loss(env, before=confirmed)
        await delete(env, NAMES[6:])
        await asyncio.sleep(LONG)
        assert 12 == len(await env.assignments())

    run_lite(scenario)


@pytest.mark.parametrize("lost", [6, 12])
def test_after_a_day_it_closes_if_there_is_any_node(
    run_lite: RunScenario, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    set_breaker(monkeypatch, hold=30.0)

    async def scenario(env: SliceEnv) -> None:
        first = env.start()
        await fill(env, NAMES)
        await delete(env, NAMES[:lost])
        await loss(env)
        await asyncio.sleep(25.0)
        assert 12 == len(await env.assignments())
        await env.stop(first)
        env.start()
        await asyncio.sleep(25.0)
        assert 12 == len(await env.assignments()), "the time that was not saved counts once more"
        await asyncio.sleep(25.0)
        assert (12 if lost == 12 else 6) == len(await env.assignments())

    run_lite(scenario)


def test_the_next_leader_counts_on(run_lite: RunScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    set_breaker(monkeypatch, hold=30.0)
    monkeypatch.setattr("podpool.controller.slices.mass_loss_breaker.SAVE_INTERVAL", 5.0)

    async def scenario(env: SliceEnv) -> None:
        first = env.start()
        await fill(env, NAMES)
        await delete(env, NAMES[:6])
        await loss(env)
        await asyncio.sleep(25.0)
        await env.stop(first)
        env.start()
        await asyncio.sleep(25.0)
        assert 6 == len(await env.assignments())

    run_lite(scenario)


def test_a_leader_whose_clock_is_ahead_does_not_assume_the_loss(run_lite: RunScenario) -> None:
    async def scenario(env: SliceEnv) -> None:
        first = env.start()
        await fill(env, NAMES)
        await delete(env, NAMES[:6])
        await loss(env)
        await env.stop(first)
        env.start(wall_error=2 * DAY)
        await asyncio.sleep(3 * LONG)
        assert 12 == len(await env.assignments())

    run_lite(scenario)


def set_breaker(monkeypatch: pytest.MonkeyPatch, *, hold: float = DAY, confirmed: float = 3_600.0) -> None:
    """Shorten the times of the breaker."""
    settings = partial(BreakerSettings, hold_seconds=hold, confirmed_seconds=confirmed)
    monkeypatch.setattr("podpool.controller.slices.mass_loss_breaker.BreakerSettings", settings)

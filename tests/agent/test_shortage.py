"""When the subnet is short the cluster is told, and when it is over it is told that, too."""

import asyncio
import random
from typing import Any

from podpool.api.builtin import EVENTS, NODES, SHORT_CONDITION, SHORT_TAINT
from podpool.api.rbac import AGENT
from podpool.core.settings import Settings
from podpool.kube.errors import ApiForbidden
from podpool.kube.events import EventRecorder
from podpool.runtime.transport import Request, Response
from tests.agent.worlds import NODE, SETTLED, World, in_world

HOLD = Settings().shrink_hold
PODS = [f"pod-{n}" for n in range(20)]


async def condition(world: World) -> dict[str, Any] | None:
    node = await world.kube.read(NODES, NODE)
    found = [each for each in node["status"].get("conditions", []) if each["type"] == SHORT_CONDITION]
    assert len(found) <= 1
    return found[0] if found else None


async def taints(world: World) -> list[str]:
    return [each["key"] for each in (await world.kube.read(NODES, NODE)).get("spec", {}).get("taints", [])]


async def make_short(world: World) -> None:
    """Twenty Pods on fifteen addresses."""
    world.capacity = 15
    await world.bind(*PODS)
    await asyncio.sleep(SETTLED)


def with_everything(world: World) -> None:
    recorder = EventRecorder(world.kube, component=AGENT, instance=NODE, clock=world.clock, rng=random.Random(3))  # noqa: S311  seeded
    world.options = {"taint": True, "recorder": recorder}


@in_world
async def test_a_node_that_was_never_short_is_not_written(world: World) -> None:
    await world.bind("pod-1")
    await world.start()
    await asyncio.sleep(1000.0)
    assert 0 == world.road.others


@in_world
async def test_a_condition_an_event_and_a_taint_come_and_are_taken_back(world: World) -> None:
    with_everything(world)
    agent = await world.start()
    await make_short(world)
    told = await condition(world)
    assert told
    assert ("True", "SubnetShort") == (told["status"], told["reason"])
    assert "NCUpdateSubnetFullError" in told["message"]
    assert [SHORT_TAINT] == await taints(world)
    assert 5 == agent.picture().waiting_pods
    world.capacity = 200
    await asyncio.sleep(HOLD + SETTLED)
    told = await condition(world)
    assert told
    assert "False" == told["status"]
    assert [] == await taints(world)
    assert 0 == agent.picture().waiting_pods
    events = (await world.kube.list(EVENTS)).items
    assert [SHORT_CONDITION, "PodAddressesEnough"] == [each.reason for each in events]
    assert ["Warning", "Normal"] == [each.type for each in events]
    assert {AGENT} == {each.reporting_controller for each in events}


@in_world
async def test_others_conditions_and_taints_stay(world: World) -> None:
    mine = {"key": "mine", "effect": "NoExecute"}
    await world.kube.merge(NODES, NODE, {"spec": {"taints": [mine]}})
    ready = {"type": "Ready", "status": "True"}
    await world.kube.merge(NODES, NODE, {"status": {"conditions": [ready]}}, sub="status")
    with_everything(world)
    await world.start()
    await make_short(world)
    assert ["mine", SHORT_TAINT] == await taints(world)
    world.capacity = 200
    await asyncio.sleep(HOLD + SETTLED)
    node = await world.kube.read(NODES, NODE)
    assert [mine] == node["spec"]["taints"]
    assert ready in node["status"]["conditions"]


@in_world
async def test_without_the_option_there_is_no_taint_and_an_older_one_goes(world: World) -> None:
    await world.kube.merge(NODES, NODE, {"spec": {"taints": [{"key": SHORT_TAINT, "effect": "NoSchedule"}]}})
    await world.start()
    assert [] == await taints(world)
    await make_short(world)
    assert [] == await taints(world)
    assert await condition(world)


@in_world
async def test_what_an_earlier_agent_left_behind_is_taken_back(world: World) -> None:
    await world.start()
    await make_short(world)
    await world.kill()
    world.capacity = 200
    await world.reconcile()
    await world.start()
    told = await condition(world)
    assert told
    assert "False" == told["status"]


@in_world
async def test_a_shortage_that_comes_and_goes_is_written_once(world: World) -> None:
    await world.start()
    await make_short(world)
    written = world.road.others
    for _ in range(5):
        await world.remove(*PODS[10:])
        await asyncio.sleep(SETTLED)
        await world.bind(*PODS[10:])
        await asyncio.sleep(SETTLED)
    assert written == world.road.others


@in_world
async def test_a_node_that_was_registered_again_is_told_again(world: World) -> None:
    await world.start()
    await make_short(world)
    await world.kube.delete(NODES, NODE)
    await world.register_node()
    assert None is await condition(world)
    await world.bind("one-more")
    await asyncio.sleep(SETTLED)
    assert await condition(world)


@in_world
async def test_somebody_elses_write_in_between_is_no_loss(world: World) -> None:
    await world.start()
    send = world.road.send
    edits = iter([1])

    async def edited(request: Request) -> Response:
        if request.method == "PATCH" and request.path.endswith("/status") and next(edits, None):
            await world.kube.merge(NODES, NODE, {"metadata": {"labels": {"moved": "on"}}})
        return await send(request)

    world.road.send = edited  # type: ignore[method-assign]  # the road of this test
    await make_short(world)
    await asyncio.sleep(SETTLED)
    assert await condition(world)


@in_world
async def test_where_it_may_not_be_told_it_is_said_once(world: World) -> None:
    await world.start()
    send = world.road.send

    async def forbidden(request: Request) -> Response:
        if request.method == "PATCH" and "/nodes/" in request.path:
            raise ApiForbidden("patch Node", status=403)
        return await send(request)

    world.road.send = forbidden  # type: ignore[method-assign]  # the road of this test
    await make_short(world)
    await asyncio.sleep(100.0)
    assert 1 == sum("cannot be told" in sentence for sentence in world.told)

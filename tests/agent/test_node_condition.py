"""Node condition, Event and taint while Pods wait for addresses that the subnet does not have."""

import asyncio
import random
import re
from typing import Any

from podpool.api.builtin import EVENTS, NODES, SHORT_CONDITION, SHORT_TAINT
from podpool.api.rbac import AGENT
from podpool.core.settings import Settings
from podpool.kube.errors import ApiForbidden
from podpool.kube.events import EventRecorder
from podpool.runtime.transport import Request, Response
from tests.agent.node_env import NODE, SETTLE_TIME, NodeEnv, in_node_env

HOLD = Settings().shrink_hold
PODS = [f"pod-{n}" for n in range(20)]


async def condition(env: NodeEnv) -> dict[str, Any] | None:
    node = await env.kube.get_raw(NODES, NODE)
    found = [each for each in node["status"].get("conditions", []) if each["type"] == SHORT_CONDITION]
    assert len(found) <= 1
    return found[0] if found else None


async def taints(env: NodeEnv) -> list[str]:
    return [each["key"] for each in (await env.kube.get_raw(NODES, NODE)).get("spec", {}).get("taints", [])]


async def make_short(env: NodeEnv) -> None:
    """Bind twenty Pods on fifteen addresses."""
    env.capacity = 15
    await env.bind(*PODS)
    await asyncio.sleep(SETTLE_TIME)


def with_taint_and_events(env: NodeEnv) -> None:
    recorder = EventRecorder(env.kube, component=AGENT, instance=NODE, clock=env.clock, rng=random.Random(3))  # noqa: S311  seeded
    env.options, env.deps = {"taint": True}, {"recorder": recorder}


@in_node_env
async def test_a_node_that_was_never_short_is_not_written(env: NodeEnv) -> None:
    await env.bind("pod-1")
    await env.start()
    await asyncio.sleep(1000.0)
    assert 0 == env.transport.others


@in_node_env
async def test_condition_event_and_taint_are_written_and_removed(env: NodeEnv) -> None:
    with_taint_and_events(env)
    agent = await env.start()
    await make_short(env)
    shown = await condition(env)
    assert shown
    assert ("True", "InsufficientAddresses") == (shown["status"], shown["reason"])
    assert "subnet pods has none free" in shown["message"]
    assert [SHORT_TAINT] == await taints(env)
    assert 5 == agent.metrics_snapshot().waiting_pods
    env.capacity = 200
    await asyncio.sleep(HOLD + SETTLE_TIME)
    shown = await condition(env)
    assert shown
    assert "False" == shown["status"]
    assert [] == await taints(env)
    assert 0 == agent.metrics_snapshot().waiting_pods
    events = (await env.kube.list(EVENTS)).items
    assert [SHORT_CONDITION, "PodAddressesSufficient"] == [each.reason for each in events]
    assert ["Warning", "Normal"] == [each.type for each in events]
    assert {AGENT} == {each.reporting_controller for each in events}


@in_node_env
async def test_the_condition_has_no_numbers_and_the_event_has_them(env: NodeEnv) -> None:
    """The condition is not rewritten when a Pod comes or goes: numbers in it would be wrong then."""
    with_taint_and_events(env)
    await env.start()
    await make_short(env)
    first, written = await condition(env), env.transport.others
    await env.bind("pod-20", "pod-21")
    await asyncio.sleep(SETTLE_TIME)
    assert first == await condition(env)
    assert written == env.transport.others
    assert first
    assert not re.search(r"[0-9]", first["message"])
    (event,) = (await env.kube.list(EVENTS)).items
    assert "it has 15 (" in event.note


@in_node_env
async def test_conditions_and_taints_of_others_stay(env: NodeEnv) -> None:
    mine = {"key": "mine", "effect": "NoExecute"}
    await env.kube.merge_patch(NODES, NODE, {"spec": {"taints": [mine]}})
    ready = {"type": "Ready", "status": "True"}
    await env.kube.merge_patch(NODES, NODE, {"status": {"conditions": [ready]}}, subresource="status")
    with_taint_and_events(env)
    await env.start()
    await make_short(env)
    assert ["mine", SHORT_TAINT] == await taints(env)
    env.capacity = 200
    await asyncio.sleep(HOLD + SETTLE_TIME)
    node = await env.kube.get_raw(NODES, NODE)
    assert [mine] == node["spec"]["taints"]
    assert ready in node["status"]["conditions"]


@in_node_env
async def test_without_the_option_there_is_no_taint_and_an_earlier_one_is_removed(env: NodeEnv) -> None:
    await env.kube.merge_patch(NODES, NODE, {"spec": {"taints": [{"key": SHORT_TAINT, "effect": "NoSchedule"}]}})
    await env.start()
    assert [] == await taints(env)
    await make_short(env)
    assert [] == await taints(env)
    assert await condition(env)


@in_node_env
async def test_the_condition_of_an_earlier_agent_is_removed(env: NodeEnv) -> None:
    await env.start()
    await make_short(env)
    await env.kill()
    env.capacity = 200
    await env.reconcile()
    await env.start()
    shown = await condition(env)
    assert shown
    assert "False" == shown["status"]


@in_node_env
async def test_a_shortage_that_comes_and_goes_is_written_once(env: NodeEnv) -> None:
    await env.start()
    await make_short(env)
    written = env.transport.others
    for _ in range(5):
        await env.remove(*PODS[10:])
        await asyncio.sleep(SETTLE_TIME)
        await env.bind(*PODS[10:])
        await asyncio.sleep(SETTLE_TIME)
    assert written == env.transport.others


@in_node_env
async def test_a_node_registered_again_gets_the_condition_again(env: NodeEnv) -> None:
    await env.start()
    await make_short(env)
    await env.kube.delete(NODES, NODE)
    await env.register_node()
    assert None is await condition(env)
    await env.bind("one-more")
    await asyncio.sleep(SETTLE_TIME)
    assert await condition(env)


@in_node_env
async def test_a_conflicting_write_is_retried(env: NodeEnv) -> None:
    await env.start()
    send = env.transport.send
    edits = iter([1])

    async def edited(request: Request) -> Response:
        if request.method == "PATCH" and request.path.endswith("/status") and next(edits, None):
            await env.kube.merge_patch(NODES, NODE, {"metadata": {"labels": {"moved": "on"}}})
        return await send(request)

    env.transport.send = edited  # type: ignore[method-assign]  # the transport of this test
    await make_short(env)
    await asyncio.sleep(SETTLE_TIME)
    assert await condition(env)


@in_node_env
async def test_missing_permission_is_logged_once(env: NodeEnv) -> None:
    await env.start()
    send = env.transport.send

    async def forbidden(request: Request) -> Response:
        if request.method == "PATCH" and "/nodes/" in request.path:
            raise ApiForbidden("patch Node", status=403)
        return await send(request)

    env.transport.send = forbidden  # type: ignore[method-assign]  # the transport of this test
    await make_short(env)
    await asyncio.sleep(100.0)
    assert 1 == sum("not allowed" in line for line in env.warnings)

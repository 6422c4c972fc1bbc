"""Annotations, names and numbers that an author of Pods, NNCs or subnets chooses never end the agent."""

import asyncio
from decimal import Decimal

import pytest

from podpool.agent.informers import subnet_scaler
from podpool.api.azure import AGENT_ANNOTATION, INVENTORY_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, PODS
from podpool.core.settings import Settings
from podpool.lab.sim.event_loop import VirtualLoop
from tests.agent.node_env import NODE, SETTLE_TIME, SYSTEM, NodeEnv, in_node_env

DEEP = '{"x":' + "[" * 5000
VALUES = {
    "deep list": DEEP,
    "deep and complete": '{"x":' + "[" * 5000 + "]" * 5000 + "}",
    "digits": "9" * 5000,
    "digits of another script": "٣" * 30,
    "a number of 5,000 digits": '{"version":' + "9" * 5000 + "}",
    "a number of 400 digits": '{"version":' + "9" * 400 + ',"demand":' + "9" * 400 + ',"inventory":' + "9" * 400 + "}",
    "NUL": r'{"bootID":"\u0000","journal":"\u0000","networkContainer":"\u0000"}',
    "surrogate": r'{"bootID":"\ud800x"}',
    "an infinite number": '{"cooledSeconds":1e999}',
    "another type": "[1, 2]",
    "empty": "",
    "spaces": " " * 200_000,
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("annotation", [AGENT_ANNOTATION, INVENTORY_ANNOTATION])
def test_an_annotation_of_the_nnc_does_not_stop_the_agent(annotation: str, value: str) -> None:
    @in_node_env
    async def check(env: NodeEnv) -> None:
        await env.start()
        patch = {"metadata": {"annotations": {annotation: value}}}
        await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, patch, namespace=SYSTEM)
        await asyncio.sleep(SETTLE_TIME)
        assert await env.add("a")
        assert not [line for line in env.warnings if "unexpectedly" in line]

    check()


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_annotations_of_node_and_pods_do_not_stop_the_agent(value: str) -> None:
    keys = ("k8s.v1.cni.cncf.io/network-status", "kubernetes.io/config.hash")

    @in_node_env
    async def check(env: NodeEnv) -> None:
        await env.start()
        await env.bind("web")
        patch = {"metadata": {"annotations": dict.fromkeys(keys, value)}}
        await env.kube.merge_patch(NODES, NODE, patch)
        await env.kube.merge_patch(PODS, "web", patch, namespace="default")
        await asyncio.sleep(SETTLE_TIME)
        assert await env.add("a")
        assert not [line for line in env.warnings if "unexpectedly" in line]

    check()


BUFFERS = ("1e999999", "-1e999999", "1e30", "NaN", "Infinity", "sNaN", "1e-999999", "1" * 5000)


@pytest.mark.parametrize("buffer", BUFFERS, ids=[each[:10] for each in BUFFERS])
def test_a_buffer_beyond_every_limit_is_one_within_it(buffer: str) -> None:
    assert 0 <= subnet_scaler(16, Decimal(buffer), default=Settings()).buffer <= 400


@in_node_env
async def test_a_part_that_fails_unexpectedly_is_started_again(env: NodeEnv) -> None:
    """The second line of defence: a defect is logged with its traceback, and ends neither agent nor other parts."""
    agent = await env.start()
    original, failures = agent.pool.cooling_down, iter([RecursionError("planted")] * 2)

    def planted(**kwargs: float) -> object:
        if error := next(failures, None):
            raise error
        return original(**kwargs)

    agent.pool.cooling_down = planted  # type: ignore[method-assign,assignment]
    await env.scale_by(batch=16, buffer="0.5", nodes=3)
    await asyncio.sleep(2 * SETTLE_TIME)
    assert await env.add("a")
    assert [line for line in env.warnings if "failed unexpectedly" in line]
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert {"planted"} == {str(each["exception"]) for each in loop.failures}
    loop.failures.clear()

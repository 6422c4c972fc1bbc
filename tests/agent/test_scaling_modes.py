"""The three scaling modes: what each requests, compared with Azure's two."""

import asyncio

import pytest

from podpool.agent.scaling_decision import ScalingMode, ScalingParameters, target_count
from podpool.api.azure import CLUSTER_SUBNETS
from podpool.core.scaling import NodeHoldings, Scaler
from podpool.core.settings import Settings
from tests.agent.node_env import SETTLE_TIME, SYSTEM, NodeEnv, in_node_env
from tests.agent.test_pool_monitor import report, requests


def parameters(*, batch: int = 16, buffer: int = 50, maximum: int = 250) -> ScalingParameters:
    return ScalingParameters(
        scaler=Scaler(batch, buffer),
        max_buffer=buffer + 100,
        exhausted=False,
        maximum=maximum,
        cooldown=Settings().cooldown_levels.in_force(30.0),
    )


def requested_by(mode: ScalingMode, demand: int, subnet: ScalingParameters, *, requested: int = 0) -> int:
    holdings = NodeHoldings(requested=requested, held=requested, assigned=demand)
    return target_count(mode, subnet, holdings, demand=demand, primaries=0, releasable=requested)


@pytest.mark.parametrize(("demand", "maximum", "target"), [(0, 100, 16), (500, 250, 250)])
def test_no_mode_requests_more_than_the_node_maximum(demand: int, maximum: int, target: int) -> None:
    for mode in (ScalingMode.PODS, ScalingMode.IDEMPOTENT):
        assert target == requested_by(mode, demand, parameters(maximum=maximum))


@pytest.mark.parametrize(
    ("requested", "demand", "batch", "maximum", "target"),
    [(10, 8, 10, 30, 20), (10, 10, 3, 30, 12), (16, 9, 16, 30, 30), (16, 16, 50, 30, 30), (32, 5, 16, 250, 16)],
)
def test_reactive_moves_by_a_batch(requested: int, demand: int, batch: int, maximum: int, target: int) -> None:
    assert target == requested_by(
        ScalingMode.REACTIVE, demand, parameters(batch=batch, maximum=maximum), requested=requested
    )


@pytest.mark.parametrize("mode", [ScalingMode.REACTIVE, ScalingMode.IDEMPOTENT])
def test_without_a_buffer_the_older_modes_still_request_one_more(mode: ScalingMode) -> None:
    """They do not count waiting Pods."""
    assert 4 == requested_by(mode, 3, parameters(batch=1, buffer=0), requested=3)


class TestOnANode:
    @in_node_env
    async def test_idempotent_follows_assigned_addresses_and_lets_adds_wait(self, env: NodeEnv) -> None:
        env.options = {"mode": ScalingMode.IDEMPOTENT}
        await env.start()
        await env.bind(*(f"pod-{n}" for n in range(35)))
        await asyncio.sleep(SETTLE_TIME)
        assert [15] == requests(env)
        addresses = await asyncio.gather(*(env.add(f"s{n}", pod=f"pod-{n}") for n in range(35)))
        assert 35 == len(set(addresses))
        await asyncio.sleep(SETTLE_TIME)
        assert [15, 31, 47] == requests(env)
        assert 35 == report(env.transport.patches[-1])["demand"] + 4  # four were assigned after the last decision

    @in_node_env
    async def test_reactive_needs_rounds_and_fails_adds_meanwhile(self, env: NodeEnv) -> None:
        env.options = {"mode": ScalingMode.REACTIVE}
        await env.start()
        assert [16] == requests(env)
        answers = [await env.call("ADD", f"s{n}") for n in range(36)]
        assert [0] * 16 + [1] * 20 == [each.exit_code for each in answers]
        await asyncio.sleep(1.0)
        answers = [await env.call("ADD", f"s{n}") for n in range(36)]
        assert [0] * 32 + [1] * 4 == [each.exit_code for each in answers]
        await asyncio.sleep(1.0)
        answers = [await env.call("ADD", f"s{n}") for n in range(36)]
        assert [0] * 36 == [each.exit_code for each in answers]
        assert [16, 32, 48] == requests(env)

    @in_node_env
    async def test_reactive_releases_a_batch_at_a_time(self, env: NodeEnv) -> None:
        env.options = {"mode": ScalingMode.REACTIVE}
        await env.start()
        for n in range(30):
            await env.call("ADD", f"s{n}")
            await asyncio.sleep(0.5)
        assert [16, 32, 48] == requests(env)
        for n in range(30):
            await env.call("DEL", f"s{n}")
        await asyncio.sleep(300.0)
        changes = dict.fromkeys(requests(env)[2:])
        assert [48, 32, 16] == list(changes)

    @in_node_env
    async def test_reactive_moves_by_single_addresses_while_exhausted(self, env: NodeEnv) -> None:
        """The ClusterSubnetState has exhaustion where there is no ClusterSubnet."""
        env.options = {"mode": ScalingMode.REACTIVE}
        env.settings = Settings(shrink_spread_max=1.0)
        await env.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        await env.publish_exhausted(exhausted=False)
        await env.start()
        await env.add("a")
        assert [16] == requests(env)
        await env.publish_exhausted(exhausted=True)
        await asyncio.sleep(120.0)
        steps = list(dict.fromkeys(requests(env)))
        assert list(range(16, 1, -1)) == steps  # one in use, one free

    @in_node_env
    async def test_exhaustion_of_another_subnet_is_ignored(self, env: NodeEnv) -> None:
        await env.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        await env.publish_exhausted(exhausted=True, subnet="others")
        await env.start()
        assert [15] == requests(env)

    @in_node_env
    async def test_the_older_object_is_not_watched_once_the_newer_exists(self, env: NodeEnv) -> None:
        await env.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        await env.publish_exhausted(exhausted=True)
        agent = await env.start()
        assert [1] == requests(env)
        await env.scale_by(batch=8, buffer="0.5")
        await asyncio.sleep(SETTLE_TIME)
        assert 7 == requests(env)[-1]
        await env.publish_exhausted(exhausted=False)
        await env.publish_exhausted(exhausted=True)
        await asyncio.sleep(Settings().shrink_hold * 3)
        assert 7 == requests(env)[-1]
        assert {True: 1, False: 1} == agent.metrics_snapshot().exhaustion_changes

"""The three monitors: what each asks for, and what Azure's two are known to ask for."""

import asyncio

import pytest

from podpool.agent.scaling import Mode, ScalingParameters, wanted
from podpool.api.azure import CLUSTER_SUBNETS
from podpool.core.scaling import NodeHoldings, Scaler
from podpool.core.settings import Settings
from tests.agent.test_scaling import report, requests
from tests.agent.worlds import SETTLED, SYSTEM, World, in_world


def terms(*, batch: int = 16, buffer: int = 50, maximum: int = 250) -> ScalingParameters:
    return ScalingParameters(scaler=Scaler(batch, buffer), max_buffer=buffer + 100, exhausted=False, maximum=maximum)


def asked(mode: Mode, demand: int, told: ScalingParameters, *, requested: int = 0) -> int:
    holding = NodeHoldings(requested=requested, held=requested, assigned=demand)
    return wanted(mode, told, holding, demand=demand, primaries=0, releasable=requested)


@pytest.mark.parametrize(("demand", "maximum", "target"), [(0, 100, 16), (500, 250, 250)])
def test_nobody_asks_for_more_than_a_node_may_have(demand: int, maximum: int, target: int) -> None:
    for mode in (Mode.PODS, Mode.IDEMPOTENT):
        assert target == asked(mode, demand, terms(maximum=maximum))


@pytest.mark.parametrize(
    ("requested", "demand", "batch", "maximum", "target"),
    [(10, 8, 10, 30, 20), (10, 10, 3, 30, 12), (16, 9, 16, 30, 30), (16, 16, 50, 30, 30), (32, 5, 16, 250, 16)],
)
def test_the_reactive_one_moves_by_a_batch(requested: int, demand: int, batch: int, maximum: int, target: int) -> None:
    assert target == asked(Mode.REACTIVE, demand, terms(batch=batch, maximum=maximum), requested=requested)


@pytest.mark.parametrize("mode", [Mode.REACTIVE, Mode.IDEMPOTENT])
def test_without_a_buffer_the_older_ones_still_ask_for_one_more(mode: Mode) -> None:
    """They do not see that somebody waits."""
    assert 4 == asked(mode, 3, terms(batch=1, buffer=0), requested=3)


class TestInAWorld:
    @in_world
    async def test_the_idempotent_one_follows_addresses_in_use_and_makes_adds_wait(self, world: World) -> None:
        world.options = {"mode": Mode.IDEMPOTENT}
        await world.start()
        await world.bind(*(f"pod-{n}" for n in range(35)))
        await asyncio.sleep(SETTLED)
        assert [15] == requests(world)
        addresses = await asyncio.gather(*(world.add(f"s{n}", pod=f"pod-{n}") for n in range(35)))
        assert 35 == len(set(addresses))
        await asyncio.sleep(SETTLED)
        assert [15, 31, 47] == requests(world)
        assert 35 == report(world.road.patches[-1])["demand"] + 4  # four came after the last patch was decided

    @in_world
    async def test_the_reactive_one_needs_rounds_and_refuses_meanwhile(self, world: World) -> None:
        world.options = {"mode": Mode.REACTIVE}
        await world.start()
        assert [16] == requests(world)
        answers = [await world.call("ADD", f"s{n}") for n in range(36)]
        assert [0] * 16 + [1] * 20 == [each.exit_code for each in answers]
        await asyncio.sleep(1.0)
        answers = [await world.call("ADD", f"s{n}") for n in range(36)]
        assert [0] * 32 + [1] * 4 == [each.exit_code for each in answers]
        await asyncio.sleep(1.0)
        answers = [await world.call("ADD", f"s{n}") for n in range(36)]
        assert [0] * 36 == [each.exit_code for each in answers]
        assert [16, 32, 48] == requests(world)

    @in_world
    async def test_the_reactive_one_gives_back_a_batch_at_a_time(self, world: World) -> None:
        world.options = {"mode": Mode.REACTIVE}
        await world.start()
        for n in range(30):
            await world.call("ADD", f"s{n}")
            await asyncio.sleep(0.5)
        assert [16, 32, 48] == requests(world)
        for n in range(30):
            await world.call("DEL", f"s{n}")
        await asyncio.sleep(300.0)
        changes = dict.fromkeys(requests(world)[2:])
        assert [48, 32, 16] == list(changes)

    @in_world
    async def test_exhausted_the_reactive_one_moves_by_single_addresses(self, world: World) -> None:
        """On the word of a ClusterSubnetState, where there is no ClusterSubnet."""
        world.options = {"mode": Mode.REACTIVE}
        await world.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        await world.say_exhausted(exhausted=False)
        await world.start()
        await world.add("a")
        assert [16] == requests(world)
        await world.say_exhausted(exhausted=True)
        await asyncio.sleep(120.0)
        steps = list(dict.fromkeys(requests(world)))
        assert list(range(16, 1, -1)) == steps  # one in use, one free

    @in_world
    async def test_another_subnets_exhaustion_is_not_ours(self, world: World) -> None:
        await world.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        await world.say_exhausted(exhausted=True, subnet="others")
        await world.start()
        assert [15] == requests(world)

    @in_world
    async def test_the_older_object_is_not_watched_once_the_newer_is_there(self, world: World) -> None:
        await world.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        await world.say_exhausted(exhausted=True)
        agent = await world.start()
        assert [1] == requests(world)
        await world.scale_by(batch=8, buffer="0.5")
        await asyncio.sleep(SETTLED)
        assert 7 == requests(world)[-1]
        await world.say_exhausted(exhausted=False)
        await world.say_exhausted(exhausted=True)
        await asyncio.sleep(Settings().shrink_hold * 3)
        assert 7 == requests(world)[-1]
        assert {True: 1, False: 1} == agent.picture().exhaustions

"""The whole system on virtual time: with a fixed demand it comes to rest, whatever the demand and the subnet are."""

import asyncio
import ipaddress
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from podpool.controller.allocation_controller import RESYNC
from podpool.controller.ledger_health import BLIP, CONDITION
from podpool.controller.settings import Scarcity
from podpool.core.batch_policy import Load, batch_ladder
from podpool.lab.sim.convergence import write_state
from podpool.lab.sim.network import NetworkMessage
from podpool.lab.sim.profiles import SimConfig
from podpool.lab.sim.cluster import SimCluster
from podpool.ledger.messages import ReconcileRequest
from tests.lab.sim.driver import SETTINGS as HASTY

SETTINGS = msgspec.structs.replace(HASTY, batch=16, utilization_poll=5.0)
SETTLES, RESTS = 200.0, 120.0
"""Seconds after which nothing may change any more, and for which it is watched."""


def play(story: Callable[[SimCluster], Awaitable[None]], shape: SimConfig) -> None:
    world = SimCluster(1, shape)

    async def told() -> None:
        await world.start()
        await story(world)
        world.check()

    try:
        world.loop.run_until_complete(told())
    finally:
        world.loop.shutdown()


def published(world: SimCluster) -> dict[str, Any]:
    found = world.store.objects("acn.azure.com", "clustersubnets").get("kube-system/pods", {})
    status: dict[str, Any] = found.get("status", {})
    return status


class Watcher:
    """Notes what agents are told, each time that it is something else."""

    def __init__(self, world: SimCluster) -> None:
        self.told: list[tuple[bool, int]] = []
        self._world = world
        world.store.on_write.append(self._look)

    def _look(self, _: object) -> None:
        status = published(self._world)
        now = (bool(status.get("exhausted")), int(status.get("scaler", {}).get("batch", 0)))
        if now[1] and (not self.told or self.told[-1] != now):
            self.told.append(now)


async def settle(world: SimCluster, demands: list[int]) -> list[tuple[bool, int]]:
    """Bind so many Pods to each node, and see that everything comes to rest; tells what agents were told."""
    watcher = Watcher(world)
    for number, demand in enumerate(demands):
        world.add_host(f"node-{number}")
        for _ in range(demand):
            world.bind(f"node-{number}")
    await world.run_for(SETTLES)
    before = write_state(world)
    await world.run_for(RESTS)
    assert before == write_state(world), "it goes on writing"
    return watcher.told


@pytest.mark.simulation
@settings(max_examples=10, phases=(Phase.explicit, Phase.generate))
@given(demands=st.lists(st.integers(0, 20), min_size=1, max_size=5), prefix=st.integers(25, 27))
def test_the_graded_batch_settles_below_the_threshold_whenever_it_can(demands: list[int], prefix: int) -> None:
    async def story(world: SimCluster) -> None:
        told = await settle(world, demands)
        assert len(told) <= len(batch_ladder(SETTINGS.scaler)) + 2, told
        state = world.ledger_host.subnet()
        loads = [Load(demand, maximum=SETTINGS.node_maximum) for demand in demands]
        fits = [
            sum(load.reservation(scaler) for load in loads) * 100 <= SETTINGS.upper_threshold * state.capacity
            for scaler in batch_ladder(SETTINGS.scaler)[:-1]
        ]
        if any(fits):
            assert state.reserved * 100 <= SETTINGS.upper_threshold * state.capacity
        free = state.capacity - state.reserved_for_primaries - len(demands)
        if sum(demands) <= free:
            served = [len(world.oracle.uses_on(f"node-{number}")) for number in range(len(demands))]
            assert demands == served

    play(story, SimConfig(cidr=str(ipaddress.ip_network(("10.0.0.0", prefix))), settings=SETTINGS))


@pytest.mark.simulation
@settings(max_examples=6, phases=(Phase.explicit, Phase.generate))
@given(demands=st.lists(st.integers(0, 20), min_size=1, max_size=5), prefix=st.integers(25, 27))
def test_exhaustion_does_not_flap(demands: list[int], prefix: int) -> None:
    async def story(world: SimCluster) -> None:
        told = await settle(world, demands)
        flips = sum(one[0] != other[0] for one, other in itertools.pairwise(told))
        assert flips <= 1, told

    shape = SimConfig(cidr=str(ipaddress.ip_network(("10.0.0.0", prefix))), settings=SETTINGS, scarcity="exhaustion")
    play(story, shape)


@pytest.mark.parametrize(("scarcity", "first"), [("graded", 1), ("exhaustion", 1), ("off", 15)])
def test_the_first_request_of_a_new_node_follows_the_exhaustion_state(scarcity: Scarcity, first: int) -> None:
    """One free address while the subnet is exhausted, a batch when nobody says so."""

    async def story(world: SimCluster) -> None:
        world.add_host("node-0")
        for _ in range(24):
            world.bind("node-0")
        await world.run_for(40.0)
        assert (scarcity != "off") == published(world)["exhausted"]
        asked: list[int] = []

        def look(_: object) -> None:
            requested = world.nncs().get("node-1", {}).get("spec", {}).get("requestedIPCount", 0)
            if requested and requested not in asked:
                asked.append(requested)

        world.store.on_write.append(look)
        world.add_host("node-1")
        await world.run_for(5.0)
        assert first == asked[0]

    play(story, SimConfig(cidr="10.0.0.0/27", settings=SETTINGS, scarcity=scarcity))


def test_while_the_ledger_is_away_pods_start_and_people_are_told() -> None:
    async def story(world: SimCluster) -> None:
        world.add_host("node-0")
        await world.run_for(10.0)
        (ledger,) = world.ledger_host.replicas
        assert ledger.process
        ledger.process.kill()
        for _ in range(10):
            world.bind("node-0")
        await world.run_for(BLIP / 2)
        assert 10 == len(world.oracle.uses_on("node-0"))
        assert "conditions" not in published(world)
        await world.run_for(BLIP * 2)
        (told,) = published(world)["conditions"]
        assert (CONDITION, "False", "NoAnswer") == (told["type"], told["status"], told["reason"])
        assert "nodes keep what they hold" in told["message"]
        for _ in range(8):
            world.bind("node-0")
        await world.run_for(20.0)
        assert 15 == len(world.oracle.uses_on("node-0")), "what it holds, and no more"
        world.ledger_host.start()
        await world.run_for(30.0)
        assert 18 == len(world.oracle.uses_on("node-0"))
        (told,) = published(world)["conditions"]
        assert ("True", "Answers") == (told["status"], told["reason"])

    play(story, SimConfig(settings=SETTINGS))


def test_an_api_server_that_is_away_is_waited_for() -> None:
    async def story(world: SimCluster) -> None:
        world.add_host("node-0")
        await world.run_for(10.0)
        assert world.api.process
        world.api.process.kill()
        world.store.stop_watches()
        await asyncio.sleep(60.0)
        world.start_api()
        world.add_host("node-1")
        await world.run_for(45.0)
        assert 15 == len(world.nncs()["node-1"]["status"]["networkContainers"][0]["ipAssignments"])

    play(story, SimConfig(settings=SETTINGS))


def test_everything_is_compared_with_the_ledger_now_and_then() -> None:
    """Although nothing has changed, and nobody asked."""

    async def story(world: SimCluster) -> None:
        world.add_host("node-0")
        world.add_host("node-1")
        await world.run_for(20.0)
        asked: set[str] = set()

        def note(message: NetworkMessage) -> bool:
            if message.request.path == "/v1/reconcile":
                asked.update(item.node for item in msgspec.json.decode(message.request.body, type=ReconcileRequest).items)
            return False

        world.network.hold(note)
        before = write_state(world)
        await world.run_for(RESYNC / 2)
        assert set() == asked
        await world.run_for(RESYNC)
        assert {"node-0", "node-1"} == asked
        assert before == write_state(world)

    play(story, SimConfig(settings=SETTINGS))

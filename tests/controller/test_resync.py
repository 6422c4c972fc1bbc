"""Convergence in the simulator: with a constant demand nothing is written after a while."""

import asyncio
import ipaddress
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from podpool.controller.allocation_controller import RESYNC_INTERVAL
from podpool.controller.ledger_health import CONDITION, GRACE_PERIOD
from podpool.controller.settings import Scarcity
from podpool.core.batch_policy import Load, batch_ladder
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.convergence import write_state
from podpool.lab.sim.network import NetworkMessage
from podpool.lab.sim.profiles import SimConfig
from podpool.ledger.messages import ReconcileRequest
from tests.lab.sim.driver import SETTINGS as HASTY

SETTINGS = msgspec.structs.replace(HASTY, batch=16, utilization_poll=5.0)
CONVERGES, STABLE = 200.0, 120.0
"""Seconds after which nothing may change any more, and for which this is checked."""


def play(scenario: Callable[[SimCluster], Awaitable[None]], shape: SimConfig) -> None:
    world = SimCluster(1, shape)

    async def run() -> None:
        await world.start()
        await scenario(world)
        world.check()

    try:
        world.loop.run_until_complete(run())
    finally:
        world.loop.shutdown()


def published(world: SimCluster) -> dict[str, Any]:
    found = world.store.objects("acn.azure.com", "clustersubnets").get("kube-system/pods", {})
    status: dict[str, Any] = found.get("status", {})
    return status


class PublishedStates:
    """Records what is published to agents, each time that it changes."""

    def __init__(self, world: SimCluster) -> None:
        self.published: list[tuple[bool, int]] = []
        self._world = world
        world.store.on_write.append(self._on_write)

    def _on_write(self, _: object) -> None:
        status = published(self._world)
        now = (bool(status.get("exhausted")), int(status.get("scaler", {}).get("batch", 0)))
        if now[1] and (not self.published or self.published[-1] != now):
            self.published.append(now)


async def settle(world: SimCluster, demands: list[int]) -> list[tuple[bool, int]]:
    """Bind Pods to each node, check that writes stop, and return what was published to agents."""
    states = PublishedStates(world)
    for number, demand in enumerate(demands):
        world.add_host(f"node-{number}")
        for _ in range(demand):
            world.bind(f"node-{number}")
    await world.run_for(CONVERGES)
    before = write_state(world)
    await world.run_for(STABLE)
    assert before == write_state(world), "writes do not stop"
    return states.published


@pytest.mark.simulation
@settings(max_examples=10, phases=(Phase.explicit, Phase.generate))
@given(demands=st.lists(st.integers(0, 20), min_size=1, max_size=5), prefix=st.integers(25, 27))
def test_the_graded_batch_converges_below_the_threshold_if_possible(demands: list[int], prefix: int) -> None:
    async def scenario(world: SimCluster) -> None:
        published_states = await settle(world, demands)
        assert len(published_states) <= len(batch_ladder(SETTINGS.scaler)) + 2, published_states
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

    play(scenario, SimConfig(cidr=str(ipaddress.ip_network(("10.0.0.0", prefix))), settings=SETTINGS))


@pytest.mark.simulation
@settings(max_examples=6, phases=(Phase.explicit, Phase.generate))
@given(demands=st.lists(st.integers(0, 20), min_size=1, max_size=5), prefix=st.integers(25, 27))
def test_exhaustion_does_not_flap(demands: list[int], prefix: int) -> None:
    async def scenario(world: SimCluster) -> None:
        published_states = await settle(world, demands)
        flips = sum(one[0] != other[0] for one, other in itertools.pairwise(published_states))
        assert flips <= 1, published_states

    shape = SimConfig(cidr=str(ipaddress.ip_network(("10.0.0.0", prefix))), settings=SETTINGS, scarcity="exhaustion")
    play(scenario, shape)


@pytest.mark.parametrize(("scarcity", "first"), [("graded", 1), ("exhaustion", 1), ("off", 15)])
def test_the_first_request_of_a_new_node_follows_the_exhaustion_state(scarcity: Scarcity, first: int) -> None:
    """One free address while the subnet is exhausted, else a batch."""

    async def scenario(world: SimCluster) -> None:
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

    play(scenario, SimConfig(cidr="10.0.0.0/27", settings=SETTINGS, scarcity=scarcity))


def test_while_the_ledger_is_unreachable_pods_start_and_a_condition_is_set() -> None:
    async def scenario(world: SimCluster) -> None:
        world.add_host("node-0")
        await world.run_for(10.0)
        (ledger,) = world.ledger_host.replicas
        assert ledger.process
        ledger.process.kill()
        for _ in range(10):
            world.bind("node-0")
        await world.run_for(GRACE_PERIOD / 2)
        assert 10 == len(world.oracle.uses_on("node-0"))
        assert "conditions" not in published(world)
        await world.run_for(GRACE_PERIOD * 2)
        (condition,) = published(world)["conditions"]
        assert (CONDITION, "False", "Unreachable") == (condition["type"], condition["status"], condition["reason"])
        assert "nodes keep the addresses they hold" in condition["message"]
        for _ in range(8):
            world.bind("node-0")
        await world.run_for(20.0)
        assert 15 == len(world.oracle.uses_on("node-0")), "only what it holds"
        world.ledger_host.start_replica()
        await world.run_for(30.0)
        assert 18 == len(world.oracle.uses_on("node-0"))
        (condition,) = published(world)["conditions"]
        assert ("True", "Reachable") == (condition["status"], condition["reason"])

    play(scenario, SimConfig(settings=SETTINGS))


def test_an_unreachable_api_server_is_waited_for() -> None:
    async def scenario(world: SimCluster) -> None:
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

    play(scenario, SimConfig(settings=SETTINGS))


def test_every_node_is_compared_with_the_ledger_periodically() -> None:
    """Although nothing has changed."""

    async def scenario(world: SimCluster) -> None:
        world.add_host("node-0")
        world.add_host("node-1")
        await world.run_for(20.0)
        asked: set[str] = set()

        def note(message: NetworkMessage) -> bool:
            if message.request.path == "/v1/reconcile":
                asked.update(
                    item.node for item in msgspec.json.decode(message.request.body, type=ReconcileRequest).items
                )
            return False

        world.network.hold(note)
        before = write_state(world)
        await world.run_for(RESYNC_INTERVAL / 2)
        assert set() == asked
        await world.run_for(RESYNC_INTERVAL)
        assert {"node-0", "node-1"} == asked
        assert before == write_state(world)

    play(scenario, SimConfig(settings=SETTINGS))

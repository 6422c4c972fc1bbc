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

from podpool.controller.ledger_health import CONDITION, GRACE_PERIOD
from podpool.controller.ledger_term_runner import RESYNC_INTERVAL
from podpool.controller.settings import Scarcity
from podpool.core.batch_ladder import Load, batch_ladder
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.convergence import write_state
from podpool.lab.sim.network import NetworkMessage
from podpool.lab.sim.profiles import SimConfig
from podpool.ledger.messages import ReconcileRequest
from tests.lab.sim.driver import SETTINGS as FAST_SETTINGS

SETTINGS = msgspec.structs.replace(FAST_SETTINGS, batch=16, utilization_poll=5.0)
CONVERGES, STABLE = 200.0, 120.0
"""Seconds after which nothing may change any more, and for which this is checked."""


def run(scenario: Callable[[SimCluster], Awaitable[None]], config: SimConfig) -> None:
    cluster = SimCluster(1, config)

    async def start_and_check() -> None:
        await cluster.start()
        await scenario(cluster)
        cluster.check()

    try:
        cluster.loop.run_until_complete(start_and_check())
    finally:
        cluster.loop.shutdown()


def published(cluster: SimCluster) -> dict[str, Any]:
    found = cluster.store.objects("acn.azure.com", "clustersubnets").get("kube-system/pods", {})
    status: dict[str, Any] = found.get("status", {})
    return status


class PublishedStates:
    """Records what is published to agents, each time that it changes."""

    def __init__(self, cluster: SimCluster) -> None:
        self.published: list[tuple[bool, int]] = []
        self._cluster = cluster
        cluster.store.on_write.append(self._on_write)

    def _on_write(self, _: object) -> None:
        status = published(self._cluster)
        now = (bool(status.get("exhausted")), int(status.get("scaler", {}).get("batch", 0)))
        if now[1] and (not self.published or self.published[-1] != now):
            self.published.append(now)


async def settle(cluster: SimCluster, demands: list[int]) -> list[tuple[bool, int]]:
    """Bind Pods to each node, check that writes stop, and return what was published to agents."""
    states = PublishedStates(cluster)
    for number, demand in enumerate(demands):
        cluster.add_host(f"node-{number}")
        for _ in range(demand):
            cluster.bind(f"node-{number}")
    await cluster.run_for(CONVERGES)
    before = write_state(cluster)
    await cluster.run_for(STABLE)
    assert before == write_state(cluster), "writes do not stop"
    return states.published


@pytest.mark.simulation
@settings(max_examples=10, phases=(Phase.explicit, Phase.generate))
@given(demands=st.lists(st.integers(0, 20), min_size=1, max_size=5), prefix=st.integers(25, 27))
def test_the_graded_batch_converges_below_the_threshold_if_possible(demands: list[int], prefix: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        published_states = await settle(cluster, demands)
        assert len(published_states) <= len(batch_ladder(SETTINGS.scaler)) + 2, published_states
        state = cluster.ledger_host.subnet()
        loads = [Load(demand, maximum=SETTINGS.node_maximum) for demand in demands]
        fits = [
            sum(load.reservation(scaler) for load in loads) * 100 <= SETTINGS.upper_threshold * state.capacity
            for scaler in batch_ladder(SETTINGS.scaler)[:-1]
        ]
        if any(fits):
            assert state.reserved * 100 <= SETTINGS.upper_threshold * state.capacity
        free = state.capacity - state.reserved_for_primaries - len(demands)
        if sum(demands) <= free:
            served = [len(cluster.oracle.uses_on(f"node-{number}")) for number in range(len(demands))]
            assert demands == served

    run(scenario, SimConfig(cidr=str(ipaddress.ip_network(("10.0.0.0", prefix))), settings=SETTINGS))


@pytest.mark.simulation
@settings(max_examples=6, phases=(Phase.explicit, Phase.generate))
@given(demands=st.lists(st.integers(0, 20), min_size=1, max_size=5), prefix=st.integers(25, 27))
def test_exhaustion_does_not_flap(demands: list[int], prefix: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        published_states = await settle(cluster, demands)
        flips = sum(one[0] != other[0] for one, other in itertools.pairwise(published_states))
        assert flips <= 1, published_states

    config = SimConfig(cidr=str(ipaddress.ip_network(("10.0.0.0", prefix))), settings=SETTINGS, scarcity="exhaustion")
    run(scenario, config)


@pytest.mark.parametrize(("scarcity", "first"), [("graded", 1), ("exhaustion", 1), ("off", 15)])
def test_the_first_request_of_a_new_node_follows_the_exhaustion_state(scarcity: Scarcity, first: int) -> None:
    """One free address while the subnet is exhausted, else a batch."""

    async def scenario(cluster: SimCluster) -> None:
        cluster.add_host("node-0")
        for _ in range(24):
            cluster.bind("node-0")
        await cluster.run_for(40.0)
        assert (scarcity != "off") == published(cluster)["exhausted"]
        asked: list[int] = []

        def on_write(_: object) -> None:
            requested = cluster.nncs().get("node-1", {}).get("spec", {}).get("requestedIPCount", 0)
            if requested and requested not in asked:
                asked.append(requested)

        cluster.store.on_write.append(on_write)
        cluster.add_host("node-1")
        await cluster.run_for(5.0)
        assert first == asked[0]

    run(scenario, SimConfig(cidr="10.0.0.0/27", settings=SETTINGS, scarcity=scarcity))


def test_while_the_ledger_is_unreachable_pods_start_and_a_condition_is_set() -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.add_host("node-0")
        await cluster.run_for(10.0)
        (ledger,) = cluster.ledger_host.replicas
        assert ledger.process
        ledger.process.kill()
        for _ in range(10):
            cluster.bind("node-0")
        await cluster.run_for(GRACE_PERIOD / 2)
        assert 10 == len(cluster.oracle.uses_on("node-0"))
        assert "conditions" not in published(cluster)
        await cluster.run_for(GRACE_PERIOD * 2)
        (condition,) = published(cluster)["conditions"]
        assert (CONDITION, "False", "Unreachable") == (condition["type"], condition["status"], condition["reason"])
        assert "nodes keep the addresses they hold" in condition["message"]
        for _ in range(8):
            cluster.bind("node-0")
        await cluster.run_for(20.0)
        assert 15 == len(cluster.oracle.uses_on("node-0")), "only what it holds"
        cluster.ledger_host.start_replica()
        await cluster.run_for(30.0)
        assert 18 == len(cluster.oracle.uses_on("node-0"))
        (condition,) = published(cluster)["conditions"]
        assert ("True", "Reachable") == (condition["status"], condition["reason"])

    run(scenario, SimConfig(settings=SETTINGS))


def test_an_unreachable_api_server_is_waited_for() -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.add_host("node-0")
        await cluster.run_for(10.0)
        assert cluster.api.process
        cluster.api.process.kill()
        cluster.store.stop_watches()
        await asyncio.sleep(60.0)
        cluster.start_api()
        cluster.add_host("node-1")
        await cluster.run_for(45.0)
        assert 15 == len(cluster.nncs()["node-1"]["status"]["networkContainers"][0]["ipAssignments"])

    run(scenario, SimConfig(settings=SETTINGS))


def test_every_node_is_compared_with_the_ledger_periodically() -> None:
    """Although nothing has changed."""

    async def scenario(cluster: SimCluster) -> None:
        cluster.add_host("node-0")
        cluster.add_host("node-1")
        await cluster.run_for(20.0)
        asked: set[str] = set()

        def note(message: NetworkMessage) -> bool:
            if message.request.path == "/v1/reconcile":
                asked.update(
                    item.node for item in msgspec.json.decode(message.request.body, type=ReconcileRequest).items
                )
            return False

        cluster.network.hold(note)
        before = write_state(cluster)
        await cluster.run_for(RESYNC_INTERVAL / 2)
        assert set() == asked
        await cluster.run_for(RESYNC_INTERVAL)
        assert {"node-0", "node-1"} == asked
        assert before == write_state(cluster)

    run(scenario, SimConfig(settings=SETTINGS))

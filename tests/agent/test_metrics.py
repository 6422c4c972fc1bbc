"""What the agent tells Prometheus: Azure's names and labels, and our own."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from podpool.agent.agent import Agent
from podpool.agent.metrics import AgentMetrics
from podpool.cni.protocol import PluginRequest as Call
from podpool.cni.protocol import encode_request
from podpool.core.settings import Settings
from podpool.runtime.process import health_handler
from podpool.runtime.transport import Request
from tests.agent.worlds import World, in_world

AZURE = (
    "pod_allocated_ips",
    "available_ips",
    "batch_size",
    "current_available_ips",
    "expect_available_ips",
    "max_ips",
    "pending_programming_ips",
    "pending_release_ips",
    "primary_ips",
    "requested_ips",
    "secondary_ips",
    "total_ips",
    "subnet_exhaustion_state",
)


async def read(agent: Agent) -> dict[str, float]:
    """The page, by name; labelled ones with the values of their labels."""
    page = AgentMetrics(agent.handle, agent.picture).page(health_handler(agent.missing))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            own = [value for name, value in sample.labels.items() if name in ("watch", "le")]
            found[" ".join([sample.name, *own])] = sample.value
    return found


@in_world
async def test_azures_gauges_have_its_names_and_labels(world: World) -> None:
    agent = await world.start()
    for sandbox in "abc":
        await world.add(sandbox)
    await world.call("DEL", "c")
    page = AgentMetrics(agent.handle, agent.picture).page(health_handler(agent.missing))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    labels = 'customer_metric="customer metric",podnet_arm_id="",subnet="pods",subnet_cidr="10.0.0.0/16"'
    for name in AZURE:
        assert f"cx_ipam_{name}{{{labels}}}" in text
    told = await read(agent)
    numbers = [told[f"cx_ipam_{name}"] for name in AZURE]
    assert [2.0, 12.0, 16.0, 13.0, 13.0, 250.0, 0.0, 0.0, 1.0, 15.0, 15.0, 16.0, 0.0] == numbers
    assert 1.0 == told["cx_ipam_subnet_exhaustion_state_count_total"]
    assert 1.0 == told["podpool_agent_resting_ips"]


@in_world
async def test_our_own_tell_of_waiting_fence_journal_and_watches(world: World) -> None:
    world.capacity = 0
    agent = await world.start()
    waiting = asyncio.ensure_future(world.refused("a"))
    await asyncio.sleep(1.0)
    told = await read(agent)
    assert (1.0, 1.0) == (told["podpool_agent_waiting_adds"], told["podpool_agent_waiting_pods"])
    assert told["podpool_agent_journal_bytes"] > 0
    assert told["podpool_agent_journal_records_total"] >= 4
    assert 0.0 == told["podpool_agent_fenced"]
    await waiting
    world.road.cut = True
    await asyncio.sleep(Settings().fence + 1)
    told = await read(agent)
    assert 1.0 == told["podpool_agent_fenced"]
    assert told["podpool_agent_fence_age_seconds"] > Settings().fence
    for watch in ("pods", "node", "networkconfig", "subnet"):
        assert told[f"podpool_agent_watch_lag_seconds {watch}"] > 60.0


@in_world
async def test_a_watch_that_is_well_lags_a_minute_at_most(world: World) -> None:
    agent = await world.start()
    await asyncio.sleep(1000.0)
    told = await read(agent)
    for watch in ("pods", "node", "networkconfig", "subnet"):
        assert told[f"podpool_agent_watch_lag_seconds {watch}"] <= 61.0


@in_world
async def test_adds_are_timed_and_refusals_counted(world: World) -> None:
    agent = await world.start()
    meters = AgentMetrics(agent.handle, agent.picture)
    for command in ("ADD", "ADD", "DEL", "JUMP"):
        await meters.handle(encode_request(Call(command=command, container_id="a", ifname="eth0", stdin=b"{}")))
    page = meters.page(health_handler(agent.missing))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    assert "podpool_agent_add_seconds_count 2.0" in text
    assert "podpool_agent_calls_refused_total 1.0" in text


@in_world
async def test_the_other_pages_are_those_of_every_daemon(world: World) -> None:
    world.road.cut = True
    agent = await world.start()
    page = AgentMetrics(agent.handle, agent.picture).page(health_handler(agent.missing))
    assert 200 == (await page(Request(method="GET", path="/healthz"))).status
    assert 503 == (await page(Request(method="GET", path="/readyz"))).status
    world.road.cut = False
    await agent.able.wait()
    assert 200 == (await page(Request(method="GET", path="/readyz"))).status

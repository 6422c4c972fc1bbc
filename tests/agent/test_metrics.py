"""The agent's metrics: Azure's names and labels, and our own."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from podpool.agent.agent import Agent
from podpool.agent.metrics import AgentMetrics
from podpool.cni.protocol import PluginRequest, encode_request
from podpool.core.settings import Settings
from podpool.runtime.process import health_handler
from podpool.runtime.transport import Request
from tests.agent.node_env import NodeEnv, in_node_env

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
    """Return the samples by name and values of the labels."""
    page = AgentMetrics(agent.handle, agent.metrics_snapshot).page(health_handler(agent.health_checks))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            own = [value for name, value in sample.labels.items() if name in ("watch", "le")]
            found[" ".join([sample.name, *own])] = sample.value
    return found


@in_node_env
async def test_azures_gauges_have_its_names_and_labels(env: NodeEnv) -> None:
    agent = await env.start()
    for sandbox in "abc":
        await env.add(sandbox)
    await env.call("DEL", "c")
    page = AgentMetrics(agent.handle, agent.metrics_snapshot).page(health_handler(agent.health_checks))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    labels = 'customer_metric="customer metric",podnet_arm_id="",subnet="pods",subnet_cidr="10.0.0.0/16"'
    for name in AZURE:
        assert f"cx_ipam_{name}{{{labels}}}" in text
    samples = await read(agent)
    numbers = [samples[f"cx_ipam_{name}"] for name in AZURE]
    assert [2.0, 12.0, 16.0, 13.0, 13.0, 250.0, 0.0, 0.0, 1.0, 15.0, 15.0, 16.0, 0.0] == numbers
    assert 1.0 == samples["cx_ipam_subnet_exhaustion_state_count_total"]
    assert 1.0 == samples["podpool_agent_cooling_down_ips"]


@in_node_env
async def test_waiting_fence_journal_and_watches_have_gauges(env: NodeEnv) -> None:
    env.capacity = 0
    agent = await env.start()
    waiting = asyncio.ensure_future(env.refused("a"))
    await asyncio.sleep(1.0)
    samples = await read(agent)
    assert (1.0, 1.0) == (samples["podpool_agent_waiting_adds"], samples["podpool_agent_waiting_pods"])
    assert samples["podpool_agent_journal_bytes"] > 0
    assert samples["podpool_agent_journal_records_total"] >= 4
    assert 0.0 == samples["podpool_agent_fenced"]
    await waiting
    env.transport.cut = True
    await asyncio.sleep(Settings().fence + 1)
    samples = await read(agent)
    assert 1.0 == samples["podpool_agent_fenced"]
    assert samples["podpool_agent_fence_age_seconds"] > Settings().fence
    for watch in ("pods", "node", "nnc", "subnet"):
        assert samples[f"podpool_agent_watch_lag_seconds {watch}"] > 60.0


@in_node_env
async def test_a_working_watch_lags_a_minute_at_most(env: NodeEnv) -> None:
    agent = await env.start()
    await asyncio.sleep(1000.0)
    samples = await read(agent)
    for watch in ("pods", "node", "nnc", "subnet"):
        assert samples[f"podpool_agent_watch_lag_seconds {watch}"] <= 61.0


@in_node_env
async def test_adds_are_timed_and_errors_counted(env: NodeEnv) -> None:
    agent = await env.start()
    metrics = AgentMetrics(agent.handle, agent.metrics_snapshot)
    for command in ("ADD", "ADD", "DEL", "JUMP"):
        await metrics.handle(
            encode_request(PluginRequest(command=command, container_id="a", ifname="eth0", stdin=b"{}"))
        )
    page = metrics.page(health_handler(agent.health_checks))
    text = (await (await page(Request(method="GET", path="/metrics"))).read()).decode()
    assert "podpool_agent_add_seconds_count 2.0" in text
    assert "podpool_agent_cni_errors_total 1.0" in text


@in_node_env
async def test_health_endpoints_are_served_next_to_the_metrics(env: NodeEnv) -> None:
    env.transport.cut = True
    agent = await env.start()
    page = AgentMetrics(agent.handle, agent.metrics_snapshot).page(health_handler(agent.health_checks))
    assert 200 == (await page(Request(method="GET", path="/healthz"))).status
    assert 503 == (await page(Request(method="GET", path="/readyz"))).status
    env.transport.cut = False
    await agent.ready.wait()
    assert 200 == (await page(Request(method="GET", path="/readyz"))).status

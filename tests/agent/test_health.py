"""`/readyz` of the agent, and what its log says about its Node."""

import asyncio

from podpool.api.builtin import NODES
from tests.agent.node_env import NODE, SETTLE_TIME, NodeEnv, in_node_env


def failures(env: NodeEnv) -> dict[str, str]:
    assert env.agent
    return {each.name: each.failure for each in env.agent.health_checks() if each.failure}


def about_the_node(env: NodeEnv) -> list[str]:
    return [line for line in env.logs if line.startswith("Node ") and "confirmed" not in line]


@in_node_env
async def test_without_its_node_it_is_not_ready_and_names_the_option_once(env: NodeEnv) -> None:
    await env.kube.delete(NODES, NODE)
    await env.start()
    await asyncio.sleep(600.0)
    assert f"Node {NODE} does not exist: check --node, and that the kubelet" in failures(env)["node"]
    (line,) = about_the_node(env)
    assert "check --node" in line
    assert line in env.warnings
    await env.register_node()
    await asyncio.sleep(SETTLE_TIME)
    assert "node" not in failures(env)
    assert ["Node of this machine found"] == [each.partition(" node=")[0] for each in about_the_node(env)[1:]]


@in_node_env
async def test_the_node_of_another_machine_is_named_with_both_boot_ids(env: NodeEnv) -> None:
    await env.report_boot("boot-of-another")
    await env.start()
    reason = failures(env)["node"]
    assert f"Node {NODE} reports boot ID boot-of-another, and this machine has boot-1" in reason
    assert "check --node and --boot-id" in reason
    await env.report_boot(env.boot_id)
    await asyncio.sleep(60.0)
    assert {} == failures(env)


@in_node_env
async def test_with_slices_only_it_is_not_ready_without_its_node_either(env: NodeEnv) -> None:
    await env.kube.delete(NODES, NODE)
    env.options = {"whereabouts_namespace": "kube-system"}
    await env.start()
    assert "--node" in failures(env)["node"]


@in_node_env
async def test_an_unreachable_api_server_is_named(env: NodeEnv) -> None:
    env.transport.cut = True
    await env.start()
    assert "--kubeconfig" in failures(env)["node"]

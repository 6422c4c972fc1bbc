"""Many agents in one process."""

import asyncio
import random

from podpool.agent.agent import Agent
from podpool.agent.deps import AgentDeps
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.cni.protocol import PluginRequest, decode_response, encode_request
from podpool.kube.client import KubeClient
from tests.agent.disks import MemoryDisk
from tests.agent.node_env import SYSTEM, NodeEnv, in_node_env

MANY = 30


async def register(env: NodeEnv, name: str, number: int) -> None:
    """Create a Node with an NC, as kubelet and controller do."""
    meta = {"name": name}
    node = await env.kube.create(NODES, {"metadata": meta, "status": {"nodeInfo": {"bootID": f"boot-{name}"}}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid, "controller": True}
    await env.kube.create(
        NODE_NETWORK_CONFIGS, {"metadata": {"name": name, "namespace": SYSTEM, "ownerReferences": [owner]}}
    )
    await grant(env, name, number, version=1, count=0)


async def grant(env: NodeEnv, name: str, number: int, *, version: int, count: int) -> None:
    nc = {
        "id": f"nc-{name}",
        "primaryIP": f"10.0.0.{number + 10}",
        "subnetName": "pods",
        "subnetAddressSpace": "10.0.0.0/16",
        "version": version,
        "ipAssignments": [
            {"name": f"{name}-{each}", "ip": f"10.0.{number + 1}.{each}"} for each in range(1, count + 1)
        ],
    }
    body = {"status": {"networkContainers": [nc]}}
    await env.kube.merge_patch(NODE_NETWORK_CONFIGS, name, body, namespace=SYSTEM, subresource="status")


@in_node_env
async def test_each_assigns_its_own_addresses_and_one_that_stops_stops_no_other(env: NodeEnv) -> None:
    names = [f"many-{number}" for number in range(MANY)]
    agents: dict[str, Agent] = {}
    running: dict[str, asyncio.Task[None]] = {}
    for number, name in enumerate(names):
        await register(env, name, number)
        deps = AgentDeps(
            node=name,
            boot_id=f"boot-{name}",
            kube=KubeClient(env.server),
            disk=MemoryDisk(),
            clock=env.clock,
            rng=random.Random(number),  # noqa: S311  seeded
        )
        agents[name] = Agent(deps)
        running[name] = asyncio.create_task(agents[name].run())
    await asyncio.gather(*(each.ready.wait() for each in agents.values()))
    for number, name in enumerate(names):
        await grant(env, name, number, version=2, count=3)
    running.pop(names[0]).cancel()
    add = encode_request(
        PluginRequest(command="ADD", container_id="box", ifname="eth0", stdin=b'{"cniVersion":"1.0.0"}')
    )
    answers = await asyncio.gather(*(agents[name].handle(add) for name in names[1:]))
    results = {decode_response(each).stdout for each in answers}
    assert {0} == {decode_response(each).exit_code for each in answers}
    assert MANY - 1 == len(results)
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)

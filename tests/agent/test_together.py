"""Many agents in one process: one machine can play many nodes."""

import asyncio
import random

from podpool.agent.agent import Agent
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.cni.protocol import PluginRequest, decode_response, encode_request
from podpool.kube.client import KubeClient
from tests.agent.disks import MemoryDisk
from tests.agent.worlds import SYSTEM, World, in_world

MANY = 30


async def register(world: World, name: str, number: int) -> None:
    """A Node with a container and a few addresses, as kubelet and controller make them."""
    meta = {"name": name}
    node = await world.kube.create(NODES, {"metadata": meta, "status": {"nodeInfo": {"bootID": f"boot-{name}"}}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid, "controller": True}
    await world.kube.create(
        NODE_NETWORK_CONFIGS, {"metadata": {"name": name, "namespace": SYSTEM, "ownerReferences": [owner]}}
    )
    await give(world, name, number, version=1, count=0)


async def give(world: World, name: str, number: int, *, version: int, count: int) -> None:
    container = {
        "id": f"nc-{name}",
        "primaryIP": f"10.0.0.{number + 10}",
        "subnetName": "pods",
        "subnetAddressSpace": "10.0.0.0/16",
        "version": version,
        "ipAssignments": [
            {"name": f"{name}-{each}", "ip": f"10.0.{number + 1}.{each}"} for each in range(1, count + 1)
        ],
    }
    body = {"status": {"networkContainers": [container]}}
    await world.kube.merge(NODE_NETWORK_CONFIGS, name, body, namespace=SYSTEM, sub="status")


@in_world
async def test_each_gives_its_own_addresses_and_one_end_ends_no_other(world: World) -> None:
    names = [f"many-{number}" for number in range(MANY)]
    agents: dict[str, Agent] = {}
    running: dict[str, asyncio.Task[None]] = {}
    for number, name in enumerate(names):
        await register(world, name, number)
        agents[name] = Agent(
            name,
            KubeClient(world.server),
            disk=MemoryDisk(),
            clock=world.clock,
            rng=random.Random(number),  # noqa: S311  seeded
            boot_id=f"boot-{name}",
            tell=world.told.append,
        )
        running[name] = asyncio.create_task(agents[name].run())
    await asyncio.gather(*(each.able.wait() for each in agents.values()))
    for number, name in enumerate(names):
        await give(world, name, number, version=2, count=3)
    running.pop(names[0]).cancel()
    add = encode_request(PluginRequest(command="ADD", container_id="box", ifname="eth0", stdin=b'{"cniVersion":"1.0.0"}'))
    answers = await asyncio.gather(*(agents[name].handle(add) for name in names[1:]))
    told = {decode_response(each).stdout for each in answers}
    assert {0} == {decode_response(each).exit_code for each in answers}
    assert MANY - 1 == len(told)
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)

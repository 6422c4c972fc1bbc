"""Two NADs of one network at one agent: they share its slice and its addresses, and nothing else."""

import asyncio
from typing import Any

from podpool.api.whereabouts import IP_POOLS
from tests.agent.node_env import NodeEnv, in_node_env
from tests.agent.secondary.slice_env import IPAM, add, call, failed, pool_entries, start_with_slice

RED: dict[str, Any] = {**IPAM, "network_name": "red"}


@in_node_env
async def test_no_address_is_assigned_through_both(env: NodeEnv) -> None:
    name = await start_with_slice(env, network="red")
    one = [await add(env, f"a{n}", RED, network="one") for n in range(7)]
    two = [await add(env, f"b{n}", {**RED, "exclude": ["10.1.4.8"]}, network="two") for n in range(6)]
    assert 13 == len({*map(tuple, (*one, *two))})
    assert 11 == (await failed(env, "ADD", "c", {**RED, "exclude": ["10.1.4.8"]}, network="two"))["code"]
    assert ["10.1.4.8/16"] == await add(env, "d", RED, network="one")
    await asyncio.sleep(1.0)
    assert 14 == len(await pool_entries(env, name))
    assert 1 == len((await env.kube.list(IP_POOLS, namespace="kube-system")).items)


@in_node_env
async def test_one_interface_of_each_in_one_pod(env: NodeEnv) -> None:
    await start_with_slice(env, network="red")
    assert ["10.1.4.1/16"] == await add(env, "a", RED, network="one", ifname="net1")
    assert ["10.1.4.2/16"] == await add(env, "a", RED, network="two", ifname="net2")
    await call(env, "DEL", "a", RED, network="one", ifname="net1")
    assert ["10.1.4.2/16"] == await add(env, "a", RED, network="two", ifname="net2")


@in_node_env
async def test_a_gc_of_one_releases_nothing_of_the_other(env: NodeEnv) -> None:
    """A GC names the CNI network, which differs, not the network of the addresses."""
    name = await start_with_slice(env, network="red")
    await add(env, "a", RED, network="one")
    await add(env, "b", RED, network="two")
    gc: dict[str, Any] = {"cni.dev/valid-attachments": []}
    assert 0 == (await call(env, "GC", "", RED, version="1.1.0", network="one", **gc)).exit_code
    await asyncio.sleep(1.0)
    assert ["b"] == [*(await pool_entries(env, name)).values()]


@in_node_env
async def test_the_gateway_is_not_assigned_with_exclude_gateway(env: NodeEnv) -> None:
    await start_with_slice(env, network="red")
    ipam = {**RED, "gateway": "10.1.4.1", "exclude_gateway": True}
    assert ["10.1.4.2/16"] == await add(env, "a", ipam)
    assert ["10.1.4.1/16"] == await add(env, "b", {**ipam, "exclude_gateway": False})

"""Slices and shared ranges on one node, and changes between the two."""

import asyncio
import json
from typing import Any

import pytest

from podpool.cni.protocol import PluginRequest, encode_request
from tests.agent.node_env import NodeEnv, in_node_env
from tests.agent.secondary.slice_env import IPAM, V4, add, assign_slice, call, enable_slices, failed, pool_entries

SHARED: dict[str, Any] = {"type": "whereabouts", "range": V4}
POOL = "10.1.0.0-16"


def defer_del(env: NodeEnv, container: str, ipam: dict[str, Any]) -> None:
    """Store a DEL that no agent answered."""
    stdin = json.dumps({"cniVersion": "1.0.0", "name": "net", "ipam": ipam}).encode()
    left = PluginRequest(command="DEL", container_id=container, ifname="net1", stdin=stdin)
    env.deletes.append(container, encode_request(left))


class TestChangedConfiguration:
    @pytest.mark.parametrize("later", [IPAM, {**SHARED, "range": "foo"}, {"type": "podpool"}, {"type": "host-local"}])
    def test_a_del_releases_an_address_of_a_shared_range(self, later: dict[str, Any]) -> None:
        @in_node_env
        async def body(env: NodeEnv) -> None:
            await enable_slices(env).start()
            assert ["10.1.0.1/16"] == await add(env, "a", SHARED)
            assert 0 == (await call(env, "DEL", "a", later)).exit_code
            assert {} == await pool_entries(env, POOL)

        body()

    @in_node_env
    async def test_a_del_releases_an_address_of_a_slice(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        assert 0 == (await call(env, "DEL", "a", SHARED)).exit_code
        await asyncio.sleep(1.0)
        assert {} == await pool_entries(env, name)

    @in_node_env
    async def test_a_gc_releases_both(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        await add(env, "a", SHARED)
        name = await assign_slice(env)
        await asyncio.sleep(1.0)
        await add(env, "b")
        for ipam in (IPAM, SHARED):
            valid: dict[str, Any] = {"cni.dev/valid-attachments": []}
            assert 0 == (await call(env, "GC", "", ipam, version="1.1.0", **valid)).exit_code
            await asyncio.sleep(1.0)
            assert [{}, {}] == [await pool_entries(env, each) for each in (name, POOL)]

    @in_node_env
    async def test_a_deferred_del_releases_an_address_of_a_shared_range(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        await add(env, "a", SHARED)
        await env.stop()
        defer_del(env, "a", IPAM)
        await env.start()
        assert [] == env.deletes.names()
        assert {} == await pool_entries(env, POOL)


class TestUnsealedPool:
    """A range is divided into slices while it is shared, or the reverse, and its pool is not sealed."""

    over = "10.1.0.0/28"

    @in_node_env
    async def test_a_slice_with_a_shared_address_is_not_used(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        assert ["10.1.0.1/16"] == await add(env, "a", SHARED)
        await assign_slice(env, self.over)
        await asyncio.sleep(1.0)
        message = "slice 10.1.0.0/28 is not used yet: a Pod of this node has an address of it from before"
        assert message in (await failed(env, "ADD", "b"))["msg"]
        assert 0 == (await call(env, "DEL", "a", SHARED)).exit_code
        assert ["10.1.0.1/16"] == await add(env, "b")

    @in_node_env
    async def test_a_range_with_a_slice_is_not_shared(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env), self.over)
        await env.start()
        assert ["10.1.0.1/16"] == await add(env, "a")
        error = await failed(env, "ADD", "b", SHARED)
        assert 11 == error["code"]
        assert (
            "10.1.0.0/16 is divided into node slices, according to slice 10.1.0.0/28 of this node: set node_slice_size"
            in (error["msg"])
        )
        other = {**SHARED, "network_name": "other"}
        assert ["10.1.0.1/16"] == await add(env, "b", other)

    @in_node_env
    async def test_a_repeated_add_gets_its_shared_address(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        given = await add(env, "a", SHARED)
        await assign_slice(env, self.over)
        await asyncio.sleep(1.0)
        assert given == await add(env, "a", SHARED)


@in_node_env
async def test_a_deferred_del_is_processed_before_the_next_add_of_its_sandbox(env: NodeEnv) -> None:
    """Some runtimes reuse the container ID when a sandbox restarts."""
    await enable_slices(env).start()
    given = await add(env, "a", SHARED)
    defer_del(env, "a", SHARED)
    assert given == await add(env, "a", SHARED)
    assert [] == env.deletes.names()
    await asyncio.sleep(120.0)
    assert {"1": "a"} == await pool_entries(env, POOL)


@pytest.mark.parametrize("ipam", [SHARED, IPAM, {"type": "whereabouts"}, {"type": "podpool", "range": V4}])
def test_an_agent_without_whereabouts_namespace_rejects_ranges(ipam: dict[str, Any]) -> None:
    """It must not assign an address of the node's pool instead."""

    @in_node_env
    async def body(env: NodeEnv) -> None:
        agent = await env.start()
        for command, version in (("ADD", "1.0.0"), ("CHECK", "1.0.0"), ("STATUS", "1.1.0")):
            error = await failed(env, command, "a", ipam, version=version)
            assert 7 == error["code"]
            assert "--whereabouts-namespace" in error["msg"]
        assert not agent.pool.assigned
        assert 0 == (await call(env, "DEL", "a", ipam)).exit_code
        assert await add(env, "b", {"type": "podpool"})

    body()


@pytest.mark.parametrize("args", ["", "K8S_POD_NAME=web-0", "K8S_POD_NAMESPACE=default", "nonsense"])
def test_an_add_without_a_pod_fails_with_invalid_environment(args: str) -> None:
    @in_node_env
    async def body(env: NodeEnv) -> None:
        agent = await enable_slices(env).start()
        stdin = json.dumps({"cniVersion": "1.0.0", "name": "net", "ipam": SHARED}).encode()
        request = PluginRequest(command="ADD", container_id="a", ifname="net1", args=args, stdin=stdin)
        response = await agent.handle(encode_request(request))
        assert 4 == json.loads(response[1:])["code"]

    body()

"""Slices and shared ranges on one node: what a sandbox has is found wherever it was given."""

import asyncio
import json
from typing import Any

import pytest

from podpool.cni.protocol import PluginRequest, encode_request
from tests.agent.node_env import NodeEnv, in_node_env
from tests.agent.secondary.slice_env import IPAM, V4, add, assign_slice, call, enable_slices, failed, pool_entries

SHARED: dict[str, Any] = {"type": "whereabouts", "range": V4}
POOL = "10.1.0.0-16"


def left_for_later(env: NodeEnv, container: str, ipam: dict[str, Any]) -> None:
    """A DEL that the plugin could not bring to any agent."""
    stdin = json.dumps({"cniVersion": "1.0.0", "name": "net", "ipam": ipam}).encode()
    left = PluginRequest(command="DEL", container_id=container, ifname="net1", stdin=stdin)
    env.deletes.append(container, encode_request(left))


class TestAfterTheConfigurationChanged:
    @pytest.mark.parametrize("by_then", [IPAM, {**SHARED, "range": "foo"}, {"type": "podpool"}, {"type": "host-local"}])
    def test_a_del_finds_what_a_shared_range_gave(self, by_then: dict[str, Any]) -> None:
        @in_node_env
        async def story(env: NodeEnv) -> None:
            await enable_slices(env).start()
            assert ["10.1.0.1/16"] == await add(env, "a", SHARED)
            assert 0 == (await call(env, "DEL", "a", by_then)).exit_code
            assert {} == await pool_entries(env, POOL)

        story()

    @in_node_env
    async def test_a_del_finds_what_a_slice_gave(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        assert 0 == (await call(env, "DEL", "a", SHARED)).exit_code
        await asyncio.sleep(1.0)
        assert {} == await pool_entries(env, name)

    @in_node_env
    async def test_a_gc_finds_both(self, env: NodeEnv) -> None:
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
    async def test_a_del_that_was_left_for_later_does_too(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        await add(env, "a", SHARED)
        await env.stop()
        left_for_later(env, "a", IPAM)
        await env.start()
        assert [] == env.deletes.names()
        assert {} == await pool_entries(env, POOL)


class TestOneAddress:
    """A range is cut that was shared, or shared that was cut, and nobody has marked its pool."""

    over = "10.1.0.0/28"

    @in_node_env
    async def test_what_a_shared_range_gave_no_slice_gives(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        assert ["10.1.0.1/16"] == await add(env, "a", SHARED)
        await assign_slice(env, self.over)
        await asyncio.sleep(1.0)
        told = "slice 10.1.0.0/28 gives nothing yet, a Pod of this node has an address of it from before"
        assert told in (await failed(env, "ADD", "b"))["msg"]
        assert 0 == (await call(env, "DEL", "a", SHARED)).exit_code
        assert ["10.1.0.1/16"] == await add(env, "b")

    @in_node_env
    async def test_what_a_slice_gave_no_shared_range_gives(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env), self.over)
        await env.start()
        assert ["10.1.0.1/16"] == await add(env, "a")
        error = await failed(env, "ADD", "b", SHARED)
        assert 11 == error["code"]
        assert (
            "10.1.0.0/16 is divided into node slices of nodes, says slice 10.1.0.0/28 of this node: set node_slice_size"
            in (error["msg"])
        )
        other = {**SHARED, "network_name": "other"}
        assert ["10.1.0.1/16"] == await add(env, "b", other)

    @in_node_env
    async def test_who_had_an_address_of_the_shared_range_has_it_again(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        given = await add(env, "a", SHARED)
        await assign_slice(env, self.over)
        await asyncio.sleep(1.0)
        assert given == await add(env, "a", SHARED)


@in_node_env
async def test_a_del_that_was_left_for_later_takes_nothing_from_a_sandbox_that_was_added_since(env: NodeEnv) -> None:
    """Some runtimes call a sandbox the same when it starts again."""
    await enable_slices(env).start()
    given = await add(env, "a", SHARED)
    left_for_later(env, "a", SHARED)
    assert given == await add(env, "a", SHARED)
    assert [] == env.deletes.names()
    await asyncio.sleep(120.0)
    assert {"1": "a"} == await pool_entries(env, POOL)


@pytest.mark.parametrize("ipam", [SHARED, IPAM, {"type": "whereabouts"}, {"type": "podpool", "range": V4}])
def test_an_agent_that_serves_no_ranges_gives_nothing_else_instead(ipam: dict[str, Any]) -> None:
    """A Pod's network must not get an address of the node's own pool because its agent was told too little."""

    @in_node_env
    async def story(env: NodeEnv) -> None:
        agent = await env.start()
        for command, version in (("ADD", "1.0.0"), ("CHECK", "1.0.0"), ("STATUS", "1.1.0")):
            error = await failed(env, command, "a", ipam, version=version)
            assert 7 == error["code"]
            assert "--whereabouts-namespace" in error["msg"]
        assert not agent.pool.holdings
        assert 0 == (await call(env, "DEL", "a", ipam)).exit_code
        assert await add(env, "b", {"type": "podpool"})

    story()


@pytest.mark.parametrize("args", ["", "K8S_POD_NAME=web-0", "K8S_POD_NAMESPACE=default", "nonsense"])
def test_who_does_not_tell_the_pod_is_told_that_the_environment_is_wrong(args: str) -> None:
    @in_node_env
    async def story(env: NodeEnv) -> None:
        agent = await enable_slices(env).start()
        stdin = json.dumps({"cniVersion": "1.0.0", "name": "net", "ipam": SHARED}).encode()
        asked = PluginRequest(command="ADD", container_id="a", ifname="net1", args=args, stdin=stdin)
        answer = await agent.handle(encode_request(asked))
        assert 4 == json.loads(answer[1:])["code"]

    story()

"""Slices and shared ranges on one node: what a sandbox has is found wherever it was given."""

import asyncio
import json
from typing import Any

import pytest

from podpool.cni.protocol import PluginRequest, encode_request
from tests.agent.secondary.slice_world import IPAM, V4, add, call, offer, refused, shown, with_slices
from tests.agent.worlds import World, in_world

SHARED: dict[str, Any] = {"type": "whereabouts", "range": V4}
POOL = "10.1.0.0-16"


def left_for_later(world: World, container: str, ipam: dict[str, Any]) -> None:
    """A DEL that the plugin could not bring to any agent."""
    stdin = json.dumps({"cniVersion": "1.0.0", "name": "net", "ipam": ipam}).encode()
    left = PluginRequest(command="DEL", container_id=container, ifname="net1", stdin=stdin)
    world.deletes.append(container, encode_request(left))


class TestAfterTheConfigurationChanged:
    @pytest.mark.parametrize("by_then", [IPAM, {**SHARED, "range": "foo"}, {"type": "podpool"}, {"type": "host-local"}])
    def test_a_del_finds_what_a_shared_range_gave(self, by_then: dict[str, Any]) -> None:
        @in_world
        async def story(world: World) -> None:
            await with_slices(world).start()
            assert ["10.1.0.1/16"] == await add(world, "a", SHARED)
            assert 0 == (await call(world, "DEL", "a", by_then)).exit_code
            assert {} == await shown(world, POOL)

        story()

    @in_world
    async def test_a_del_finds_what_a_slice_gave(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        assert 0 == (await call(world, "DEL", "a", SHARED)).exit_code
        await asyncio.sleep(1.0)
        assert {} == await shown(world, name)

    @in_world
    async def test_a_gc_finds_both(self, world: World) -> None:
        await with_slices(world).start()
        await add(world, "a", SHARED)
        name = await offer(world)
        await asyncio.sleep(1.0)
        await add(world, "b")
        for ipam in (IPAM, SHARED):
            valid: dict[str, Any] = {"cni.dev/valid-attachments": []}
            assert 0 == (await call(world, "GC", "", ipam, version="1.1.0", **valid)).exit_code
            await asyncio.sleep(1.0)
            assert [{}, {}] == [await shown(world, each) for each in (name, POOL)]

    @in_world
    async def test_a_del_that_was_left_for_later_does_too(self, world: World) -> None:
        await with_slices(world).start()
        await add(world, "a", SHARED)
        await world.stop()
        left_for_later(world, "a", IPAM)
        await world.start()
        assert [] == world.deletes.names()
        assert {} == await shown(world, POOL)


class TestOneAddress:
    """A range is cut that was shared, or shared that was cut, and nobody has marked its pool."""

    over = "10.1.0.0/28"

    @in_world
    async def test_what_a_shared_range_gave_no_slice_gives(self, world: World) -> None:
        await with_slices(world).start()
        assert ["10.1.0.1/16"] == await add(world, "a", SHARED)
        await offer(world, self.over)
        await asyncio.sleep(1.0)
        told = "slice 10.1.0.0/28 gives nothing yet, a Pod of this node has an address of it from before"
        assert told in (await refused(world, "ADD", "b"))["msg"]
        assert 0 == (await call(world, "DEL", "a", SHARED)).exit_code
        assert ["10.1.0.1/16"] == await add(world, "b")

    @in_world
    async def test_what_a_slice_gave_no_shared_range_gives(self, world: World) -> None:
        await offer(with_slices(world), self.over)
        await world.start()
        assert ["10.1.0.1/16"] == await add(world, "a")
        error = await refused(world, "ADD", "b", SHARED)
        assert 11 == error["code"]
        assert (
            "10.1.0.0/16 is cut into slices of nodes, says slice 10.1.0.0/28 of this node: set node_slice_size"
            in (error["msg"])
        )
        other = {**SHARED, "network_name": "other"}
        assert ["10.1.0.1/16"] == await add(world, "b", other)

    @in_world
    async def test_who_had_an_address_of_the_shared_range_has_it_again(self, world: World) -> None:
        await with_slices(world).start()
        given = await add(world, "a", SHARED)
        await offer(world, self.over)
        await asyncio.sleep(1.0)
        assert given == await add(world, "a", SHARED)


@in_world
async def test_a_del_that_was_left_for_later_takes_nothing_from_a_sandbox_that_was_added_since(world: World) -> None:
    """Some runtimes call a sandbox the same when it starts again."""
    await with_slices(world).start()
    given = await add(world, "a", SHARED)
    left_for_later(world, "a", SHARED)
    assert given == await add(world, "a", SHARED)
    assert [] == world.deletes.names()
    await asyncio.sleep(120.0)
    assert {"1": "a"} == await shown(world, POOL)


@pytest.mark.parametrize("ipam", [SHARED, IPAM, {"type": "whereabouts"}, {"type": "podpool", "range": V4}])
def test_an_agent_that_serves_no_ranges_gives_nothing_else_instead(ipam: dict[str, Any]) -> None:
    """A Pod's network must not get an address of the node's own pool because its agent was told too little."""

    @in_world
    async def story(world: World) -> None:
        agent = await world.start()
        for command, version in (("ADD", "1.0.0"), ("CHECK", "1.0.0"), ("STATUS", "1.1.0")):
            error = await refused(world, command, "a", ipam, version=version)
            assert 7 == error["code"]
            assert "--whereabouts-namespace" in error["msg"]
        assert not agent.pool.holdings
        assert 0 == (await call(world, "DEL", "a", ipam)).exit_code
        assert await add(world, "b", {"type": "podpool"})

    story()


@pytest.mark.parametrize("args", ["", "K8S_POD_NAME=web-0", "K8S_POD_NAMESPACE=default", "nonsense"])
def test_who_does_not_tell_the_pod_is_told_that_the_environment_is_wrong(args: str) -> None:
    @in_world
    async def story(world: World) -> None:
        agent = await with_slices(world).start()
        stdin = json.dumps({"cniVersion": "1.0.0", "name": "net", "ipam": SHARED}).encode()
        asked = PluginRequest(command="ADD", container_id="a", ifname="net1", args=args, stdin=stdin)
        answer = await agent.handle(encode_request(asked))
        assert 4 == json.loads(answer[1:])["code"]

    story()

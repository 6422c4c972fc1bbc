"""CHECK, GC and STATUS, as a runtime sees them."""

import asyncio
import json
from typing import Any

import pytest

from podpool.cni.protocol import Answer
from podpool.core.settings import Settings
from tests.agent.worlds import World, in_world

NEWEST = "1.1.0"


def code(answer: Answer) -> int:
    return int(json.loads(answer.stdout)["code"]) if answer.exit_code else 0


def result(address: str) -> dict[str, Any]:
    return {"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": address, "gateway": "10.0.0.1"}]}}


def attachments(*sandboxes: str) -> dict[str, Any]:
    return {"cni.dev/valid-attachments": [{"containerID": each, "ifname": "eth0"} for each in sandboxes]}


class TestCheck:
    @in_world
    async def test_a_sandbox_that_has_what_it_was_given_is_well(self, world: World) -> None:
        await world.start()
        address = await world.add("a")
        for version in ("0.4.0", "1.0.0", "1.1.0"):
            answer = await world.call("CHECK", "a", version=version, **result(address))
            assert (0, b"") == (answer.exit_code, answer.stdout)

    @in_world
    async def test_one_without_an_address_is_not(self, world: World) -> None:
        await world.start()
        assert 100 == code(await world.call("CHECK", "a", **result("10.0.1.1/16")))

    @in_world
    async def test_nor_one_whose_runtime_knows_another_address(self, world: World) -> None:
        await world.start()
        await world.add("a")
        answer = await world.call("CHECK", "a", **result("10.0.9.9/16"))
        assert 100 == code(answer)
        assert "10.0.9.9" in json.loads(answer.stdout)["msg"]

    @in_world
    async def test_before_its_version_it_does_not_exist(self, world: World) -> None:
        await world.start()
        await world.add("a")
        for version in ("0.1.0", "0.2.0", "0.3.0", "0.3.1"):
            assert 1 == code(await world.call("CHECK", "a", version=version))

    @in_world
    async def test_a_result_that_cannot_be_read_is_said(self, world: World) -> None:
        await world.start()
        await world.add("a")
        assert 6 == code(await world.call("CHECK", "a", prevResult={"ips": 7}))


class TestGarbage:
    @in_world
    async def test_what_the_runtime_no_longer_lists_rests(self, world: World) -> None:
        agent = await world.start()
        kept, gone = await world.add("a"), await world.add("b")
        assert 0 == (await world.call("GC", "", version=NEWEST, **attachments("a"))).exit_code
        assert [kept] == [f"{each.grant.address}/16" for each in agent.pool.holdings.values()]
        assert 1 == agent.pool.resting(now=world.clock.boot(), rest=30.0)
        assert gone not in {await world.add(f"n{n}") for n in range(10)}
        assert any("b is not listed" in sentence for sentence in world.told)

    @in_world
    async def test_other_networks_are_left_alone(self, world: World) -> None:
        agent = await world.start()
        await world.call("ADD", "a", network="one")
        await world.call("ADD", "b", network="two")
        await world.call("GC", "", version=NEWEST, network="two", **attachments())
        assert ["a"] == [each.owner.container_id for each in agent.pool.holdings.values()]

    @in_world
    async def test_the_network_is_remembered_over_a_restart(self, world: World) -> None:
        await world.start()
        await world.call("ADD", "a", network="one")
        await world.kill()
        agent = await world.start()
        await world.call("GC", "", version=NEWEST, network="two", **attachments())
        assert 1 == len(agent.pool.holdings)
        await world.call("GC", "", version=NEWEST, network="one", **attachments())
        assert not agent.pool.holdings

    @in_world
    async def test_without_a_list_nothing_is_freed(self, world: World) -> None:
        agent = await world.start()
        await world.add("a")
        assert 7 == code(await world.call("GC", "", version=NEWEST))
        assert agent.pool.holdings

    @in_world
    async def test_before_its_version_it_does_not_exist(self, world: World) -> None:
        await world.start()
        assert 1 == code(await world.call("GC", "", version="1.0.0", **attachments()))


class TestStatus:
    @in_world
    async def test_it_is_well_when_addresses_could_be_given(self, world: World) -> None:
        await world.start()
        assert 0 == (await world.call("STATUS", "", version=NEWEST)).exit_code

    @in_world
    async def test_a_full_subnet_is_no_reason_to_say_no(self, world: World) -> None:
        """A runtime that is told no makes its node NotReady, and its Pods are evicted."""
        world.capacity = 1
        await world.start()
        await world.add("a")
        assert 11 == (await world.refused("b"))["code"]
        assert 0 == (await world.call("STATUS", "", version=NEWEST)).exit_code

    @in_world
    async def test_a_fenced_agent_says_no_and_why(self, world: World) -> None:
        await world.start()
        world.road.cut = True
        await asyncio.sleep(Settings().fence + 1)
        answer = await world.call("STATUS", "", version=NEWEST)
        assert 50 == code(answer)
        assert "confirm its Node" in json.loads(answer.stdout)["msg"]

    @in_world
    async def test_without_a_container_it_says_so(self, world: World) -> None:
        world.road.cut = True
        agent = await world.start()
        assert "no network container" in json.loads((await world.call("STATUS", "", version=NEWEST)).stdout)["msg"]
        assert "no network container" in (agent.missing() or "")
        assert not agent.able.is_set()
        world.road.cut = False
        await agent.able.wait()

    @pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
    def test_before_its_version_it_does_not_exist(self, version: str) -> None:
        @in_world
        async def asked(world: World) -> None:
            await world.start()
            assert 1 == code(await world.call("STATUS", "", version=version))

        asked()

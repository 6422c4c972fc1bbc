"""A node with several containers, and containers of several families: a sandbox gets one address of each."""

import asyncio
import json
from typing import Any

from podpool.agent.agent import Agent
from podpool.api.azure import AGENT_ANNOTATION
from tests.agent.test_scaling import requests
from tests.agent.worlds import SETTLED, World, in_world


def beside(version: int, grants: dict[str, str], *, container: str = "nc-six") -> dict[str, Any]:
    return {
        "id": container,
        "primaryIP": "fd00::4",
        "subnetName": "six",
        "subnetAddressSpace": "fd00::/64",
        "defaultGateway": "fd00::1",
        "version": version,
        "ipAssignments": [{"name": name, "ip": address} for name, address in grants.items()],
    }


FOUR = {f"four-{n}": f"10.0.1.{n}" for n in range(1, 9)}
SIX = {f"six-{n}": f"fd00::1:{n}" for n in range(1, 9)}


async def addresses(world: World, sandbox: str) -> list[str]:
    answer = await world.call("ADD", sandbox)
    assert 0 == answer.exit_code, answer.stdout
    return [each["address"] for each in json.loads(answer.stdout)["ips"]]


async def started(world: World, grants: dict[str, str] = FOUR, **others: Any) -> Agent:  # noqa: ANN401  passed on
    """An agent that knows its container, which is then given all of this."""
    world.controller_works = False
    agent = await world.start()
    await world.write_status(version=2, grants=grants, **others)
    await asyncio.sleep(SETTLED)
    return agent


async def with_two(world: World) -> Agent:
    return await started(world, beside=[beside(1, SIX)])


@in_world
async def test_one_of_each_container(world: World) -> None:
    agent = await with_two(world)
    answer = json.loads((await world.call("ADD", "a")).stdout)
    assert ["10.0.1.1/16", "fd00::1:1/64"] == [each["address"] for each in answer["ips"]]
    assert ["10.0.0.1", "fd00::1"] == [each["gateway"] for each in answer["ips"]]
    assert [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}] == answer["routes"]
    assert 2 == len(agent.pool.holdings)
    assert ["10.0.1.1/16", "fd00::1:1/64"] == await addresses(world, "a")
    assert 0 == (await world.call("DEL", "a")).exit_code
    assert not agent.pool.holdings


@in_world
async def test_one_of_each_family_of_one_container(world: World) -> None:
    told = {"subnetAddressSpaceV6": "fd00::/64", "defaultGatewayV6": "fd00::1"}
    await started(world, {**FOUR, **SIX}, **told)
    assert ["10.0.1.1/16", "fd00::1:1/64"] == await addresses(world, "a")
    old = json.loads((await world.call("ADD", "a", version="0.2.0")).stdout)
    assert ("10.0.1.1/16", "fd00::1:1/64") == (old["ip4"]["ip"], old["ip6"]["ip"])


@in_world
async def test_all_or_nothing(world: World) -> None:
    """An address of one container alone is given to nobody: the sandbox waits for both."""
    agent = await started(world, beside=[beside(1, {})])
    waiting = asyncio.ensure_future(addresses(world, "a"))
    await asyncio.sleep(SETTLED)
    assert not agent.pool.holdings
    await world.write_status(version=2, grants=FOUR, beside=[beside(2, SIX)])
    assert ["10.0.1.1/16", "fd00::1:1/64"] == await waiting


@in_world
async def test_both_survive_a_restart_and_a_snapshot(world: World) -> None:
    await with_two(world)
    given = await addresses(world, "a")
    await world.kill()
    agent = await world.start()
    assert given == await addresses(world, "a")
    again = type(agent.pool)()
    again.apply(agent.pool.snapshot())
    assert agent.pool.snapshot() == again.snapshot()
    assert agent.pool.lanes == again.lanes


@in_world
async def test_a_pod_counts_once_for_each_and_names_come_from_both(world: World) -> None:
    agent = await with_two(world)
    await world.bind(*(f"pod-{n}" for n in range(5)))
    await asyncio.sleep(SETTLED)
    assert 30 == requests(world)[-1]  # two primaries; ten addresses for five Pods, and half a batch
    told = json.loads((await world.config()).metadata.annotations[AGENT_ANNOTATION])
    assert 10 == told["demand"]
    await world.remove(*(f"pod-{n}" for n in range(5)))
    await world.scale_by(batch=4, buffer="0.5")
    await asyncio.sleep(100.0)
    named = sorted(each.lane for each in agent.pool.named.values())
    assert named
    assert len(named) == 2 * named.count(named[0])


@in_world
async def test_versions_are_those_of_each_container(world: World) -> None:
    agent = await with_two(world)
    await world.write_status(version=2, grants=FOUR, beside=[beside(0, {})])
    await asyncio.sleep(SETTLED)
    assert 16 == agent.pool.listed


@in_world
async def test_a_container_that_goes_takes_its_free_addresses_along(world: World) -> None:
    agent = await with_two(world)
    given = await addresses(world, "a")
    await world.write_status(version=2, grants=FOUR)
    await asyncio.sleep(SETTLED)
    assert given == await addresses(world, "a"), "who asks again is answered as before"
    assert 2 == len([each for each in agent.pool.holdings.values() if each.owner.container_id == "a"])
    assert 8 == agent.pool.listed
    assert ["10.0.1.2/16"] == await addresses(world, "b")
    await world.call("DEL", "a")
    assert ["b"] == [each.owner.container_id for each in agent.pool.holdings.values()]


@in_world
async def test_a_container_whose_addresses_are_not_listed_is_not_ours(world: World) -> None:
    await started(world, beside=[{**beside(1, {}), "assignmentMode": "static"}])
    assert ["10.0.1.1/16"] == await addresses(world, "a")


@in_world
async def test_a_bad_address_is_reported_and_the_rest_is_used(world: World) -> None:
    agent = await started(world, {"bad": "10.0.0.999", **FOUR})
    assert ["10.0.1.1/16"] == await addresses(world, "a")
    assert any("bad" in sentence and "left out" in sentence for sentence in world.told)
    assert 1 == agent.picture().left_out


@in_world
async def test_an_address_of_a_further_cidr_is_used_without_neighbours(world: World) -> None:
    """A subnet that has grown by one shows only its first."""
    await started(world, {"further": "10.9.0.7", "other": "fd00::7"})
    answer = json.loads((await world.call("ADD", "a")).stdout)
    assert [("10.9.0.7/32", "10.0.0.1")] == [(each["address"], each["gateway"]) for each in answer["ips"]]
    assert any("grant other" in sentence and "no IPv6 addresses" in sentence for sentence in world.told)


@in_world
async def test_an_address_in_use_that_the_status_drops_is_kept_reported_and_given_to_nobody_after(world: World) -> None:
    agent = await with_two(world)
    given = await addresses(world, "a")
    less = {name: address for name, address in FOUR.items() if name != "four-1"}
    await world.write_status(version=3, grants=less, beside=[beside(1, SIX)])
    await asyncio.sleep(SETTLED)
    assert given == await addresses(world, "a")
    assert any("dropped 10.0.1.1" in sentence for sentence in world.told)
    assert 1 == agent.picture().dropped
    await world.call("DEL", "a")
    await asyncio.sleep(100.0)
    later = [await addresses(world, f"n{n}") for n in range(7)]
    assert "10.0.1.1/16" not in {each for pair in later for each in pair}

"""A node with several NCs, and NCs of two families: a sandbox gets one address of each."""

import asyncio
import json
from typing import Any

from podpool.agent.agent import Agent
from podpool.api.azure import AGENT_ANNOTATION
from tests.agent.node_env import SETTLE_TIME, NodeEnv, in_node_env
from tests.agent.test_pool_monitor import requests


def additional_nc(version: int, grants: dict[str, str], *, nc: str = "nc-six") -> dict[str, Any]:
    return {
        "id": nc,
        "primaryIP": "fd00::4",
        "subnetName": "six",
        "subnetAddressSpace": "fd00::/64",
        "defaultGateway": "fd00::1",
        "version": version,
        "ipAssignments": [{"name": name, "ip": address} for name, address in grants.items()],
    }


FOUR = {f"four-{n}": f"10.0.1.{n}" for n in range(1, 9)}
SIX = {f"six-{n}": f"fd00::1:{n}" for n in range(1, 9)}


async def addresses(env: NodeEnv, sandbox: str) -> list[str]:
    answer = await env.call("ADD", sandbox)
    assert 0 == answer.exit_code, answer.stdout
    return [each["address"] for each in json.loads(answer.stdout)["ips"]]


async def started(env: NodeEnv, grants: dict[str, str] = FOUR, **others: Any) -> Agent:  # noqa: ANN401  passed on
    """Start an agent, then grant all of this to its NC."""
    env.controller_works = False
    agent = await env.start()
    await env.write_status(version=2, grants=grants, **others)
    await asyncio.sleep(SETTLE_TIME)
    return agent


async def with_two(env: NodeEnv) -> Agent:
    return await started(env, additional_ncs=[additional_nc(1, SIX)])


@in_node_env
async def test_one_address_of_each_nc(env: NodeEnv) -> None:
    agent = await with_two(env)
    answer = json.loads((await env.call("ADD", "a")).stdout)
    assert ["10.0.1.1/16", "fd00::1:1/64"] == [each["address"] for each in answer["ips"]]
    assert ["10.0.0.1", "fd00::1"] == [each["gateway"] for each in answer["ips"]]
    assert [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}] == answer["routes"]
    assert 2 == len(agent.pool.assigned)
    assert ["10.0.1.1/16", "fd00::1:1/64"] == await addresses(env, "a")
    assert 0 == (await env.call("DEL", "a")).exit_code
    assert not agent.pool.assigned


@in_node_env
async def test_one_address_of_each_family_of_one_nc(env: NodeEnv) -> None:
    dual_stack = {"subnetAddressSpaceV6": "fd00::/64", "defaultGatewayV6": "fd00::1"}
    await started(env, {**FOUR, **SIX}, **dual_stack)
    assert ["10.0.1.1/16", "fd00::1:1/64"] == await addresses(env, "a")
    old = json.loads((await env.call("ADD", "a", version="0.2.0")).stdout)
    assert ("10.0.1.1/16", "fd00::1:1/64") == (old["ip4"]["ip"], old["ip6"]["ip"])


@in_node_env
async def test_all_or_nothing(env: NodeEnv) -> None:
    """An address of one NC alone is not assigned: the sandbox waits for both."""
    agent = await started(env, additional_ncs=[additional_nc(1, {})])
    waiting = asyncio.ensure_future(addresses(env, "a"))
    await asyncio.sleep(SETTLE_TIME)
    assert not agent.pool.assigned
    await env.write_status(version=2, grants=FOUR, additional_ncs=[additional_nc(2, SIX)])
    assert ["10.0.1.1/16", "fd00::1:1/64"] == await waiting


@in_node_env
async def test_both_survive_a_restart_and_a_snapshot(env: NodeEnv) -> None:
    await with_two(env)
    given = await addresses(env, "a")
    await env.kill()
    agent = await env.start()
    assert given == await addresses(env, "a")
    again = type(agent.pool)()
    again.apply(agent.pool.snapshot())
    assert agent.pool.snapshot() == again.snapshot()
    assert agent.pool.nc_families == again.nc_families


@in_node_env
async def test_a_pod_counts_once_for_each_nc_and_both_release(env: NodeEnv) -> None:
    agent = await with_two(env)
    await env.bind(*(f"pod-{n}" for n in range(5)))
    await asyncio.sleep(SETTLE_TIME)
    assert 30 == requests(env)[-1]  # two primaries; ten addresses for five Pods, and half a batch
    report = json.loads((await env.nnc()).metadata.annotations[AGENT_ANNOTATION])
    assert 10 == report["demand"]
    await env.remove(*(f"pod-{n}" for n in range(5)))
    await env.scale_by(batch=4, buffer="0.5")
    await asyncio.sleep(100.0)
    released = sorted(each.nc_family for each in agent.pool.pending_release.values())
    assert released
    assert len(released) == 2 * released.count(released[0])


@in_node_env
async def test_each_nc_has_its_own_version(env: NodeEnv) -> None:
    agent = await with_two(env)
    await env.write_status(version=2, grants=FOUR, additional_ncs=[additional_nc(0, {})])
    await asyncio.sleep(SETTLE_TIME)
    assert 16 == agent.pool.granted


@in_node_env
async def test_a_removed_nc_takes_its_free_addresses_along(env: NodeEnv) -> None:
    agent = await with_two(env)
    given = await addresses(env, "a")
    await env.write_status(version=2, grants=FOUR)
    await asyncio.sleep(SETTLE_TIME)
    assert given == await addresses(env, "a"), "a repeated ADD has the same result"
    assert 2 == len([each for each in agent.pool.assigned.values() if each.attachment.container_id == "a"])
    assert 8 == agent.pool.granted
    assert ["10.0.1.2/16"] == await addresses(env, "b")
    await env.call("DEL", "a")
    assert ["b"] == [each.attachment.container_id for each in agent.pool.assigned.values()]


@in_node_env
async def test_an_nc_whose_addresses_are_not_listed_is_ignored(env: NodeEnv) -> None:
    await started(env, additional_ncs=[{**additional_nc(1, {}), "assignmentMode": "static"}])
    assert ["10.0.1.1/16"] == await addresses(env, "a")


@in_node_env
async def test_an_invalid_address_is_logged_and_the_others_are_used(env: NodeEnv) -> None:
    agent = await started(env, {"bad": "10.0.0.999", **FOUR})
    assert ["10.0.1.1/16"] == await addresses(env, "a")
    assert any(
        "NNC status has an unusable address, no Pod gets it; correct what writes it" in line and "grant=bad" in line
        for line in env.warnings
    )
    assert 1 == agent.metrics_snapshot().unusable


@in_node_env
async def test_an_address_of_an_additional_cidr_is_on_link_with_no_other(env: NodeEnv) -> None:
    """The status shows only the first CIDR of a subnet that has grown by another."""
    await started(env, {"further": "10.9.0.7", "other": "fd00::7"})
    answer = json.loads((await env.call("ADD", "a")).stdout)
    assert [("10.9.0.7/32", "10.0.0.1")] == [(each["address"], each["gateway"]) for each in answer["ips"]]
    assert any("grant=other" in line and "no IPv6 addresses" in line for line in env.warnings)


@in_node_env
async def test_a_revoked_address_is_kept_logged_and_not_assigned_again(env: NodeEnv) -> None:
    agent = await with_two(env)
    given = await addresses(env, "a")
    less = {name: address for name, address in FOUR.items() if name != "four-1"}
    await env.write_status(version=3, grants=less, additional_ncs=[additional_nc(1, SIX)])
    await asyncio.sleep(SETTLE_TIME)
    assert given == await addresses(env, "a")
    assert any("no longer lists" in line and "address=10.0.1.1" in line for line in env.warnings)
    assert 1 == agent.metrics_snapshot().revoked
    await env.call("DEL", "a")
    await asyncio.sleep(100.0)
    later = [await addresses(env, f"n{n}") for n in range(7)]
    assert "10.0.1.1/16" not in {each for pair in later for each in pair}

"""The kernel answers ARP and NDP for the node's Pods, and for no other address, whatever fails."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable

from podpool.agent.deps import UplinkFailed
from podpool.agent.neighbor_proxy import ANNOUNCEMENTS, COMPARE_INTERVAL
from podpool.core.two_observations import OBSERVATION_INTERVAL
from tests.agent.disks import MemoryDisk
from tests.agent.node_env import SETTLE_TIME, NodeEnv, in_node_env

NETWORK = "podpool"


class FakeUplink:
    """The kernel's entries, which outlive an agent."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self.announced: Counter[str] = Counter()
        self.error = ""

    def prepare(self) -> None:
        if self.error:
            raise UplinkFailed(self.error)

    def entries(self) -> frozenset[str]:
        return frozenset(self.addresses)

    def add(self, address: str) -> None:
        self.prepare()
        self.addresses.add(address)

    def remove(self, address: str) -> None:
        self.prepare()
        self.addresses.discard(address)

    def announce(self, addresses: Iterable[str]) -> None:
        self.prepare()
        self.announced.update(addresses)


async def started(env: NodeEnv) -> FakeUplink:
    uplink = FakeUplink()
    env.deps["uplink"], env.options["routed_network"] = uplink, NETWORK
    await env.start()
    return uplink


async def add(env: NodeEnv, sandbox: str, *, network: str = NETWORK) -> str:
    answer = await env.call("ADD", sandbox, network=network)
    assert 0 == answer.exit_code, answer.stdout
    return str(json.loads(answer.stdout)["ips"][0]["address"]).partition("/")[0]


@in_node_env
async def test_an_entry_exists_from_the_answer_of_add_to_del(env: NodeEnv) -> None:
    uplink = await started(env)
    address = await add(env, "a")
    assert {address} == uplink.addresses
    assert env.agent
    assert 1 == env.agent.metrics_snapshot().proxied
    await env.call("DEL", "a", network=NETWORK)
    assert set() == uplink.addresses


@in_node_env
async def test_each_address_is_announced_three_times_also_in_a_burst(env: NodeEnv) -> None:
    uplink = await started(env)
    addresses = await asyncio.gather(*(add(env, f"pod-{number}") for number in range(8)))
    await asyncio.sleep(SETTLE_TIME)
    assert dict.fromkeys(addresses, ANNOUNCEMENTS) == uplink.announced


@in_node_env
async def test_pods_of_other_networks_answer_themselves(env: NodeEnv) -> None:
    """A secondary network of the pool may be on macvlan."""
    uplink = await started(env)
    await add(env, "a", network="other")
    await asyncio.sleep(COMPARE_INTERVAL * 2)
    assert set() == uplink.addresses


@in_node_env
async def test_an_add_without_an_entry_fails_and_is_repeated(env: NodeEnv) -> None:
    """A Pod that started without it would be unreachable."""
    uplink = await started(env)
    uplink.error = "Operation not permitted"
    error = json.loads((await env.call("ADD", "a", network=NETWORK)).stdout)
    assert (11, "the Pod would be unreachable: Operation not permitted") == (error["code"], error["msg"])
    assert env.agent
    (failure,) = [each.failure for each in env.agent.health_checks() if each.name == "uplink"]
    assert "Operation not permitted" == failure
    assert env.agent.metrics_snapshot().proxy_failures
    uplink.error = ""
    assert {await add(env, "a")} == uplink.addresses
    await asyncio.sleep(COMPARE_INTERVAL * 2)
    assert all(not each.failure for each in env.agent.health_checks())


@in_node_env
async def test_an_entry_that_cannot_be_removed_is_removed_later(env: NodeEnv) -> None:
    uplink = await started(env)
    await add(env, "a")
    uplink.error = "no such device"
    assert 0 == (await env.call("DEL", "a", network=NETWORK)).exit_code
    await asyncio.sleep(COMPARE_INTERVAL * 3)
    assert 1 == sum("no such device" in each for each in env.warnings)
    uplink.error = ""
    await asyncio.sleep(COMPARE_INTERVAL * 2)
    assert set() == uplink.addresses


@in_node_env
async def test_missing_entries_are_added_and_announced_and_stale_ones_removed(env: NodeEnv) -> None:
    uplink = await started(env)
    address = await add(env, "a")
    await asyncio.sleep(SETTLE_TIME)
    await env.kill()
    uplink.addresses = {"10.0.1.200"}
    uplink.announced.clear()
    await env.start()
    assert {address} == uplink.addresses
    assert {address: ANNOUNCEMENTS} == uplink.announced


@in_node_env
async def test_a_restart_changes_and_announces_nothing(env: NodeEnv) -> None:
    uplink = await started(env)
    address = await add(env, "a")
    await asyncio.sleep(SETTLE_TIME)
    uplink.announced.clear()
    await env.kill()
    assert {address} == uplink.addresses
    await env.start()
    assert ({address}, Counter()) == (uplink.addresses, uplink.announced)


@in_node_env
async def test_after_a_loss_of_the_journal_entries_stay_until_no_pod_can_use_them(env: NodeEnv) -> None:
    uplink = await started(env)
    address = await add(env, "a")
    await asyncio.sleep(SETTLE_TIME)
    await env.kill()
    env.disk = MemoryDisk()
    await env.start()
    await asyncio.sleep(COMPARE_INTERVAL * 2)
    assert {address} == uplink.addresses
    await asyncio.sleep(OBSERVATION_INTERVAL * 4)
    assert set() == uplink.addresses

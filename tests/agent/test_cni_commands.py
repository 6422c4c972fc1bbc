"""CHECK, GC and STATUS, as a runtime sees them."""

import asyncio
import json
from typing import Any

import pytest

from podpool.cni.protocol import PluginResponse
from podpool.core.settings import Settings
from tests.agent.node_env import NodeEnv, in_node_env

NEWEST = "1.1.0"


def code(answer: PluginResponse) -> int:
    return int(json.loads(answer.stdout)["code"]) if answer.exit_code else 0


def result(address: str) -> dict[str, Any]:
    return {"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": address, "gateway": "10.0.0.1"}]}}


def attachments(*sandboxes: str) -> dict[str, Any]:
    return {"cni.dev/valid-attachments": [{"containerID": each, "ifname": "eth0"} for each in sandboxes]}


class TestCheck:
    @in_node_env
    async def test_a_sandbox_with_its_address_passes(self, env: NodeEnv) -> None:
        await env.start()
        address = await env.add("a")
        for version in ("0.4.0", "1.0.0", "1.1.0"):
            answer = await env.call("CHECK", "a", version=version, **result(address))
            assert (0, b"") == (answer.exit_code, answer.stdout)

    @in_node_env
    async def test_one_without_an_address_fails(self, env: NodeEnv) -> None:
        await env.start()
        assert 100 == code(await env.call("CHECK", "a", **result("10.0.1.1/16")))

    @in_node_env
    async def test_one_whose_prev_result_has_another_address_fails(self, env: NodeEnv) -> None:
        await env.start()
        await env.add("a")
        answer = await env.call("CHECK", "a", **result("10.0.9.9/16"))
        assert 100 == code(answer)
        assert "10.0.9.9" in json.loads(answer.stdout)["msg"]

    @in_node_env
    async def test_before_its_cni_version_it_does_not_exist(self, env: NodeEnv) -> None:
        await env.start()
        await env.add("a")
        for version in ("0.1.0", "0.2.0", "0.3.0", "0.3.1"):
            assert 1 == code(await env.call("CHECK", "a", version=version))

    @in_node_env
    async def test_an_invalid_prev_result_is_a_decoding_failure(self, env: NodeEnv) -> None:
        await env.start()
        await env.add("a")
        assert 6 == code(await env.call("CHECK", "a", prevResult={"ips": 7}))


class TestEmptyVersion:
    """libcni writes the key also when a configuration does not have it: an empty version is the oldest."""

    @in_node_env
    async def test_add_and_del_are_served_in_the_form_of_the_oldest(self, env: NodeEnv) -> None:
        await env.start()
        answer = json.loads((await env.call("ADD", "a", version="")).stdout)
        assert "0.1.0" == answer["cniVersion"]
        assert answer["ip4"]["ip"].endswith("/16")
        assert "10.0.0.1" == answer["ip4"]["gateway"]
        assert 0 == (await env.call("DEL", "a", version="")).exit_code
        assert 0 == (await env.call("VERSION", "", version="")).exit_code

    @in_node_env
    async def test_later_commands_are_refused_with_the_version_in_the_error(self, env: NodeEnv) -> None:
        await env.start()
        for command in ("CHECK", "GC", "STATUS"):
            error = json.loads((await env.call(command, "a", version="")).stdout)
            assert (1, "0.1.0") == (error["code"], error["cniVersion"])
            assert "has version 0.1.0" in error["msg"]

    @in_node_env
    async def test_other_errors_are_in_the_oldest_version_too(self, env: NodeEnv) -> None:
        await env.start()
        error = json.loads((await env.call("ADD", "", version="")).stdout)
        assert (4, "0.1.0") == (error["code"], error["cniVersion"])


class TestGC:
    @in_node_env
    async def test_null_attachments_are_an_empty_list(self, env: NodeEnv) -> None:
        """Go writes a list without elements as null."""
        agent = await env.start()
        await env.add("a")
        attached: dict[str, Any] = {"cni.dev/valid-attachments": None}
        answer = await env.call("GC", "", version=NEWEST, **attached)
        assert 0 == answer.exit_code
        assert not agent.pool.assigned

    @in_node_env
    async def test_addresses_that_the_runtime_no_longer_lists_cool_down(self, env: NodeEnv) -> None:
        agent = await env.start()
        kept, gone = await env.add("a"), await env.add("b")
        assert 0 == (await env.call("GC", "", version=NEWEST, **attachments("a"))).exit_code
        assert [kept] == [f"{each.grant.address}/16" for each in agent.pool.assigned.values()]
        assert 1 == len(agent.pool.cooling_down(now=env.clock.boot(), cooldown=30.0))
        assert gone not in {await env.add(f"n{n}") for n in range(10)}
        assert any(
            "CNI GC releases a sandbox that the runtime does not list" in line and "sandbox=b" in line
            for line in env.logs
        )

    @in_node_env
    async def test_other_networks_are_left_alone(self, env: NodeEnv) -> None:
        agent = await env.start()
        await env.call("ADD", "a", network="one")
        await env.call("ADD", "b", network="two")
        await env.call("GC", "", version=NEWEST, network="two", **attachments())
        assert ["a"] == [each.attachment.container_id for each in agent.pool.assigned.values()]

    @in_node_env
    async def test_the_network_is_known_after_a_restart(self, env: NodeEnv) -> None:
        await env.start()
        await env.call("ADD", "a", network="one")
        await env.kill()
        agent = await env.start()
        await env.call("GC", "", version=NEWEST, network="two", **attachments())
        assert 1 == len(agent.pool.assigned)
        await env.call("GC", "", version=NEWEST, network="one", **attachments())
        assert not agent.pool.assigned

    @in_node_env
    async def test_without_a_list_nothing_is_released(self, env: NodeEnv) -> None:
        agent = await env.start()
        await env.add("a")
        assert 7 == code(await env.call("GC", "", version=NEWEST))
        assert agent.pool.assigned

    @in_node_env
    async def test_before_its_cni_version_it_does_not_exist(self, env: NodeEnv) -> None:
        await env.start()
        assert 1 == code(await env.call("GC", "", version="1.0.0", **attachments()))


class TestStatus:
    @in_node_env
    async def test_it_succeeds_when_addresses_could_be_assigned(self, env: NodeEnv) -> None:
        await env.start()
        assert 0 == (await env.call("STATUS", "", version=NEWEST)).exit_code

    @in_node_env
    async def test_it_succeeds_on_a_full_subnet(self, env: NodeEnv) -> None:
        """A failing STATUS makes the node NotReady, and its Pods are evicted."""
        env.capacity = 1
        await env.start()
        await env.add("a")
        assert 11 == (await env.refused("b"))["code"]
        assert 0 == (await env.call("STATUS", "", version=NEWEST)).exit_code

    @in_node_env
    async def test_it_fails_while_the_agent_is_fenced(self, env: NodeEnv) -> None:
        await env.start()
        env.transport.cut = True
        await asyncio.sleep(Settings().fence + 1)
        answer = await env.call("STATUS", "", version=NEWEST)
        assert 50 == code(answer)
        assert "confirm its Node" in json.loads(answer.stdout)["msg"]

    @in_node_env
    async def test_it_fails_without_a_network_container(self, env: NodeEnv) -> None:
        env.transport.cut = True
        agent = await env.start()
        assert "no network container" in json.loads((await env.call("STATUS", "", version=NEWEST)).stdout)["msg"]
        assert "no network container" in (agent.not_ready_reason() or "")
        assert not agent.ready.is_set()
        env.transport.cut = False
        await agent.ready.wait()

    @pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
    def test_before_its_cni_version_it_does_not_exist(self, version: str) -> None:
        @in_node_env
        async def call(env: NodeEnv) -> None:
            await env.start()
            assert 1 == code(await env.call("STATUS", "", version=version))

        call()

"""ADD and DEL on the node's slices, as a runtime and the cluster see them."""

import asyncio
import json
from typing import Any

import pytest

from podpool.api.whereabouts import BOOT_ANNOTATION, Allocation
from podpool.cni.protocol import PluginRequest, encode_request
from podpool.core.settings import Settings
from tests.agent.node_env import NODE, SETTLE_TIME, NodeEnv, in_node_env
from tests.agent.secondary.slice_env import (
    DUAL,
    IPAM,
    SLICE6,
    V4,
    V6,
    add,
    assign_slice,
    call,
    enable_slices,
    failed,
    lease_of,
    pool_entries,
)

SETTINGS = Settings()
LARGE = "10.1.16.0/20"


def crowd(count: int, *, longest: int) -> dict[str, Allocation]:
    """As many entries, of Pods with names as long."""
    return {
        str(key): Allocation(id=f"{key}".zfill(64), podref=f"default/{'x' * longest}", ifname="net1")
        for key in range(1, count + 1)
    }


class TestAdd:
    @in_node_env
    async def test_the_lowest_of_the_slice_with_the_mask_of_the_range(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        assert ["10.1.4.1/16"] == await add(env, "a")
        assert ["10.1.4.2/16"] == await add(env, "b")
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)

    @in_node_env
    async def test_the_lease_names_this_node_before_anything_is_given(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        lease = await lease_of(env, name)
        assert lease
        assert (lease.spec.holder_identity or "").startswith(f"{NODE}/")
        assert env.boot_id == lease.metadata.annotations[BOOT_ANNOTATION]

    @in_node_env
    async def test_one_of_each_family_or_none(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        error = await failed(env, "ADD", "a", DUAL)
        assert V6 in error["msg"]
        assert V4 not in error["msg"]
        await assign_slice(env, SLICE6, range_=V6)
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.1.4.1/16", "fd00::401/64"] == await add(env, "b", DUAL)

    @in_node_env
    async def test_exclusions_and_bounds_hold_inside_the_slice(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        ipam = {**IPAM, "exclude": ["10.1.4.0/30"], "range_start": "10.1.4.2", "range_end": "10.1.4.5"}
        assert [["10.1.4.4/16"], ["10.1.4.5/16"]] == [await add(env, each, ipam) for each in "ab"]
        error = await failed(env, "ADD", "c", ipam)
        assert "2 in use" in error["msg"]

    @in_node_env
    async def test_ten_networks_of_one_pod_at_once(self, env: NodeEnv) -> None:
        enable_slices(env)
        for number in range(10):
            await assign_slice(env, network=f"net{number}")
        await env.start()
        env.transport.others = 0
        given = await asyncio.gather(
            *(
                add(env, "a", {**IPAM, "network_name": f"net{number}"}, ifname=f"net{number}", network=f"n{number}")
                for number in range(10)
            )
        )
        assert [["10.1.4.1/16"]] * 10 == given
        assert 0 == env.transport.others
        await asyncio.sleep(1.0)
        assert 10 == env.transport.others
        assert {"1": "a"} == await pool_entries(env, f"net7-{NODE}-10.1.4.0-28")

    @in_node_env
    async def test_routes_dns_gateway_and_static_addresses_are_handed_on(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        more = {
            "gateway": "10.1.0.1",
            "routes": [{"dst": "10.0.0.0/8"}],
            "dns": {"nameservers": ["10.1.0.2"]},
            "addresses": [{"address": "192.168.1.5/24"}],
        }
        told = json.loads((await call(env, "ADD", "a", {**IPAM, **more})).stdout)
        assert [{"address": "10.1.4.1/16", "gateway": "10.1.0.1"}, {"address": "192.168.1.5/24"}] == told["ips"]
        assert [{"dst": "10.0.0.0/8"}] == told["routes"]
        assert {"nameservers": ["10.1.0.2"]} == told["dns"]

    @pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
    def test_every_versions_form(self, version: str) -> None:
        @in_node_env
        async def told(env: NodeEnv) -> None:
            await assign_slice(enable_slices(env))
            await env.start()
            answer = json.loads((await call(env, "ADD", "a", version=version)).stdout)
            assert version == answer["cniVersion"]
            if version in ("0.1.0", "0.2.0"):
                assert "10.1.4.1/16" == answer["ip4"]["ip"]
            else:
                expected = {"address": "10.1.4.1/16"} | ({"version": "4"} if version.startswith("0.") else {})
                assert [expected] == answer["ips"]

        told()

    @in_node_env
    async def test_bad_configuration_is_refused_with_its_key(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        for ipam, word in (({**IPAM, "range": "foo"}, "range"), ({**IPAM, "exclude": ["10.0.0.1/99"]}, "exclude")):
            error = await failed(env, "ADD", "a", ipam)
            assert 7 == error["code"]
            assert word in error["msg"]

    @in_node_env
    async def test_also_while_nothing_can_be_given_yet_and_it_stops_nobody_else(self, env: NodeEnv) -> None:
        """It must not wait among those who are served when a slice comes."""
        enable_slices(env)
        await env.start()
        for bad in ("garbage", "10.0.0.1/99"):
            error = await failed(env, "ADD", "x", {**IPAM, "exclude": [bad]})
            assert 7 == error["code"]
        await assign_slice(env)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_what_fits_into_no_object_is_refused_with_the_cure(self, env: NodeEnv) -> None:
        """By the entries that there are, however short the name of who asks is."""
        name = await assign_slice(enable_slices(env), LARGE, entries=crowd(2800, longest=400))
        await env.start()
        told = f"the IPPool {name} has as many entries as fit into one object: use a smaller node_slice_size"
        assert told == (await failed(env, "ADD", "a"))["msg"]

    @in_node_env
    async def test_what_fits_is_given_however_long_the_name_of_who_asks(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env), LARGE, entries=crowd(4000, longest=1))
        await env.start()
        assert ["10.1.31.161/16"] == await add(env, "a" * 400)

    @in_node_env
    async def test_the_nodes_own_pool_is_served_beside_it(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        assert "10.0.1.1/16" == await env.add("a")
        assert ["10.1.4.1/16"] == await add(env, "a")


class TestWaiting:
    @in_node_env
    async def test_for_a_slice_on_its_way(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        waiting = asyncio.ensure_future(add(env, "a"))
        await asyncio.sleep(2.0)
        await assign_slice(env)
        assert ["10.1.4.1/16"] == await waiting

    @in_node_env
    async def test_in_vain_says_where_to_look(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        error = await failed(env, "ADD", "a", {**IPAM, "network_name": "blue"})
        assert 11 == error["code"]
        for word in (NODE, V4, "network blue", "NodeSlicePool", "more nodes than slices", "controller"):
            assert word in error["msg"]

    @in_node_env
    async def test_for_rest_first_come_first_served(self, env: NodeEnv) -> None:
        ipam = {**IPAM, "range_end": "10.1.4.1"}
        await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a", ipam)
        await call(env, "DEL", "a", ipam)
        began = asyncio.get_running_loop().time()
        first, second = (
            asyncio.ensure_future(add(env, "b", ipam)),
            asyncio.ensure_future(call(env, "ADD", "c", ipam)),
        )
        assert ["10.1.4.1/16"] == await first
        assert SETTINGS.cooldown_exhausted == pytest.approx(asyncio.get_running_loop().time() - began, abs=0.1)
        assert 1 == (await second).exit_code

    @in_node_env
    async def test_ends_with_the_sandbox(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        waiting = asyncio.ensure_future(failed(env, "ADD", "a"))
        await asyncio.sleep(1.0)
        assert 0 == (await call(env, "DEL", "a")).exit_code
        assert "deleted" in (await waiting)["msg"]


class TestDel:
    @in_node_env
    async def test_frees_every_range_and_lets_it_rest(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        other = await assign_slice(env, SLICE6, range_=V6)
        await env.start()
        await add(env, "a", DUAL)
        await asyncio.sleep(1.0)
        assert 0 == (await call(env, "DEL", "a", DUAL)).exit_code
        assert 0 == (await call(env, "DEL", "a", DUAL)).exit_code
        await asyncio.sleep(1.0)
        assert [{}, {}] == [await pool_entries(env, each) for each in (name, other)]
        assert ["10.1.4.2/16", "fd00::402/64"] == await add(env, "b", DUAL)
        await asyncio.sleep(SETTINGS.cooldown + 1)
        assert ["10.1.4.1/16", "fd00::401/64"] == await add(env, "c", DUAL)

    @in_node_env
    async def test_needs_no_configuration_that_can_be_read(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        assert 0 == (await call(env, "DEL", "a", {"type": "whereabouts", "range": "foo"})).exit_code
        await asyncio.sleep(1.0)
        assert {} == await pool_entries(env, name)

    @in_node_env
    async def test_one_left_while_no_agent_ran_is_done(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        await env.stop()
        stdin = json.dumps({"cniVersion": "1.0.0", "name": "net", "ipam": IPAM}).encode()
        left = encode_request(PluginRequest(command="DEL", container_id="a", ifname="net1", stdin=stdin))
        env.deletes.append("left", left)
        await env.start()
        assert [] == env.deletes.names()
        assert {} == await pool_entries(env, name)


class TestOtherCommands:
    @in_node_env
    async def test_check_finds_what_is_there(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        assert 100 == (await failed(env, "CHECK", "a"))["code"]
        await add(env, "a")
        assert 0 == (await call(env, "CHECK", "a", prevResult={"ips": [{"address": "10.1.4.1/16"}]})).exit_code
        assert 100 == (await failed(env, "CHECK", "a", prevResult={"ips": [{"address": "10.1.4.9/16"}]}))["code"]

    @in_node_env
    async def test_gc_frees_what_is_not_listed_of_its_network(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        for each in "abc":
            await add(env, each)
        await add(env, "d", network="other")
        valid: dict[str, Any] = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "net1"}]}
        assert 0 == (await call(env, "GC", "", version="1.1.0", **valid)).exit_code
        await asyncio.sleep(1.0)
        assert {"b", "d"} == set((await pool_entries(env, name)).values())

    @in_node_env
    async def test_status_is_about_the_agent_not_about_slices(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        assert 0 == (await call(env, "STATUS", "", version="1.1.0")).exit_code
        env.transport.cut = True
        await asyncio.sleep(SETTINGS.fence + 1)
        assert 50 == (await failed(env, "STATUS", "", version="1.1.0"))["code"]

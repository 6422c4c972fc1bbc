"""ADD, DEL, CHECK, GC and STATUS on the node's slices."""

import asyncio
import json
from typing import Any

import pytest

from podpool.api.builtin import NODES
from podpool.api.whereabouts import (
    NETWORK_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RANGE_ANNOTATION,
    SLICE_ANNOTATION,
    Allocation,
)
from podpool.cni.protocol import PluginRequest, encode_request
from podpool.core.settings import Settings
from tests.agent.node_env import NODE, SETTLE_TIME, NodeEnv, in_node_env
from tests.agent.secondary.slice_env import (
    DUAL,
    IPAM,
    SLICE,
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
    pool_of,
)

SETTINGS = Settings()
LARGE = "10.1.16.0/20"


def entries_of(count: int, *, name_length: int) -> dict[str, Allocation]:
    """Return entries of Pods with names of this length."""
    return {
        str(key): Allocation(id=f"{key}".zfill(64), podref=f"default/{'x' * name_length}", ifname="net1")
        for key in range(1, count + 1)
    }


class TestAdd:
    @in_node_env
    async def test_the_lowest_address_of_the_slice_with_the_prefix_length_of_the_range(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        assert ["10.1.4.1/16"] == await add(env, "a")
        assert ["10.1.4.2/16"] == await add(env, "b")
        assert ["10.1.4.1/16"] == await add(env, "a")
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b"} == await pool_entries(env, name)

    @in_node_env
    async def test_ippool_and_lease_are_written_behind_the_first_add(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        assert (None, None) == (await pool_of(env, name), await lease_of(env, name))
        await add(env, "a")
        await asyncio.sleep(1.0)
        pool, lease = await pool_of(env, name), await lease_of(env, name)
        assert pool
        assert lease
        uid = (await env.kube.get(NODES, NODE)).metadata.uid
        assert f"{NODE}/{uid}" == lease.spec.holder_identity
        written = {NODE_ANNOTATION: NODE, NETWORK_ANNOTATION: "", RANGE_ANNOTATION: V4}
        assert ({NODE_UID_LABEL: uid}, written) == (pool.metadata.labels, pool.metadata.annotations)
        assert {**written, SLICE_ANNOTATION: SLICE} == lease.metadata.annotations
        assert [pool.metadata.uid] == [each.uid for each in lease.metadata.owner_references]

    @in_node_env
    async def test_an_address_of_every_range_or_none(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        error = await failed(env, "ADD", "a", DUAL)
        assert V6 in error["msg"]
        assert V4 not in error["msg"]
        await assign_slice(env, SLICE6, range_=V6)
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.1.4.1/16", "fd00::401/64"] == await add(env, "b", DUAL)

    @in_node_env
    async def test_exclusions_and_bounds_apply_inside_the_slice(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        ipam = {**IPAM, "exclude": ["10.1.4.0/30"], "range_start": "10.1.4.2", "range_end": "10.1.4.5"}
        assert [["10.1.4.4/16"], ["10.1.4.5/16"]] == [await add(env, each, ipam) for each in "ab"]
        error = await failed(env, "ADD", "c", ipam)
        assert "2 assigned" in error["msg"]

    @in_node_env
    async def test_ten_networks_of_one_pod_concurrently(self, env: NodeEnv) -> None:
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
        await asyncio.sleep(SETTLE_TIME + 1.0)
        assert 1 == env.transport.others  # the status of all slices
        assert {"1": "a"} == await pool_entries(env, f"net7-{NODE}-10.1.4.0-28")

    @in_node_env
    async def test_routes_dns_gateway_and_static_addresses_are_passed_on(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        more = {
            "gateway": "10.1.0.1",
            "routes": [{"dst": "10.0.0.0/8"}],
            "dns": {"nameservers": ["10.1.0.2"]},
            "addresses": [{"address": "192.168.1.5/24"}],
        }
        result = json.loads((await call(env, "ADD", "a", {**IPAM, **more})).stdout)
        assert [{"address": "10.1.4.1/16", "gateway": "10.1.0.1"}, {"address": "192.168.1.5/24"}] == result["ips"]
        assert [{"dst": "10.0.0.0/8"}] == result["routes"]
        assert {"nameservers": ["10.1.0.2"]} == result["dns"]

    @pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
    def test_the_result_format_of_every_version(self, version: str) -> None:
        @in_node_env
        async def body(env: NodeEnv) -> None:
            await assign_slice(enable_slices(env))
            await env.start()
            result = json.loads((await call(env, "ADD", "a", version=version)).stdout)
            assert version == result["cniVersion"]
            if version in ("0.1.0", "0.2.0"):
                assert "10.1.4.1/16" == result["ip4"]["ip"]
            else:
                expected = {"address": "10.1.4.1/16"} | ({"version": "4"} if version.startswith("0.") else {})
                assert [expected] == result["ips"]

        body()

    @in_node_env
    async def test_an_invalid_configuration_is_rejected_with_its_key(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        for ipam, word in (({**IPAM, "range": "foo"}, "range"), ({**IPAM, "exclude": ["10.0.0.1/99"]}, "exclude")):
            error = await failed(env, "ADD", "a", ipam)
            assert 7 == error["code"]
            assert word in error["msg"]

    @in_node_env
    async def test_an_invalid_configuration_does_not_wait_for_a_slice(self, env: NodeEnv) -> None:
        """Otherwise it would fail when waiting requests are served."""
        enable_slices(env)
        await env.start()
        for bad in ("garbage", "10.0.0.1/99"):
            error = await failed(env, "ADD", "x", {**IPAM, "exclude": [bad]})
            assert 7 == error["code"]
        await assign_slice(env)
        assert ["10.1.4.1/16"] == await add(env, "a")

    @in_node_env
    async def test_an_ippool_that_is_too_large_is_reported(self, env: NodeEnv) -> None:
        """By the size of the existing entries, however short the name of the new Pod."""
        name = await assign_slice(enable_slices(env), LARGE, entries=entries_of(2800, name_length=400))
        await env.start()
        message = f"IPPool {name} has as many allocations as fit into one object: use a smaller node_slice_size"
        assert message == (await failed(env, "ADD", "a"))["msg"]

    @in_node_env
    async def test_an_entry_that_fits_is_assigned_however_long_the_pod_name(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env), LARGE, entries=entries_of(4000, name_length=1))
        await env.start()
        assert ["10.1.31.161/16"] == await add(env, "a" * 255)

    @in_node_env
    async def test_the_node_pool_is_served_too(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        assert "10.0.1.1/16" == await env.add("a")
        assert ["10.1.4.1/16"] == await add(env, "a")


class TestWaiting:
    @in_node_env
    async def test_an_add_waits_for_a_slice(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        waiting = asyncio.ensure_future(add(env, "a"))
        await asyncio.sleep(2.0)
        await assign_slice(env)
        assert ["10.1.4.1/16"] == await waiting

    @in_node_env
    async def test_a_timeout_is_explained(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        error = await failed(env, "ADD", "a", {**IPAM, "network_name": "blue"})
        assert 11 == error["code"]
        for word in (NODE, V4, "network blue", "NodeSlicePool", "more nodes than slices", "controller"):
            assert word in error["msg"]

    @in_node_env
    async def test_adds_wait_for_the_cooldown_first_come_first_served(self, env: NodeEnv) -> None:
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
    async def test_a_del_cancels_the_waiting_add(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        waiting = asyncio.ensure_future(failed(env, "ADD", "a"))
        await asyncio.sleep(1.0)
        assert 0 == (await call(env, "DEL", "a")).exit_code
        assert "deleted" in (await waiting)["msg"]


class TestDel:
    @in_node_env
    async def test_every_range_is_released_and_cools_down(self, env: NodeEnv) -> None:
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
        await asyncio.sleep(SETTINGS.cooldown_roomy + 1)
        assert ["10.1.4.1/16", "fd00::401/64"] == await add(env, "c", DUAL)

    @in_node_env
    async def test_an_invalid_configuration_is_accepted(self, env: NodeEnv) -> None:
        name = await assign_slice(enable_slices(env))
        await env.start()
        await add(env, "a")
        assert 0 == (await call(env, "DEL", "a", {"type": "whereabouts", "range": "foo"})).exit_code
        await asyncio.sleep(1.0)
        assert {} == await pool_entries(env, name)

    @in_node_env
    async def test_a_deferred_del_is_processed(self, env: NodeEnv) -> None:
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
    async def test_check_compares_with_prev_result(self, env: NodeEnv) -> None:
        await assign_slice(enable_slices(env))
        await env.start()
        assert 100 == (await failed(env, "CHECK", "a"))["code"]
        await add(env, "a")
        assert 0 == (await call(env, "CHECK", "a", prevResult={"ips": [{"address": "10.1.4.1/16"}]})).exit_code
        assert 100 == (await failed(env, "CHECK", "a", prevResult={"ips": [{"address": "10.1.4.9/16"}]}))["code"]

    @in_node_env
    async def test_gc_releases_invalid_attachments_of_its_network(self, env: NodeEnv) -> None:
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
    async def test_status_reports_the_agent_not_missing_slices(self, env: NodeEnv) -> None:
        await enable_slices(env).start()
        assert 0 == (await call(env, "STATUS", "", version="1.1.0")).exit_code
        env.transport.cut = True
        await asyncio.sleep(SETTINGS.fence + 1)
        assert 50 == (await failed(env, "STATUS", "", version="1.1.0"))["code"]

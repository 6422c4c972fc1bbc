"""Options of a configuration that is served from the node's pool: honoured or refused, never ignored."""

import asyncio
import json
from typing import Any

import pytest

from podpool.agent.cni_add_options import parse_pool_options
from podpool.cni.protocol import CniError, ErrorCode, PluginRequest, decode_response, encode_request
from tests.agent.node_env import SETTLE_TIME, NodeEnv, in_node_env

ROUTES = [{"dst": "10.96.0.0/12", "gw": "10.0.0.9"}, {"dst": "192.168.0.0/16"}]
DNS = {"nameservers": ["10.0.0.10"], "search": ["cluster.local"]}
GRANTS = {f"g{n}": f"10.0.1.{n}" for n in range(1, 5)}


def request(cni_args: str = "", /, *, ifname: str = "eth0", sandbox: str = "a", **config: Any) -> PluginRequest:  # noqa: ANN401  JSON
    stdin = {"cniVersion": "1.0.0", "name": "net", "ipam": {"type": "podpool"}, **config}
    return PluginRequest(
        command="ADD", container_id=sandbox, ifname=ifname, args=cni_args, stdin=json.dumps(stdin).encode()
    )


async def send(env: NodeEnv, each: PluginRequest) -> dict[str, Any]:
    assert env.agent
    found: dict[str, Any] = json.loads(decode_response(await env.agent.handle(encode_request(each))).stdout)
    return found


async def addresses(env: NodeEnv, each: PluginRequest) -> list[str]:
    return [each["address"] for each in (await send(env, each))["ips"]]


async def start(env: NodeEnv, grants: dict[str, str] = GRANTS, **others: Any) -> None:  # noqa: ANN401  passed on
    env.controller_works = False
    await env.start()
    await env.write_status(version=2, grants=grants, **others)
    await asyncio.sleep(SETTLE_TIME)


class TestRoutesAndDns:
    @in_node_env
    async def test_configured_ones_are_in_the_result_exactly(self, env: NodeEnv) -> None:
        await start(env)
        result = await send(env, request(ipam={"type": "podpool", "routes": ROUTES, "dns": DNS}))
        assert (ROUTES, DNS) == (result["routes"], result["dns"])

    @in_node_env
    async def test_an_empty_list_of_routes_means_none(self, env: NodeEnv) -> None:
        await start(env)
        assert [] == (await send(env, request(ipam={"type": "podpool", "routes": []})))["routes"]

    @in_node_env
    async def test_without_routes_only_the_default_network_gets_a_default_route(self, env: NodeEnv) -> None:
        await start(env)
        assert [{"dst": "0.0.0.0/0"}] == (await send(env, request()))["routes"]
        assert [] == (await send(env, request(ifname="net1")))["routes"]

    @pytest.mark.parametrize(
        ("ipam", "message"),
        [
            ({"routes": [{"dst": "x"}]}, "routes[0].dst"),
            ({"routes": [{"dst": "10.0.0.0/8", "gw": "x"}]}, "routes[0].gw"),
            ({"routes": "10.0.0.0/8"}, "ipam.routes"),
            ({"dns": {"nameservers": 7}}, "ipam.dns.nameservers"),
        ],
    )
    def test_invalid_ones_are_refused_by_name(self, ipam: dict[str, Any], message: str) -> None:
        with pytest.raises(CniError) as raised:
            parse_pool_options(request(ipam={"type": "podpool", **ipam}))
        assert ErrorCode.INVALID_CONFIG is raised.value.code
        assert raised.value.message.startswith(message)


class TestRequestedAddresses:
    @pytest.mark.parametrize(
        "wanted",
        [
            request("IP=10.0.1.3"),
            request("IP=10.0.1.3/16"),
            request("IgnoreUnknown=1;IP= 10.0.1.3 "),
            request(runtimeConfig={"ips": ["10.0.1.3/24"]}),
            request(args={"cni": {"ips": ["10.0.1.3"]}}),
            request("IP=10.0.1.3", runtimeConfig={"ips": ["10.0.1.3"]}),
        ],
    )
    def test_an_available_one_is_assigned(self, wanted: PluginRequest) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            await start(env)
            assert ["10.0.1.3/16"] == await addresses(env, wanted)
            assert ["10.0.1.3/16"] == await addresses(env, wanted)

        test()

    @in_node_env
    async def test_one_that_the_node_does_not_have_is_refused_by_name(self, env: NodeEnv) -> None:
        await start(env)
        error = await send(env, request("IP=10.0.9.9"))
        assert ErrorCode.INVALID_CONFIG == error["code"]
        assert "requested address 10.0.9.9 is not one of node node-1's addresses" == error["msg"]

    @in_node_env
    async def test_one_in_use_or_cooling_down_is_refused_without_waiting(self, env: NodeEnv) -> None:
        await start(env)
        await send(env, request("IP=10.0.1.2"))
        started = asyncio.get_running_loop().time()
        error = await send(env, request("IP=10.0.1.2", sandbox="b"))
        assert ErrorCode.TRY_AGAIN_LATER == error["code"]
        assert "requested address 10.0.1.2 is not available: it is Assigned" == error["msg"]
        await env.call("DEL", "a")
        assert "CoolingDown" in (await send(env, request("IP=10.0.1.2", sandbox="b")))["msg"]
        assert asyncio.get_running_loop().time() - started < 1.0
        assert ["10.0.1.1/16"] == await addresses(env, request(sandbox="c"))

    @in_node_env
    async def test_of_two_families_one_may_be_requested(self, env: NodeEnv) -> None:
        six = {"s1": "fd00::1:1", "s2": "fd00::1:2"}
        await start(env, {**GRANTS, **six}, subnetAddressSpaceV6="fd00::/64", defaultGatewayV6="fd00::1")
        assert ["10.0.1.1/16", "fd00::1:2/64"] == await addresses(env, request("IP=fd00:0::1:2"))
        both = request("IP=10.0.1.4, fd00::1:1", sandbox="b")
        assert ["10.0.1.4/16", "fd00::1:1/64"] == await addresses(env, both)

    @in_node_env
    async def test_two_of_one_family_are_refused(self, env: NodeEnv) -> None:
        await start(env)
        error = await send(env, request("IP=10.0.1.1,10.0.1.2"))
        assert ErrorCode.INVALID_CONFIG == error["code"]
        assert "10.0.1.1 and 10.0.1.2" in error["msg"]

    @pytest.mark.parametrize("args", ["IP=x", "IP=10.0.0.1;GATEWAY=10.0.0.9"])
    def test_an_invalid_one_or_a_gateway_is_refused(self, args: str) -> None:
        with pytest.raises(CniError, match="^CNI_ARGS") as raised:
            parse_pool_options(request(args))
        assert ErrorCode.INVALID_ENVIRONMENT is raised.value.code


class TestKeysWithoutEffect:
    @pytest.mark.parametrize(
        ("key", "value", "remedy"),
        [
            ("gateway", "10.0.0.99", "the gateway is the subnet's"),
            ("Gateway", "10.0.0.99", "the gateway is the subnet's"),
            ("addresses", [{"address": "192.168.7.7/24"}], "runtimeConfig.ips"),
            ("ranges", [[{"subnet": "10.5.0.0/24"}]], "ipam.range"),
            ("subnet", "10.5.0.0/24", "ipam.range"),
            ("node_slice_size", "/28", "ipam.range"),
        ],
    )
    def test_one_that_would_choose_other_addresses_is_refused_by_name(
        self, key: str, value: object, remedy: str
    ) -> None:
        with pytest.raises(CniError, match=f"ipam.{key.lower()}") as refused:
            parse_pool_options(request(ipam={"type": "podpool", key: value}))
        assert ErrorCode.INVALID_CONFIG == refused.value.code
        assert remedy in refused.value.message

    @pytest.mark.parametrize("value", [None, "", [], {}])
    def test_an_empty_one_counts_as_absent(self, value: object) -> None:
        assert () == parse_pool_options(request(ipam={"type": "podpool", "gateway": value})).ignored

    @in_node_env
    async def test_any_other_is_logged_once_for_each_network(self, env: NodeEnv) -> None:
        await start(env)
        for sandbox, network in (("a", "net"), ("b", "net"), ("c", "other")):
            ipam = {"type": "podpool", "exclude": ["10.0.1.2/32"], "rangeStart": "10.0.1.9", "exclude_gateway": True}
            assert (await send(env, request(sandbox=sandbox, name=network, ipam=ipam)))["ips"]
        lines = [line for line in env.warnings if "no effect" in line]
        assert ["net", "other"] == [line.partition("network=")[2].split()[0] for line in lines]
        assert all("exclude, exclude_gateway, rangeStart" in line for line in lines)

    @in_node_env
    async def test_a_del_of_a_refused_configuration_succeeds(self, env: NodeEnv) -> None:
        await start(env)
        assert 0 == (await env.call("DEL", "a", ipam={"type": "podpool", "gateway": "10.0.0.99"})).exit_code


class TestGateway:
    """ptp puts it on the node's end of the veth: there the address of the subnet's router would cut the node off."""

    @in_node_env
    async def test_of_a_pod_behind_the_node_is_the_primary_of_the_network_container(self, env: NodeEnv) -> None:
        await start(env)
        (ip,) = (await send(env, request(type="ptp")))["ips"]
        assert "10.0.0.4" == ip["gateway"]

    @in_node_env
    async def test_of_a_pod_on_the_segment_is_the_subnets(self, env: NodeEnv) -> None:
        await start(env)
        (ip,) = (await send(env, request(type="macvlan")))["ips"]
        assert "10.0.0.1" == ip["gateway"]

    @in_node_env
    async def test_without_a_primary_of_its_family_is_link_local(self, env: NodeEnv) -> None:
        await start(env, {"g1": "10.0.1.1", "g2": "fd00::9"}, subnetAddressSpaceV6="fd00::/64")
        ips = (await send(env, request(type="ptp")))["ips"]
        assert {"10.0.1.1/16": "10.0.0.4", "fd00::9/64": "fe80::1"} == {
            each["address"]: each["gateway"] for each in ips
        }

    @in_node_env
    async def test_without_a_primary_is_the_subnets(self, env: NodeEnv) -> None:
        await start(env, primaryIP="")
        (ip,) = (await send(env, request(type="ptp")))["ips"]
        assert "10.0.0.1" == ip["gateway"]

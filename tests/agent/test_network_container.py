"""Network containers of third parties: kinds that are not served, and gateways by family."""

import asyncio
import json
import random
from typing import Any

import pytest

from podpool.agent.network_container import gateway_of, interface_of, unsupported_reason
from podpool.api.azure import NetworkContainer
from podpool.api.builtin import EVENTS
from podpool.api.rbac import AGENT
from podpool.cni.protocol import VERSIONS, ErrorCode
from podpool.core.addresses import Family
from podpool.kube.events import EventRecorder
from tests.agent.node_env import NODE, SETTLE_TIME, NodeEnv, in_node_env

STATIC: dict[str, dict[str, Any]] = {
    "overlay": {"assignmentMode": "static", "type": "overlay", "primaryIP": "10.244.2.0/24"},
    "vnetblock": {"assignmentMode": "static", "type": "vnetblock", "primaryIP": "10.0.0.4/28"},
    "static vnet": {"assignmentMode": "static", "type": "vnet"},
    "overlay without a mode": {"type": "overlay"},
}


class TestUnsupported:
    @pytest.mark.parametrize("mode", ["dynamic", "", "Dynamic", "other"])
    def test_anything_but_static_is_dynamic(self, mode: str) -> None:
        assert None is unsupported_reason(NetworkContainer(id="nc", assignment_mode=mode))

    @pytest.mark.parametrize(
        ("mode", "kind", "fields"),
        [
            ("static", "vnet", 'assignmentMode "static" (podpool serves "dynamic")'),
            ("Static", "", 'assignmentMode "Static" (podpool serves "dynamic")'),
            ("dynamic", "vnetblock", 'type "vnetblock" (podpool serves "vnet")'),
            ("", "Overlay", 'type "Overlay" (podpool serves "vnet")'),
            (
                "static",
                "overlay",
                'assignmentMode "static" (podpool serves "dynamic") and type "overlay" (podpool serves "vnet")',
            ),
        ],
    )
    def test_the_reason_names_the_fields_of_the_nnc_and_the_fix(self, mode: str, kind: str, fields: str) -> None:
        reason = unsupported_reason(NetworkContainer(id="nc-7", assignment_mode=mode, type=kind)) or ""
        assert f"network container nc-7 in status.networkContainers of the NodeNetworkConfig has {fields}: " in reason
        assert "dynamic allocation" in reason

    @pytest.mark.parametrize("what", STATIC)
    def test_it_is_refused_with_the_reason_everywhere(self, what: str) -> None:
        """Not adopted, the node not Ready, and log, Event, STATUS and ADD name it."""

        @in_node_env
        async def test(env: NodeEnv) -> None:
            env.controller_works = False
            recorder = EventRecorder(env.kube, component=AGENT, instance=NODE, clock=env.clock, rng=random.Random(3))  # noqa: S311  seeded
            env.deps = {"recorder": recorder}
            await env.write_status(version=2, grants={}, **STATIC[what])
            agent = await env.start()
            expected = "network container nc-1 in status.networkContainers of the NodeNetworkConfig has "
            assert "" == agent.pool.adopted_nc
            assert expected in (agent.not_ready_reason() or "")
            assert not agent.ready.is_set()
            status = json.loads((await env.call("STATUS", "", version="1.1.0")).stdout)
            assert ErrorCode.UNAVAILABLE == status["code"]
            assert expected in status["msg"]
            assert expected in (await env.refused("a"))["msg"]
            assert 1 == sum("network container refused" in line and expected in line for line in env.warnings)
            events = (await env.kube.list(EVENTS, namespace="default")).items
            assert ["NetworkContainerRefused"] == [each.reason for each in events]
            await env.write_status(version=3, grants={}, assignmentMode="dynamic", type="vnet")
            await asyncio.sleep(4 * SETTLE_TIME)
            await env.write_status(version=4, grants={"g": "10.0.1.1"}, assignmentMode="dynamic", type="vnet")
            await asyncio.sleep(SETTLE_TIME)
            assert "10.0.1.1/16" == await env.add("b")

        test()


class TestGateways:
    @pytest.mark.parametrize(
        ("plain", "v6", "expected"),
        [
            ("10.0.0.1", "fd00::1", ("10.0.0.1", "fd00::1")),
            ("10.0.0.1", "", ("10.0.0.1", "")),
            ("fd00::1", "", ("", "fd00::1")),
            ("", "fd00::1", ("", "fd00::1")),
            ("10.0.0.1", "10.0.0.1", ("10.0.0.1", "")),
            ("no address", "fd00::x", ("", "")),
        ],
    )
    def test_an_address_gets_a_gateway_of_its_own_family(self, plain: str, v6: str, expected: tuple[str, str]) -> None:
        nc = NetworkContainer(
            default_gateway=plain,
            default_gateway_v6=v6,
            subnet_address_space="10.0.0.0/16",
            subnet_address_space_v6="fd00::/64",
        )
        assert expected == tuple(gateway_of(nc, family) for family in Family)
        assert (16, expected[0]) == interface_of(nc, "10.0.1.1")
        assert (64, expected[1]) == interface_of(nc, "fd00::1:1")

    @pytest.mark.parametrize("version", VERSIONS)
    def test_without_an_ipv6_gateway_there_is_no_ipv6_route_in_any_version(self, version: str) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            env.controller_works = False
            await env.start()
            both = {"four": "10.0.1.1", "six": "fd00::1:1"}
            await env.write_status(version=2, grants=both, subnetAddressSpaceV6="fd00::/64")
            await asyncio.sleep(SETTLE_TIME)
            result: dict[str, Any] = json.loads((await env.call("ADD", "a", version=version)).stdout)
            if version in ("0.1.0", "0.2.0"):
                assert ("10.0.0.1", [{"dst": "0.0.0.0/0"}]) == (result["ip4"]["gateway"], result["ip4"]["routes"])
                assert {"ip": "fd00::1:1/64", "routes": []} == result["ip6"]
            else:
                assert ["10.0.0.1", None] == [each.get("gateway") for each in result["ips"]]
                assert [{"dst": "0.0.0.0/0"}] == result["routes"]

        test()

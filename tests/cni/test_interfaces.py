"""The plugin as IPAM of real interface plugins, in real network namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from parts.cni import Chain, PluginFailed, Pod
from parts.recipes import program
from podpool.cni.install import install
from tests.cni.agent_thread import AgentThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("network")]

PTP = {"type": "ptp"}
BRIDGE = {"type": "bridge", "bridge": "pods0", "isGateway": True}
MACVLAN = {"type": "macvlan", "master": "uplink", "mode": "bridge"}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentThread]:
    with AgentThread(tmp_path) as running:
        yield running


def chain(namespaces: Namespaces, agent: AgentThread, plugin: dict[str, Any], *, version: str = "1.0.0") -> Chain:
    """Return a network of one interface plugin with podpool IPAM."""
    bin_dir = agent.home / "bin"
    install(bin_dir)
    plugins = [{**plugin, "ipam": {"type": "podpool"}}]
    return Chain(
        namespaces=namespaces,
        path=[bin_dir, program("ptp").parent],
        conflist={"cniVersion": version, "name": "pods", "plugins": plugins},
        env={"PODPOOL_SOCKET": str(agent.socket)},
    )


def address(result: dict[str, Any]) -> str:
    return str(result["ips"][0]["address"]).partition("/")[0]


@pytest.mark.parametrize("plugin", [PTP, BRIDGE, MACVLAN], ids=["ptp", "bridge", "macvlan"])
def test_two_pods_ping_each_other_and_their_addresses_are_released(
    namespaces: Namespaces, agent: AgentThread, plugin: dict[str, Any]
) -> None:
    if plugin is MACVLAN:  # a veth as uplink needs no hardware
        namespaces.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "switch")
        for link in ("uplink", "switch"):
            namespaces.run("ip", "link", "set", link, "up")
    network = chain(namespaces, agent, plugin)
    pods = [Pod(container=name, netns=namespaces.add()) for name in ("one", "two")]
    results = [network.add(pod) for pod in pods]
    one, two = map(address, results)
    assert {"one": one, "two": two} == agent.holders()
    for pod, other in zip(pods, (two, one), strict=True):
        namespaces.run("ping", "-c", "1", "-W", "5", other, netns=pod.netns)
    for pod, result in zip(pods, results, strict=True):
        network.check(pod, result)
        network.delete(pod, result)
        network.delete(pod, result)  # a runtime may repeat it
    assert {} == agent.holders()
    assert agent.agent
    assert agent.agent.pool.granted == agent.agent.pool.free


def test_check_fails_on_an_address_that_the_agent_did_not_assign(namespaces: Namespaces, agent: AgentThread) -> None:
    network = chain(namespaces, agent, PTP)
    pod = Pod(container="one", netns=namespaces.add())
    result = network.add(pod)
    other = {**result, "ips": [{**result["ips"][0], "address": "10.0.9.9/16"}]}
    with pytest.raises(PluginFailed, match="10.0.9.9"):
        network.check(pod, other)


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_interface_plugins_accept_results_of_each_version(
    namespaces: Namespaces, agent: AgentThread, version: str
) -> None:
    network = chain(namespaces, agent, PTP, version=version)
    pod = Pod(container=f"box-{version}", netns=namespaces.add())
    result = network.add(pod)
    assert version == result["cniVersion"]
    assert agent.holders()[pod.container] == address(result)
    network.delete(pod, result)


def test_status_reaches_the_agent_through_the_interface_plugin(namespaces: Namespaces, agent: AgentThread) -> None:
    network = chain(namespaces, agent, PTP, version="1.1.0")
    no_pod, (plugin,) = Pod(container="", netns=""), network.conflist["plugins"]
    assert {} == network.call("STATUS", no_pod, plugin, None)
    agent.socket.unlink()  # as if the agent had never started
    with pytest.raises(PluginFailed) as failed:
        network.call("STATUS", no_pod, plugin, None)
    assert 50 == failed.value.code

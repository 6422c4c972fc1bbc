"""Pods' namespaces are real ones: the reference plugins connect them, and what they took they give back."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from parts.cni import Chain, PluginFailed, Pod
from parts.namespaces import STATE
from parts.recipes import program

if TYPE_CHECKING:
    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("network")]

# .0 and .3 are the subnet's own, .1 is the gateway: one address is left for Pods.
SUBNET = "10.1.0.0/30"


@pytest.fixture
def chain(namespaces: Namespaces) -> Chain:
    """A point-to-point interface with one address to give."""
    ipam = {"type": "host-local", "dataDir": STATE, "ranges": [[{"subnet": SUBNET}]]}
    conflist = {"cniVersion": "1.0.0", "name": "smoke", "plugins": [{"type": "ptp", "ipam": ipam}]}
    return Chain(namespaces=namespaces, path=[program("ptp").parent], conflist=conflist)


def address(result: dict[str, Any]) -> str:
    return str(result["ips"][0]["address"]).partition("/")[0]


def test_a_connected_pod_can_be_pinged_and_a_disconnected_one_cannot(namespaces: Namespaces, chain: Chain) -> None:
    pod = Pod(container="first", netns=namespaces.add())
    result = chain.add(pod)
    chain.check(pod, result)
    namespaces.run("ping", "-c", "1", "-W", "5", address(result))
    namespaces.run("ping", "-c", "1", "-W", "5", "10.1.0.1", netns=pod.netns)

    chain.delete(pod, result)
    assert "eth0" not in namespaces.run("ip", "link", netns=pod.netns)
    with pytest.raises(subprocess.CalledProcessError):
        namespaces.run("ping", "-c", "1", "-W", "1", address(result))


def test_an_address_is_free_again_after_del(namespaces: Namespaces, chain: Chain) -> None:
    first = Pod(container="first", netns=namespaces.add())
    second = Pod(container="second", netns=namespaces.add())
    result = chain.add(first)
    with pytest.raises(PluginFailed, match="no IP addresses available"):
        chain.add(second)
    chain.delete(first, result)
    assert address(result) == address(chain.add(second))


def test_a_plugins_error_is_typed_and_has_its_code(namespaces: Namespaces, chain: Chain) -> None:
    assert "1: lo" in namespaces.run("ip", "-o", "link")
    with pytest.raises(PluginFailed) as failed:
        chain.add(Pod(container="not/valid", netns=namespaces.add()))
    assert (failed.value.plugin, failed.value.command, failed.value.code) == ("ptp", "ADD", 4)


def test_nothing_of_it_is_seen_on_the_machine(namespaces: Namespaces, chain: Chain) -> None:
    before = subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout
    chain.add(Pod(container="hidden", netns=namespaces.add()))
    assert before == subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout

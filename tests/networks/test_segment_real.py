"""Pods on the segment itself, by a bridge on one node and macvlan on the other, with the profiles of the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.networks.site import GATEWAY, ON_LINK, SET_UP, Site, addresses

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("networks")]

BRIDGE = """
ip -n one link add br0 type bridge
ip -n one link set eth0 master br0
ip -n one link set br0 up
ip -n one addr flush dev eth0
ip -n one addr add 192.168.7.2/24 dev br0
"""
"""As an administrator sets up a node: the uplink is a port of the bridge, which has the node's address."""


def test_pods_on_the_segment_reach_each_other_and_the_router(namespaces: Namespaces, tmp_path: Path) -> None:
    """Their gateway is the subnet's router, and they answer ARP and NDP themselves."""
    site = Site(namespaces, tmp_path)
    try:
        site.start(set_up=SET_UP + ON_LINK + BRIDGE)
        one, two = site.nodes
        one.start_agent("--cni-profile", "bridge", "--cni-options", "bridge=br0,mtu=1400")
        two.start_agent("--cni-profile", "macvlan", "--cni-options", "master=eth0")
        one.grant(10)
        two.grant(20)
        first, second = one.start_pod("first"), two.start_pod("second")
        for pod, others in ((first, addresses(20)), (second, addresses(10))):
            assert f"via {GATEWAY} dev eth0" in namespaces.run("ip", "route", "show", "default", netns=pod.netns)
            for address in (*others, GATEWAY, "fd50::1"):
                site.ping(pod, address)
        for address in (*addresses(10), *addresses(20)):
            site.ping(site.router, address)
        assert "mtu 1400" in namespaces.run("ip", "link", "show", "eth0", netns=first.netns)
        one.stop_pod(first)
        two.stop_pod(second)
    finally:
        site.stop()

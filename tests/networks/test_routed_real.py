"""Pods behind two nodes are reachable because the kernel answers ARP and NDP for them on the uplinks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from parts.namespaces import Namespaces
from parts.polling import until
from tests.networks.site import GATEWAY, ON_LINK, SET_UP, Site, addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("networks")]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("site")
    namespaces = Namespaces(home)
    site = Site(namespaces, home)
    try:
        namespaces.start()
        site.start(set_up=SET_UP + ON_LINK)
        for node in site.nodes:
            node.start_agent("--proxy-uplink", "eth0")
        yield site
    finally:
        site.stop()
        namespaces.stop()


@pytest.fixture
def site(started: Site) -> Site:
    """Both nodes without Pods."""
    for node in started.nodes:
        assert set() == node.proxied()
        node.grant()
    return started


def test_pods_of_both_nodes_the_nodes_and_the_router_reach_each_other(site: Site) -> None:
    """The router is the gateway of the subnet: no node answers for its address."""
    one, two = site.nodes
    one.grant(10)
    two.grant(20)
    first, second = one.start_pod("first"), two.start_pod("second")
    assert {*addresses(10)} == one.proxied()
    assert {*addresses(20)} == two.proxied()
    for address in addresses(20):
        for where in (first, one, site.router):
            site.ping(where, address)
    for address in addresses(10):
        site.ping(second, address)
    for where in (one, two):
        site.ping(where, GATEWAY)
    for where in (first, second):
        site.ping(where, GATEWAY)
        site.ping(where, "fd50::1")
    routers = mac(site.router.run("ip", "link", "show", "eth0"))
    assert [routers] * 2 == [mac(node.run("ip", "neigh", "show", GATEWAY, "dev", "eth0")) for node in (one, two)]
    one.stop_pod(first)
    two.stop_pod(second)
    assert set() == one.proxied() | two.proxied()


def test_an_address_that_moves_to_another_node_is_reachable_at_once(site: Site) -> None:
    """The router has the MAC address of the former node in its cache, and that node does not forward: it is cut off."""
    one, two = site.nodes
    one.grant(10)
    pod = one.start_pod("before")
    for address in addresses(10):
        site.ping(site.router, address)
        assert "REACHABLE" in site.router.run("ip", "neigh", "show", address)
    one.stop_pod(pod)
    one.grant()
    two.grant(10)
    site.namespaces.run("ip", "link", "set", "to-one", "down")
    pod = two.start_pod("after")
    for address in addresses(10):
        site.ping(site.router, address)
    site.namespaces.run("ip", "link", "set", "to-one", "up")
    two.stop_pod(pod)


def test_an_agent_that_is_killed_leaves_its_pods_reachable(site: Site) -> None:
    """Its successor finds the entries, and removes what a deferred DEL has released."""
    one, _ = site.nodes
    one.grant(10)
    kept = one.start_pod("kept")
    one.grant(10, 11)
    deleted = one.start_pod("deleted")
    entries = one.proxied()
    assert 4 == len(entries)
    assert one.agent
    one.agent.kill()
    one.stop_pod(deleted)
    site.router.run("ip", "neigh", "flush", "all")
    for address in addresses(10):
        site.ping(site.router, address)
    one.agent.start()
    until(lambda: {*addresses(10)} == one.proxied(), "the entries of the deleted Pod are removed")
    site.router.run("ip", "neigh", "flush", "all")
    for address in addresses(10):
        site.ping(site.router, address)
    one.stop_pod(kept)
    assert set() == one.proxied()


def test_entries_that_the_interface_loses_are_restored(site: Site) -> None:
    """The kernel removes them when the interface goes down; entries of others are not touched."""
    one, _ = site.nodes
    one.grant(10)
    pod = one.start_pod("pod")
    one.run("ip", "link", "set", "eth0", "down")
    assert set() == one.proxied()
    one.run("ip", "link", "set", "eth0", "up")
    one.run("ip", "neigh", "add", "proxy", "10.50.0.77", "dev", "eth0")
    until(lambda: {*addresses(10), "10.50.0.77"} == one.proxied(), "the entries are restored")
    one.stop_pod(pod)
    assert {"10.50.0.77"} == one.proxied()
    one.run("ip", "neigh", "del", "proxy", "10.50.0.77", "dev", "eth0")


def mac(text: str) -> str:
    (found,) = re.findall(r"(?:ether|lladdr) ([0-9a-f:]{17})", text)
    return str(found)

"""BIRD on each node announces the kernel's routes to Pods, with the configuration of docs/networks.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from parts.debian import command
from parts.pages import ROOT
from parts.polling import until
from tests.networks.site import ROUTER, SET_UP, Site, addresses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.namespaces import Namespaces
    from tests.networks.site import Inside

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("networks")]

DEFAULT_ROUTES = """
for name in one two; do
  ip -n $name route add default via 192.168.7.1
  ip -n $name route add default via fd07::1
done
"""


@pytest.fixture
def site(namespaces: Namespaces, tmp_path: Path) -> Iterator[Site]:
    site = Site(namespaces, tmp_path)
    try:
        site.start(set_up=SET_UP + DEFAULT_ROUTES)
        for node in site.nodes:
            node.start_agent()
        yield site
    finally:
        site.stop()


def test_pods_are_reachable_by_their_routes_while_they_have_an_interface(site: Site) -> None:
    """Also while no agent runs. An address that moves is announced by its new node alone."""
    one, two = site.nodes
    on_node, on_router = re.findall(r"```text\n(router id .*?)```", page(), re.DOTALL)
    start_bird(site, site.router, ROUTER, on_router)
    for node in site.nodes:
        start_bird(site, node, node.name, on_node.replace("id 192.168.7.2", f"id 192.168.7.{node.number}"))
    one.grant(10, 11)
    two.grant(20)
    first, second = one.start_pod("first"), two.start_pod("second")
    announced = {*addresses(10), *addresses(20)}
    until(lambda: announced == routes(site), "both Pods are announced, and nothing else")
    for address in addresses(20):
        site.ping(first, address)
        site.ping(site.router, address)
    assert one.agent
    one.agent.kill()
    for address in addresses(10):
        site.ping(second, address)
    one.agent.start()
    one.stop_pod(first)
    until(lambda: {*addresses(20)} == routes(site), "the route of the deleted Pod is withdrawn")
    one.grant(11)
    two.grant(10, 20)
    moved = two.start_pod("moved")
    until(lambda: announced == routes(site), "the address is announced by its new node")
    for address in addresses(10):
        site.ping(site.router, address)
    two.stop_pod(moved)


def page() -> str:
    return (ROOT / "docs" / "networks.md").read_text()


def start_bird(site: Site, where: Inside, name: str, config: str) -> None:
    """Start BIRD in a namespace; it connects in about a second instead of five."""
    file, control = site.home / f"{name}.conf", site.home / f"{name}.ctl"
    file.write_text(config.replace("  local ", "  connect delay time 1;\n  local "))
    site.daemon(f"bird-{name}", [command("bird"), "-f", "-c", file, "-s", control], ready=control.exists, at=where)


def routes(site: Site) -> set[str]:
    """Return the destinations that the router has learned from BGP."""
    shown = [site.router.run("ip", f"-{family}", "route", "show", "proto", "bird") for family in (4, 6)]
    return {line.split()[0] for line in "".join(shown).splitlines() if "unreachable" not in line}

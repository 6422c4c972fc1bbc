"""The commands of docs/networks.md work as they are written, on a node of a segment with a router."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

import pytest

from parts.pages import commands_of, run_commands
from parts.recipes import program
from tests.networks.site import API, GATEWAY, NNCS, ON_LINK, SET_UP, Site

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces

GRANT = """cp {plugins}/* /opt/cni/bin
{{ until curl -sf http://127.0.0.1:7784/readyz; do sleep 0.1; done
   curl -sf -X PATCH -H 'content-type: application/merge-patch+json' -d '{status}' {url}; }} > /dev/null &
"""
"""The runtime's plugins; and what the controller does when the agent has requested addresses."""

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("networks")]


def test_the_commands_of_the_page_work(namespaces: Namespaces, tmp_path: Path) -> None:
    site = Site(namespaces, tmp_path)
    try:
        site.start(set_up=SET_UP + ON_LINK)
        node, _ = site.nodes
        url, status = f"{API}{NNCS}/{node.name}/status", json.dumps(node.next_status(10))
        done = run_commands(
            GRANT.format(plugins=program("ptp").parent, status=status, url=url) + commands_of("docs/networks.md"),
            namespaces=cast("Namespaces", node),
            home=tmp_path,
            PODPOOL_NODE=node.name,
            PODPOOL_BOOT_ID=f"boot-{node.name}",
            PODPOOL_KUBECONFIG=str(site.kubeconfig),
            GATEWAY=GATEWAY,
        )
    finally:
        site.stop()
    assert 0 == done.returncode, done.stdout
    assert '"bridge": "br0"' in done.stdout
    assert re.search(r"^10\.50\.0\.10 +proxy", done.stdout, re.MULTILINE)
    assert f"\ndefault via {node.primary} dev eth0" in done.stdout

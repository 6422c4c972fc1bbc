"""Nodes are separate machines, and the consistency check finds planted differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parts.node_config import SETTINGS
from tests.cluster.consistency import differences

if TYPE_CHECKING:
    from parts.node import Node
    from tests.cluster.conftest import World

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def kernel() -> dict[str, str]:
    """What the machine has where a kubelet would write."""
    return {name: Path("/proc/sys", name).read_text() for name in SETTINGS}


BEFORE = kernel()
"""Read when the tests are collected, before any node is there."""


def test_each_node_has_a_boot_id_and_kernel_settings_of_its_own(world: World) -> None:
    boots = [node.run("cat", BOOT_ID).strip() for node in world.cluster.nodes.values()]
    assert boots == [world.cluster.boot_of(name) for name in world.cluster.nodes]
    assert 3 == len({*boots, Path(BOOT_ID).read_text().strip()})
    assert BEFORE == kernel()


def test_every_difference_and_every_rest_is_told_in_words(world: World) -> None:
    world.cluster.run_pods(["honest"], node="one")
    world.agrees(pods=1)
    node = world.cluster.nodes["one"]

    node.run("touch", "/run/netns/left")
    given = json.loads(plugin(node, "ADD"))["ips"][0]["address"].partition("/")[0]
    told = differences(world.cluster, world.installation)
    assert "one: 2 network namespaces for 1 Pods" in told
    assert f"one: Pod stray has nothing with the API server, {given} with the agent" in told

    plugin(node, "DEL")
    node.run("rm", "/run/netns/left")
    world.agrees(pods=1)


def plugin(node: Node, command: str) -> str:
    """Start our plugin on a node for a sandbox that no runtime knows."""
    told = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "stray",
        "CNI_NETNS": "/run/netns/left",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "'K8S_POD_NAMESPACE=default;K8S_POD_NAME=stray'",
    }
    words = " ".join(f"{name}={value}" for name, value in told.items())
    config = json.dumps({"cniVersion": "1.1.0", "name": "pods", "ipam": {"type": "podpool"}})
    return node.run("sh", "-c", f"echo '{config}' | {words} {node.plugins / 'podpool'}")

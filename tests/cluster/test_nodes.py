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


def test_each_difference_and_leftover_is_reported(world: World) -> None:
    world.cluster.run_pods(["honest"], node="one")
    world.agrees(pods=1)
    node = world.cluster.nodes["one"]

    given = json.loads(plugin(node, "ADD"))["ips"][0]["address"].partition("/")[0]
    try:
        connect(node, "left")
        found = differences(world.cluster, world.installation)
    finally:
        plugin(node, "DEL")
        node.run("umount", "/run/netns/left")
        node.run("rm", "/run/netns/left")
    assert "one: 2 connected network namespaces for 1 Pods" in found
    assert f"one: Pod stray has nothing with the API server, {given} with the agent" in found

    world.agrees(pods=1)


def connect(node: Node, netns: str) -> None:
    """Make a network namespace with an interface, which no sandbox has.

    Not by `ip netns add`, which mounts /run/netns over itself: containerd could not remove its own namespaces then.
    """
    node.run("touch", f"/run/netns/{netns}")
    node.run("unshare", f"--net=/run/netns/{netns}", "true")
    node.run("ip", "link", "add", netns, "type", "veth", "peer", "name", "eth0", "netns", netns)
    node.run("ip", "-netns", netns, "address", "add", "10.61.0.1/32", "dev", "eth0")


def plugin(node: Node, command: str) -> str:
    """Start our plugin on a node for a sandbox that no runtime knows."""
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "stray",
        "CNI_NETNS": "/run/netns/left",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "'K8S_POD_NAMESPACE=default;K8S_POD_NAME=stray'",
    }
    words = " ".join(f"{name}={value}" for name, value in environment.items())
    config = json.dumps({"cniVersion": "1.1.0", "name": "pods", "ipam": {"type": "podpool"}})
    return node.run("sh", "-c", f"echo '{config}' | {words} {node.plugins / 'podpool'}")

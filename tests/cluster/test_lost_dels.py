"""Sandboxes whose DEL is lost in every way: their addresses come back, and no living Pod loses its own.

Most of the thousand are made as a runtime makes them, with a network namespace and the plugin, but without a runtime:
a kubelet would take minutes for so many.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from parts.cluster import PODS
from parts.debian import command
from parts.installation import state
from parts.node_config import CONTAINERD
from parts.polling import until
from podpool.agent.pool import Pool
from tests.cluster.conftest import INTERVAL
from tests.cluster.consistency import DEFERRED_DELETES, replayed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.node import Node
    from tests.cluster.conftest import World

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(900)]

LIVING = 20
ENDED = [f"ended-{number}" for number in range(5)]
EACH_WAY = 250
LIMIT = 180.0
"""Seconds after which the address of a sandbox that ended without a DEL is cooling down at the latest."""
CONFIG = json.dumps({"cniVersion": "1.1.0", "name": "pods", "ipam": {"type": "podpool"}})
CALL = """echo '{config}' | CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS=/run/netns/$2 CNI_IFNAME=eth0 \\
  CNI_ARGS="K8S_POD_NAMESPACE=default;K8S_POD_NAME=$2;K8S_POD_UID=uid-of-$2" {plugin} > /dev/null
"""
LIST = f"""import asyncio
from podpool.agent.cri import CRIClient
print(*asyncio.run(CRIClient("{CONTAINERD}").list_sandboxes()))
"""
WITHOUT_DEL = """#!/bin/sh
test "$CNI_COMMAND" = DEL || exec {plugin}
"""


class Sandboxes:
    """Sandboxes of one node that no kubelet knows."""

    def __init__(self, node: Node, way: str) -> None:
        self.node = node
        self.ids = {f"{way}-{number}" for number in range(1, EACH_WAY + 1)}
        self._way = way
        self._script = node.home / "call.sh"
        self._script.write_text(CALL.format(config=CONFIG, plugin=node.plugins / "podpool"))

    def create(self) -> None:
        """Create their network namespaces, and call ADD for each."""
        # `ip netns` would mount the directory once more, under the namespaces of the runtime
        self._for_each(f"xargs -n 1 sh -c 'touch $0 && {command('unshare')} --net=$0 true'", prefix="/run/netns/")
        self.call("ADD")
        assert self.ids <= held(self.node).keys()

    def end(self) -> None:
        """Remove their network namespaces."""
        self._for_each("xargs -n 1 sh -c 'umount $0 && rm $0'", prefix="/run/netns/")

    def call(self, cni_command: str, *, wait_ms: int = 20_000) -> None:
        """Call the plugin for each, several at once, as a runtime does."""
        self._for_each(f"PODPOOL_WAIT_MS={wait_ms} xargs -n 1 -P 8 sh {self._script} {cni_command}")

    def _for_each(self, xargs: str, *, prefix: str = "") -> None:
        self.node.run("sh", "-c", f"seq -f '{prefix}{self._way}-%g' 1 {EACH_WAY} | {xargs}")


def test_addresses_of_a_thousand_sandboxes_whose_del_is_lost_come_back(world: World) -> None:
    one, two = world.cluster.nodes["one"], world.cluster.nodes["two"]
    deferred, deleted, killed = Sandboxes(one, "deferred"), Sandboxes(one, "deleted"), Sandboxes(two, "killed")
    world.cluster.deploy("living", LIVING)
    world.cluster.run_pods(ENDED, node="two")
    for each in (deferred, deleted, killed):
        each.create()
    until(lambda: len(world.running()) == LIVING + len(ENDED), "all Pods run", interval=INTERVAL)
    living = world.on("one")

    ended = end_pods(world, two, ENDED)
    killed.end()
    with agent_down(world, "one"):
        for each in (deferred, deleted):
            each.call("DEL", wait_ms=1)
            each.end()
        one.run("sh", "-c", f"rm {DEFERRED_DELETES}/deleted-*")
    lost_at = time.monotonic()
    expect_released(one, deferred.ids | deleted.ids, lost_at)
    expect_released(two, killed.ids | ended, lost_at)
    assert living.items() <= world.on("one").items()

    rebooted = Sandboxes(two, "rebooted")
    rebooted.create()
    two.reboot()
    world.installation.join(two)
    expect_released(two, rebooted.ids, time.monotonic())
    world.agrees(pods=LIVING)
    assert living.items() <= world.on("one").items()


def held(node: Node) -> dict[str, str]:
    """The Pod of each sandbox that has an address, according to the agent's journal."""
    assigned = replayed(state(node), Pool()).assigned.values()
    return {each.attachment.container_id: each.pod.name for each in assigned}


def expect_released(node: Node, sandboxes: set[str], lost_at: float) -> None:
    """Wait until none of them has an address."""
    left = lost_at + LIMIT - time.monotonic()
    until(lambda: sandboxes.isdisjoint(held(node)), f"{node.name} has released them", timeout=left, interval=INTERVAL)


def end_pods(world: World, node: Node, names: list[str]) -> set[str]:
    """Have the kubelet end Pods while the plugin loses every DEL; return their sandboxes."""
    sandboxes = {sandbox for sandbox, pod in held(node).items() if pod in names}
    assert sandboxes <= listed(node)
    plugin, kept = node.plugins / "podpool", node.plugins / "podpool-kept"
    plugin.rename(kept)
    plugin.write_text(WITHOUT_DEL.format(plugin=kept))
    plugin.chmod(0o755)
    for name in names:
        world.cluster.admin.delete(f"{PODS}/{name}")
    until(lambda: sandboxes.isdisjoint(listed(node)), "the runtime has removed them", interval=INTERVAL)
    kept.rename(plugin)
    assert len(names) == len(sandboxes & held(node).keys())
    return sandboxes


def listed(node: Node) -> set[str]:
    """The sandboxes of the runtime, as the agent gets them."""
    return set(node.run(sys.executable, "-c", LIST).split())


@contextmanager
def agent_down(world: World, node: str) -> Iterator[None]:
    """Have no agent on a node for a while."""
    world.installation.agents[node].kill()
    yield
    world.installation.agents[node].start()

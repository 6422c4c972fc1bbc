"""Outages of components and nodes: every Pod gets its address, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.cluster import NODES
from parts.polling import until
from tests.cluster.conftest import MOVES

if TYPE_CHECKING:
    from parts.daemon import Daemon
    from tests.cluster.conftest import World

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]

STEADY, FEW, MANY = 10, 4, 24


def daemon(world: World, name: str) -> Daemon:
    node = world.cluster.nodes["one"]
    return {
        "agent": world.installation.agents["one"],
        "containerd": node.containerd,
        "controller": world.installation.controller,
        "kubelet": node.kubelet,
    }[name]


@pytest.mark.parametrize("victim", ["kubelet", "containerd", "agent", "controller"])
def test_a_daemon_that_is_killed_amid_coming_and_going_pods_loses_nothing(world: World, victim: str) -> None:
    """Pods that stay keep their addresses; those that come meanwhile get theirs when it is back."""
    world.cluster.deploy("steady", STEADY)
    world.cluster.deploy("busy", FEW)
    world.agrees(pods=STEADY + FEW)
    before = {name: address for name, address in world.running().items() if name.startswith("steady")}
    killed = daemon(world, victim)

    for replicas in (MANY, FEW, MANY):
        world.cluster.scale("busy", replicas)
        killed.kill()
        world.cluster.scale("busy", replicas // 2)
        killed.start()
        world.cluster.scale("busy", replicas)

    world.agrees(pods=STEADY + MANY)
    assert before.items() <= world.running().items()


def test_a_node_that_is_deleted_and_registered_again_keeps_its_pods_and_their_addresses(world: World) -> None:
    world.cluster.deploy("web", 20)
    world.agrees(pods=20)
    before, uid = world.running(), world.cluster.uid_of("one")

    world.cluster.nodes["one"].kubelet.kill()
    world.cluster.admin.delete(f"{NODES}/one")
    world.cluster.nodes["one"].kubelet.start()
    until(lambda: world.cluster.uid_of("one") not in (uid, None), "the kubelet has registered its Node again")
    world.installation.account("podpool-agent", node="one")

    world.agrees(pods=20)
    assert before == world.running()


def test_pods_of_a_node_that_dies_move_and_its_addresses_come_back(world: World) -> None:
    """A machine that takes its name inherits nothing."""
    world.cluster.deploy("web", 20, **MOVES)
    world.agrees(pods=20)
    assert world.on("two")

    world.lose("two")
    world.agrees(pods=20)

    world.installation.join(world.cluster.add("two"))
    world.ready()
    world.cluster.scale("web", 40)
    world.agrees(pods=40)
    assert world.on("two")

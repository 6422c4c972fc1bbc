"""Pods of real nodes get addresses from podpool, and reach each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.conftest import World

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]


def test_sixty_pods_of_deployments_reach_each_other_across_nodes(world: World) -> None:
    for name in ("web", "shop"):
        world.cluster.deploy(name, 30)
    world.agrees(pods=60)
    ones, others = (world.on(name) for name in world.cluster.nodes)
    assert min(len(ones), len(others)) >= 20
    node = world.cluster.nodes["one"]
    for (netns, own), other in zip(sorted(node.interfaces().items()), sorted(others.values()), strict=False):
        assert own in ones.values()
        node.run("ip", "netns", "exec", netns, "ping", "-c", "1", "-W", "5", other)


def test_a_node_takes_as_many_pods_as_a_kubelet_has_by_default_at_once(world: World) -> None:
    world.cluster.run_pods([f"pod-{number}" for number in range(110)], node="one")
    world.agrees(pods=110)


def test_a_pod_that_is_made_again_after_a_forced_deletion_gets_an_address_of_its_own(world: World) -> None:
    """The API server forgets the old one at once, while its sandbox still runs on the node."""
    world.cluster.run_pods(["same"], node="two")
    world.agrees(pods=1)
    for _ in range(4):
        before = world.running()
        world.cluster.force_delete("same")
        world.cluster.run_pods(["same"], node="two")
        world.agrees(pods=1)
        assert before != world.running()

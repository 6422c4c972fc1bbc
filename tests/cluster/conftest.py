"""A real cluster with podpool, started once for all tests, and empty before and after each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from parts.cluster import NODES, PODS, Cluster, runs
from parts.installation import Installation, podpool
from parts.multus import Multus
from parts.polling import until
from tests.cluster.consistency import differences
from tests.cluster.network_consistency import network_differences

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("one", "two")
GONE_QUIET = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
MOVES: dict[str, Any] = {"tolerations": [GONE_QUIET | {"tolerationSeconds": 0}]}
"""Of Pods that leave a node which has gone quiet at once."""
# minutes of rest, of damping and of silence would only make the tests longer
SETTINGS = (
    "shrink_hold=500ms,cooldown=1s,cooldown_exhausted=1s,shrink_spread_max=100ms,"
    "confirmation_interval=4s,fence=15s,clock_error=1s,node_gc_delay=17s,sandbox_gc_delay=10s,node_maximum=800"
)
TIMEOUT = 120.0
INTERVAL = 0.5


class World:
    """The cluster, what of podpool runs in it, and what must hold when it has come to rest."""

    def __init__(self, cluster: Cluster, installation: Installation, multus: Multus) -> None:
        self.cluster = cluster
        self.installation = installation
        self.multus = multus

    def running(self) -> dict[str, str]:
        """The addresses of the Pods that run, by name."""
        return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in self.cluster.pods() if runs(pod)}

    def on(self, node: str) -> dict[str, str]:
        """The addresses of the Pods that run on a node."""
        return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in self.bound_to(node) if runs(pod)}

    def bound_to(self, node: str) -> list[dict[str, Any]]:
        """The Pods that are to be on a node, whether they run or not."""
        return list(self.cluster.admin.get(f"{PODS}?fieldSelector=spec.nodeName={node}")["items"])

    def agrees(self, *, pods: int) -> None:
        """Wait until so many Pods run, and every source agrees on them."""
        differences_found = ["no state was read"]

        def settled() -> bool:
            there, running = len(self.cluster.pods()), len(self.running())
            if there == running == pods:  # else there is more to see than is worth a look
                differences_found[:] = [
                    *differences(self.cluster, self.installation),
                    *network_differences(self.cluster),
                ]
            else:
                differences_found[:] = [f"{there} Pods are there and {running} run, not {pods}"]
            return not differences_found

        try:
            until(settled, "all agree", timeout=TIMEOUT, interval=INTERVAL)
        except TimeoutError:
            raise AssertionError("\n".join(differences_found)) from None

    def lose(self, node: str) -> None:
        """Have a machine die; then its Node is deleted, and the Pods that were on it are forgotten."""
        self.cluster.nodes.pop(node).die()
        until(lambda: not self.on(node), f"no Pod is to stay on {node}", interval=INTERVAL)
        self.cluster.admin.delete(f"{NODES}/{node}")
        for pod in self.bound_to(node):
            self.cluster.force_delete(pod["metadata"]["name"])

    def ready(self) -> None:
        """Wait until Pods can be scheduled to every node."""
        until(lambda: all(map(self.cluster.ready, self.cluster.nodes)), "every node is ready", interval=INTERVAL)


@pytest.fixture(scope="session")
def started_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two nodes and a subnet of about two thousand addresses."""
    home = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(home)
    started: list[Any] = [cluster]
    try:
        cluster.start(NAMES)
        installation = Installation(
            cluster.plane, home, subnet="vnet.pods", cidr="10.60.0.0/21", gateway="10.60.0.1", settings=SETTINGS
        )
        started.append(installation)
        multus = Multus(cluster)  # its kind comes first: for one that is missing a controller looks once a minute
        installation.install()
        for node in cluster.nodes.values():
            installation.join(node)
        yield World(cluster, installation, multus)
    finally:
        for each in reversed(started):
            each.stop()


@pytest.fixture
def world(started_world: World) -> Iterator[World]:
    """A cluster without Pods, whose nodes are ready; and after the test nothing may be left over."""
    started_world.ready()
    yield started_world
    started_world.cluster.clear()
    started_world.agrees(pods=0)


@pytest.fixture
def multus(world: World) -> Iterator[Multus]:
    """Multus on every node, for this test only; and agents that may write the ranges that nodes share."""
    world.cluster.plane.kubectl("apply", "-f", "-", manifest=podpool("rbac", "--shared-ranges"))
    for node in world.cluster.nodes.values():
        world.multus.join(node)
    yield world.multus
    world.cluster.clear()
    world.agrees(pods=0)
    world.multus.leave()

"""A real cluster with podpool in it, started once for all of its tests, and empty before and after each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from parts.cluster import PODS, Cluster, runs
from parts.installation import Installation
from parts.polling import until
from tests.cluster.agreement import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("one", "two")
# minutes of rest, of damping and of silence would only make the tests longer
NUMBERS = (
    "shrink_hold=500ms,cooldown=1s,cooldown_floor=1s,spread_at_most=100ms,"
    "confirmation=4s,fence=15s,clock_error=1s,gone=17s"
)
PATIENCE = 120.0
LOOK = 0.5


class World:
    """The cluster, what of podpool runs in it, and what must hold when it has come to rest."""

    def __init__(self, cluster: Cluster, installation: Installation) -> None:
        self.cluster = cluster
        self.installation = installation

    def running(self) -> dict[str, str]:
        """The addresses of the Pods that run, by name."""
        return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in self.cluster.pods() if runs(pod)}

    def on(self, node: str) -> dict[str, str]:
        """The addresses of the Pods that run on a node."""
        pods = self.cluster.admin.get(f"{PODS}?fieldSelector=spec.nodeName={node}")["items"]
        return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in pods if runs(pod)}

    def agrees(self, *, pods: int) -> None:
        """Wait until so many Pods run, and everybody says the same of them."""
        told = ["nobody was asked"]

        def settled() -> bool:
            there, running = len(self.cluster.pods()), len(self.running())
            if there == running == pods:  # else there is more to see than is worth a look
                told[:] = differences(self.cluster, self.installation)
            else:
                told[:] = [f"{there} Pods are there and {running} run, not {pods}"]
            return not told

        try:
            until(settled, "all agree", patience=PATIENCE, between=LOOK)
        except TimeoutError:
            raise AssertionError("\n".join(told)) from None

    def ready(self) -> None:
        """Wait until Pods can be scheduled to every node."""
        until(lambda: all(map(self.cluster.ready, self.cluster.nodes)), "every node is ready", between=LOOK)


@pytest.fixture(scope="session")
def started_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two nodes and a subnet of about a thousand addresses."""
    home = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(home)
    started: list[Any] = [cluster]
    try:
        cluster.start(NAMES)
        installation = Installation(
            cluster.plane, home, subnet="vnet.pods", cidr="10.60.0.0/22", gateway="10.60.0.1", numbers=NUMBERS
        )
        started.append(installation)
        installation.install()
        for node in cluster.nodes.values():
            installation.join(node)
        yield World(cluster, installation)
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

"""Scenario cluster: start time of Pods on two real nodes, beside other IPAM plugins.

With one network per Pod the nodes differ only in their IPAM, and one at a time is loaded. With ten networks, through
Multus, all Pods are on one node and the networks differ.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import cluster_networks as ten
from bench.cluster_pods import connect_by_host_local, pod_starts
from bench.measures import Ratio
from bench.scenario import Effort, Scenario, Side, Trial
from parts.cluster import Cluster
from parts.installation import Installation
from parts.multus import Multus, wanting
from parts.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.scenario import Run
    from parts.node import Node

OURS, THEIRS = "podpool", "host-local"
WHEREABOUTS, SLICED = "Whereabouts", "Whereabouts, node slices"
PODS_OF_A_NODE, PODS_OF_TEN_NETWORKS = 110, 10
"""The kubelet's default maximum; and a number that takes a while to connect."""
ROUNDS = 5

POD_START = Ratio(
    id="pod-start-vs-host-local",
    what="110 Pods start at once on a real node (kubelet, containerd), until all run: host-local / podpool",
    goal=">= 0.95",
    ours=OURS,
    theirs=THEIRS,
    better="lower",
)
TEN = "10 Pods with ten networks each start at once on a real node (kubelet, containerd, Multus), until all run"
TEN_NETWORKS = Ratio(
    id="pod-start-10-networks-vs-whereabouts",
    what=f"{TEN}: the better of Whereabouts' modes / podpool",
    goal=">= 2.5",
    ours=OURS,
    theirs=(WHEREABOUTS, SLICED),
    better="lower",
)
TEN_NETWORKS_LOCAL = Ratio(
    id="pod-start-10-networks-vs-host-local",
    what=f"{TEN}: host-local / podpool",
    goal=">= 0.95",
    ours=OURS,
    theirs=THEIRS,
    better="lower",
)


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """A cluster with two nodes."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as up:
        home = Path(place)
        cluster = Cluster(home)
        up.callback(cluster.stop)
        cluster.start((OURS, THEIRS))
        multus = Multus(cluster)  # before the controller, which checks for a missing CRD only once a minute
        installation = Installation(
            cluster.plane, home, subnet="vnet.pods", cidr="10.60.0.0/22", gateway="10.60.0.1", settings=""
        )
        up.callback(installation.stop)
        installation.install()
        ours, theirs = (cluster.nodes[name] for name in (OURS, THEIRS))
        installation.join(ours)
        connect_by_host_local(theirs, "10.61.0.0/22")
        yield one_network(cluster, ours, theirs, effort), ten_networks(cluster, multus, ours, effort)


def one_network(cluster: Cluster, ours: Node, theirs: Node, effort: Effort) -> Trial:
    """Trial of 110 Pods on a node."""
    pods = 20 if effort.quick else PODS_OF_A_NODE
    sides = (
        Side(OURS, partial(pod_starts, cluster, ours, pods)),
        Side(THEIRS, partial(pod_starts, cluster, theirs, pods), version("cni")),
    )
    return Trial(sides=sides, unit="s", counts=(POD_START,), at_most=ROUNDS)


def ten_networks(cluster: Cluster, multus: Multus, node: Node, effort: Effort) -> Trial:
    """Trials of Pods with ten networks each."""

    @cache
    def defined() -> None:
        ten.TenNetworks(cluster, multus, node).define()

    @contextmanager
    def starts(way: str) -> Iterator[Run]:
        defined()
        pods, wanted = 3 if effort.quick else PODS_OF_TEN_NETWORKS, wanting(ten.networks(way))
        with pod_starts(cluster, node, pods, prefix=way, annotations=wanted) as run:
            yield run

    sides = (
        Side(OURS, partial(starts, ten.OURS)),
        Side(WHEREABOUTS, partial(starts, ten.SHARED), version("whereabouts")),
        Side(SLICED, partial(starts, ten.SLICED), version("whereabouts")),
        Side(THEIRS, partial(starts, ten.HOST_LOCAL), version("cni")),
    )
    counts = (TEN_NETWORKS, TEN_NETWORKS_LOCAL)
    return Trial(sides=sides, unit="s", counts=counts, at_most=2 if effort.quick else ROUNDS, warmed=1)


def version(part: str) -> str:
    """Return the version of a component."""
    return next(recipe.version for recipe in RECIPES if recipe.name == part)


SCENARIO = Scenario(
    name="cluster",
    summary="real nodes with kubelet and containerd: their Pods' start, beside host-local and Whereabouts",
    ids=(POD_START.id, TEN_NETWORKS.id, TEN_NETWORKS_LOCAL.id),
    setup=trials,
)

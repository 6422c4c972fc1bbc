"""Real nodes: how long their Pods take to start, beside the reference plugin that gives addresses.

One cluster, two nodes that differ in nothing but who gives their Pods addresses; one node at a time has work.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cluster_pods import connect_by_host_local, pod_starts
from bench.counts import Ratio
from bench.scenario import Effort, Scenario, Side, Trial
from parts.cluster import Cluster
from parts.installation import Installation
from parts.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS, THEIRS = "podpool", "host-local"
PODS_OF_A_NODE = 110
"""What a kubelet takes unless told otherwise."""

POD_START = Ratio(
    id="pod-start-vs-host-local",
    what="110 Pods at once on a real node (kubelet, containerd), until all run: host-local by ours",
    goal=">= 0.95",
    ours=OURS,
    theirs=THEIRS,
    better="lower",
)


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """A cluster with two nodes."""
    pods = 20 if effort.quick else PODS_OF_A_NODE
    with tempfile.TemporaryDirectory() as place, ExitStack() as up:
        home = Path(place)
        cluster = Cluster(home)
        up.callback(cluster.stop)
        cluster.start((OURS, THEIRS))
        installation = Installation(
            cluster.plane, home, subnet="vnet.pods", cidr="10.60.0.0/22", gateway="10.60.0.1", numbers=""
        )
        up.callback(installation.stop)
        installation.install()
        ours, theirs = (cluster.nodes[name] for name in (OURS, THEIRS))
        installation.join(ours)
        connect_by_host_local(theirs, "10.61.0.0/22")
        version = next(recipe.version for recipe in RECIPES if THEIRS in recipe.programs)
        sides = (
            Side(OURS, partial(pod_starts, cluster, ours, pods)),
            Side(THEIRS, partial(pod_starts, cluster, theirs, pods), version),
        )
        yield (Trial(sides=sides, unit="s", counts=(POD_START,), at_most=5),)


SCENARIO = Scenario(
    name="cluster",
    sentence="real nodes with kubelet and containerd: their Pods' start, beside host-local",
    ids=(POD_START.id,),
    setup=trials,
)

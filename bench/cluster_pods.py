"""Start time of Pods on a real node: from the first creation until all run, according to the API server.

Pods are bound to their node at creation, so that no scheduler is involved. The next round starts when nothing of the
last one is left on the node.
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from parts.cluster import PODS, runs
from parts.installation import bridged
from parts.polling import until
from parts.recipes import program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.scenario import Run
    from parts.cluster import Cluster
    from parts.node import Node

TIMEOUT = 300.0
INTERVAL = 0.5


@contextmanager
def pod_starts(
    cluster: Cluster, node: Node, pods: int, *, prefix: str = "", annotations: Mapping[str, str] | None = None
) -> Iterator[Run]:
    """Start Pods at once on a ready node; return the seconds until all run."""
    until(lambda: cluster.ready(node.name), f"{node.name} is ready", interval=INTERVAL)

    def turn(repetition: int) -> float:
        since = cluster.admin.get(f"{PODS}?limit=1")["metadata"]["resourceVersion"]
        wanted = {f"{prefix or node.name}-{repetition}-{number}" for number in range(pods)}
        begun = time.perf_counter()
        cluster.run_pods(sorted(wanted), node=node.name, annotations=annotations)
        await_all(cluster, wanted, since=since)
        seconds = time.perf_counter() - begun
        cluster.clear()
        until(lambda: not cluster.pods(), "every Pod is gone", timeout=TIMEOUT, interval=INTERVAL)
        until(lambda: not (node.tasks() or node.ports()), "nothing is left of them", timeout=TIMEOUT, interval=INTERVAL)
        return seconds

    yield turn


def await_all(cluster: Cluster, wanted: set[str], *, since: str) -> None:
    """Watch the Pods until all run."""
    waiting = set(wanted)
    for _, pod in cluster.admin.watch(PODS, since=since):
        if runs(pod):
            waiting.discard(pod["metadata"]["name"])
        if not waiting:
            return
    raise ConnectionError(f"the API server ended the watch, and {len(waiting)} Pods do not run yet")


def connect_by_host_local(node: Node, subnet: str) -> None:
    """Configure a node as with podpool, but with host-local as IPAM."""
    for name in ("bridge", "host-local", "loopback"):
        shutil.copy(program(name), node.plugins)
    node.configure(bridged({"type": "host-local", "dataDir": "/run/host-local", "ranges": [[{"subnet": subnet}]]}))

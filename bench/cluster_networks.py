"""Ten secondary networks through Multus on one real node, identical except for their IPAM.

Four sets of ten networks with separate ranges: podpool slices, Whereabouts with and without slices, host-local.
Whereabouts reads its slices from the file on the node, and its NodeSlicePools exist beforehand, so that our controller,
which would serve these networks too, divides nothing.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from bench.slices_cluster import GROUP, slice_pool
from parts.node_config import BRIDGE
from parts.polling import until
from parts.recipes import program
from parts.whereabouts import NAMESPACE, Whereabouts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from parts.cluster import Cluster
    from parts.multus import Multus
    from parts.node import Node

NETWORKS = 10
SIZE = "/24"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OURS, SHARED, SLICED, HOST_LOCAL = "ours", "shared", "sliced", "host-local"


class TenNetworks:
    """The networks of a node, by IPAM."""

    def __init__(self, cluster: Cluster, multus: Multus, node: Node) -> None:
        self._cluster = cluster
        self._multus = multus
        self._node = node
        self._shared = Whereabouts(cluster.plane, self._home(SHARED))
        self._sliced = Whereabouts(cluster.plane, self._home(SLICED), node_slice_size=SIZE)

    def define(self) -> None:
        """Create all networks and wait until podpool's agent has its slices."""
        plugin = self._node.plugins / "whereabouts"
        plugin.unlink()  # podpool's plugin installed as whereabouts, as after a migration
        shutil.copy(program("whereabouts"), plugin)
        self._multus.join(self._node)
        sets: dict[str, Callable[[str, str], dict[str, Any]]] = {
            OURS: lambda name, range_: {
                "type": "podpool",
                "range": range_,
                "network_name": name,
                "node_slice_size": SIZE,
            },
            SHARED: lambda name, range_: _ipam(self._shared.config(range_, network_name=name)),
            SLICED: lambda name, range_: _ipam(self._sliced.config(range_, network_name=name)),
            HOST_LOCAL: lambda _, range_: {
                "type": "host-local",
                "dataDir": "/run/host-local",
                "ranges": [[{"subnet": range_}]],
            },
        }
        for place, (way, ipam) in enumerate(sets.items()):
            for number, name in enumerate(networks(way)):
                base = f"10.{100 + NETWORKS * place + number}.0.0"
                config = {"type": "macvlan", "master": BRIDGE, "mode": "bridge", "ipam": ipam(name, f"{base}/16")}
                if way == SLICED:
                    pool = slice_pool(name, f"{base}/16", SIZE, {self._node.name: f"{base}{SIZE}"})
                    self._cluster.admin.post(f"{GROUP}/{NAMESPACE}/nodeslicepools", pool)
                self._multus.define(name, config)
        until(lambda: self._taken() >= NETWORKS, "the agent has its slices")

    def _taken(self) -> int:
        held = (each["spec"].get("holderIdentity") or "" for each in self._cluster.admin.get(LEASES)["items"])
        return sum(each.startswith(f"{self._node.name}/") for each in held)

    def _home(self, way: str) -> Path:
        home = self._cluster.home / f"whereabouts-{way}"
        home.mkdir()
        return home


def networks(way: str) -> Sequence[str]:
    """Return the names of ten networks."""
    return [f"{way}-{number}" for number in range(NETWORKS)]


def _ipam(config: bytes) -> dict[str, Any]:
    return dict(json.loads(config)["ipam"])

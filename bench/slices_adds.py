"""ADDs from process start to exit, 16 at once: podpool beside Whereabouts' plugin, on one API server.

The next process starts as soon as one ends, so that 16 run until nearly the end of a round. Our rounds have more ADDs
because each takes less time.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from bench.agent_adds import SPAWNER, compiled
from bench.slices_cluster import NODE, OUR_NETWORK, THEIR_NETWORK
from parts.recipes import program
from podpool.cni.build import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.slices_cluster import SliceSite

AT_ONCE = 16


class Adds(Struct, frozen=True, kw_only=True):
    """Result of one turn."""

    per_second: float
    p99: float
    """p99 in milliseconds."""


class Turns:
    """Turns of both sides, by number; each runs once for all figures taken from it."""

    def __init__(self, site: SliceSite, *, sliced: bool, ours: int, theirs: int) -> None:
        self._site = site
        self._mode = "slice" if sliced else "shared-range"
        self._configs = {
            network: site.write(f"{network}-{self._mode}", site.config(network, sliced=sliced))
            for network in (OUR_NETWORK, THEIR_NETWORK)
        }
        self._counts = {OUR_NETWORK: ours, THEIR_NETWORK: theirs}
        self.ours = cache(self._ours)
        self.theirs = cache(self._theirs)

    def _ours(self, turn: int) -> Adds:
        """Run a turn with podpool's plugin; its DELs are not measured."""
        plugin, environment = build(platform.machine()), {"PODPOOL_SOCKET": str(self._site.door)}
        seen = self._call(plugin, "ADD", OUR_NETWORK, environment, turn)
        self._call(plugin, "DEL", OUR_NETWORK, environment, turn)
        return seen

    def _theirs(self, turn: int) -> Adds:
        """Run a turn with Whereabouts' plugin; its objects are deleted afterwards."""
        try:
            return self._call(program("whereabouts"), "ADD", THEIR_NETWORK, {"NODENAME": NODE}, turn)
        finally:
            self._site.clear(THEIR_NETWORK)

    def _call(self, plugin: Path, command: str, network: str, environment: Mapping[str, str], turn: int) -> Adds:
        variables = {"CNI_COMMAND": command, "CNI_NETNS": "/run/netns/bench", "CNI_IFNAME": "net1", "CNI_PATH": "/"}
        words: list[str | Path] = [
            str(AT_ONCE),
            str(self._counts[network]),
            f"{network}-{self._mode}-{turn}-",
            self._configs[network],
        ]
        begun = time.perf_counter()
        completed = subprocess.run(
            [compiled(SPAWNER, self._site.home), *words, plugin],
            env={**variables, **environment},
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        wall = time.perf_counter() - begun
        took = [int(line) / 1e6 for line in completed.stdout.split()]
        if not all(took):
            raise RuntimeError(f"{plugin.name}: {sum(not each for each in took)} of {len(took)} {command}s failed")
        return Adds(per_second=len(took) / wall, p99=statistics.quantiles(took, n=100, method="inclusive")[-1])

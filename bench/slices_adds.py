"""ADDs from process start to exit, 16 at once: our plugin with its agent beside Whereabouts' plugin, one API server."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.agent_adds import spawner
from bench.slices_site import NODE, OUR_NETWORK, THEIR_NETWORK
from parts.recipes import program
from podpool.cni.build import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from bench.scenario import Run
    from bench.slices_site import SliceSite

AT_ONCE = 16


def per_second(took: list[float], wall: float) -> float:
    """ADDs per second."""
    return len(took) / wall


def p99(took: list[float], _wall: float) -> float:
    """Milliseconds within which 99 in 100 ended."""
    return statistics.quantiles(took, n=100, method="inclusive")[-1]


@contextmanager
def our_adds(
    site: SliceSite, *, sliced: bool, adds: int, figure: Callable[[list[float], float], float]
) -> Iterator[Run]:
    """With our plugin; the DELs of a turn do not count."""
    config = site.write(f"ours-{sliced}", site.config(OUR_NETWORK, sliced=sliced))
    environment = {"PODPOOL_SOCKET": str(site.door)}
    plugin = build(platform.machine())

    def turn(repetition: int) -> float:
        prefix = f"ours-{sliced}-{repetition}-"
        figures = figure(*_call(site, plugin, "ADD", prefix, config, environment, adds))
        _call(site, plugin, "DEL", prefix, config, environment, adds)
        return figures

    yield turn


@contextmanager
def their_adds(
    site: SliceSite, *, sliced: bool, adds: int, figure: Callable[[list[float], float], float]
) -> Iterator[Run]:
    """With Whereabouts' plugin; what a turn left is cleared away afterwards."""
    config = site.write(f"theirs-{sliced}", site.config(THEIR_NETWORK, sliced=sliced))

    def turn(repetition: int) -> float:
        prefix = f"theirs-{sliced}-{repetition}-"
        try:
            return figure(*_call(site, program("whereabouts"), "ADD", prefix, config, {"NODENAME": NODE}, adds))
        finally:
            site.clear(THEIR_NETWORK)

    yield turn


def _call(
    site: SliceSite,
    plugin: Path,
    command: str,
    prefix: str,
    config: Path,
    environment: Mapping[str, str],
    count: int,
) -> tuple[list[float], float]:
    """Start so many plugins; gives the milliseconds that each took, and the seconds of all."""
    variables = {"CNI_COMMAND": command, "CNI_NETNS": "/run/netns/bench", "CNI_IFNAME": "net1", "CNI_PATH": "/"}
    begun = time.perf_counter()
    told = subprocess.run(
        [spawner(site.home), str(AT_ONCE), str(count), prefix, config, plugin],
        env={**variables, **environment},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wall = time.perf_counter() - begun
    took = [int(line) / 1e6 for line in told.stdout.split()]
    if not all(took):
        raise RuntimeError(f"{plugin.name}: {sum(not each for each in took)} of {len(took)} {command}s failed")
    return took, wall

"""ADD from process start to exit: podpool's plugin and agent beside host-local.

The same C program starts both. Each repetition measures an ADD; the DEL that follows is not measured.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from parts.recipes import program
from podpool.cni.build import build

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.agent_cluster import BenchNode
    from bench.scenario import Run

SPAWNER = Path(__file__).with_name("spawner.c")
HOST_LOCAL = {
    "cniVersion": "1.0.0",
    "name": "bench",
    "type": "ptp",
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.129.0.0/16"}]]},
}


@cache
def compiled(source: Path, home: Path) -> Path:
    """Compile a program that starts plugins."""
    made = home / source.stem
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", f"{platform.machine()}-linux-musl", "-static", "-Os"]
    subprocess.run([*compiler, source, "-o", made], check=True)
    return made


@contextmanager
def our_adds(node: BenchNode, *, at_once: int, of_each: int) -> Iterator[Run]:
    """Milliseconds of one ADD with podpool's plugin, the median of a repetition."""
    config = node.site.home / "ours.conf"
    config.write_text(json.dumps({"cniVersion": "1.0.0", "name": "bench", "type": "ptp", "ipam": {"type": "podpool"}}))
    environment = {"PODPOOL_SOCKET": str(node.door)}
    yield adds(node.site.home, build(platform.machine()), config, environment, at_once=at_once, of_each=of_each)


@contextmanager
def host_local_adds(home: Path, *, in_use: int, at_once: int, of_each: int) -> Iterator[Run]:
    """The same with host-local, with the given number of addresses in use."""
    data = home / f"host-local-{in_use}-{at_once}"
    leases = data / "bench"
    leases.mkdir(parents=True)
    for number in range(in_use):
        high, low = divmod(number + 2, 256)
        (leases / f"10.129.{high}.{low}").write_text(f"resident-{number}\r\neth0")
    high, low = divmod(in_use + 1, 256)
    (leases / "last_reserved_ip.0").write_text(f"10.129.{high}.{low}")
    config = home / f"host-local-{in_use}-{at_once}.conf"
    config.write_text(json.dumps({**HOST_LOCAL, "ipam": {**HOST_LOCAL["ipam"], "dataDir": str(data)}}))  # type: ignore[dict-item]  # a table
    yield adds(home, program("host-local"), config, {}, at_once=at_once, of_each=of_each)


def adds(home: Path, plugin: Path, config: Path, environment: Mapping[str, str], *, at_once: int, of_each: int) -> Run:
    """Return the run of one side."""
    starter = compiled(SPAWNER, home)

    def call(command: str, prefix: str) -> list[float]:
        variables = {"CNI_COMMAND": command, "CNI_NETNS": "/run/netns/bench", "CNI_IFNAME": "eth0", "CNI_PATH": "/"}
        completed = subprocess.run(
            [starter, str(at_once), str(of_each), prefix, config, plugin],
            env={**variables, **environment},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        took = [int(line) / 1e6 for line in completed.stdout.split()]
        if not all(took):
            raise RuntimeError(f"{plugin.name}: {sum(not each for each in took)} of {len(took)} {command}s failed")
        return took

    def turn(repetition: int) -> float:
        prefix = f"bench-{repetition}-"
        took = statistics.median(call("ADD", prefix))
        call("DEL", prefix)
        return took

    return turn

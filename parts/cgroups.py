"""Control groups for the Pods of each node: version 1, version 2, or both, as the machine has them.

The kubelet needs its root group in every hierarchy. The names contain the PID of the test run, so that the next run can
remove what a killed one left.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from parts.daemon import StartFailed, lives
from parts.polling import until

PREFIX = "podpool-parts-"
MOUNTS = Path("/proc/self/mountinfo")
INHERITED = ("cpuset.cpus", "cpuset.mems")
"""Version 1: a new group has none of these set, and no process can join it before."""
WANTED = ("cpu", "cpuset", "hugetlb", "memory", "pids")
"""Version 2: a kubelet rejects a group that lacks one of these if the machine has it."""


def hierarchies(mounts: Path = MOUNTS) -> dict[Path, str]:
    """Return the hierarchies, each with its type: `cgroup` or `cgroup2`."""
    found = {}
    for line in mounts.read_text().splitlines():
        place, _, source = line.partition(" - ")
        kind = source.split()[0]
        if kind in ("cgroup", "cgroup2"):
            found[Path(place.split()[4])] = kind
    return found


def make(name: str, *, mounts: Path = MOUNTS) -> str:
    """Create a group in every hierarchy; return its path as the kubelet writes it."""
    group = f"{PREFIX}{os.getpid()}-{name}"
    for root, kind in hierarchies(mounts).items():
        if kind == "cgroup2":
            share(root)
        made = root / group
        made.mkdir(exist_ok=True)
        if kind == "cgroup2":
            share(made)
        else:
            inherit(made)
    return f"/{group}"


def limit_memory(group: str, limit: int, *, mounts: Path = MOUNTS) -> Path:
    """Limit the memory of a group, in bytes; return the directory whose `cgroup.procs` takes its processes.

    In version 2 it is one below: a group that shares its controllers has no processes of its own.
    """
    for root, kind in hierarchies(mounts).items():
        limited = root / group.lstrip("/")
        if kind == "cgroup" and (limited / "memory.limit_in_bytes").exists():
            (limited / "memory.limit_in_bytes").write_text(str(limit))
            return limited
        if kind == "cgroup2" and "memory" in (limited / "cgroup.subtree_control").read_text().split():
            limited /= "limited"
            limited.mkdir(exist_ok=True)
            (limited / "memory.max").write_text(str(limit))
            return limited
    raise StartFailed(f"no hierarchy of this machine limits memory in {group}: /sys/fs/cgroup lacks that controller")


def killed_for_memory(limited: Path) -> int:
    """Return how many processes of a group the kernel has killed because its memory was exhausted."""
    counts = limited / "memory.events"
    lines = (counts if counts.exists() else limited / "memory.oom_control").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])


def share(group: Path) -> None:
    """Enable the controllers that a kubelet needs for child groups."""
    here = (group / "cgroup.controllers").read_text().split()
    control = group / "cgroup.subtree_control"
    missing = [each for each in WANTED if each in here and each not in control.read_text().split()]
    if not missing:
        return
    try:
        control.write_text(" ".join(f"+{each}" for each in missing))
    except OSError as error:
        raise StartFailed(
            f"{group} does not share {', '.join(missing)} with the groups below it ({error.strerror}): "
            f"a process of its own stands in the way, or the right to change it is missing"
        ) from error


def inherit(group: Path) -> None:
    """Copy CPUs and memory nodes of the parent to a new group of version 1."""
    for name in INHERITED:
        own = group / name
        if own.exists() and not own.read_text().strip():
            own.write_text((group.parent / name).read_text())


def remove(group: str, *, mounts: Path = MOUNTS) -> None:
    """Remove a group and its children when the last process in it has ended."""
    tops = [root / group.lstrip("/") for root in hierarchies(mounts)]
    until(lambda: all(map(removed, tops)), f"nothing runs in {group} any more")


def removed(top: Path) -> bool:
    """Remove what can be removed; return whether that was everything."""
    for directory, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):
            Path(directory).rmdir()
    return not top.exists()


def remove_left(*, mounts: Path = MOUNTS) -> None:
    """Remove the groups of test runs that were killed."""
    for root in hierarchies(mounts):
        for left in root.glob(f"{PREFIX}*"):
            maker = left.name.removeprefix(PREFIX).partition("-")[0]
            if not (maker.isdecimal() and lives(int(maker))):
                removed(left)

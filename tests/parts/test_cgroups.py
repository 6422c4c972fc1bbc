"""A node's control groups are made wherever the machine has them, in version 1, 2 or both, and go when it does."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from parts import cgroups
from parts.daemon import StartFailed

if TYPE_CHECKING:
    from pathlib import Path

UNUSED = 2**22 + 1
"""No process has this number: the kernel's largest is one less."""


class Machine:
    """The mounts of a machine, as directories."""

    def __init__(self, home: Path, **kinds: str) -> None:
        self.roots = {name: home / name for name in kinds}
        self.mounts = home / "mountinfo"
        lines = [f"1 0 0:1 / {home / name} rw - {kind} {kind} rw" for name, kind in kinds.items()]
        self.mounts.write_text("\n".join([*lines, "2 0 0:2 / /tmp rw - tmpfs tmpfs rw"]))
        for root in self.roots.values():
            root.mkdir()

    def groups(self) -> list[str]:
        return sorted(group.name for root in self.roots.values() for group in root.glob(f"{cgroups.PREFIX}*"))


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param({"memory": "cgroup", "pids": "cgroup"}, id="version 1"),
        pytest.param({"memory": "cgroup", "unified": "cgroup2"}, id="both"),
        pytest.param({"unified": "cgroup2"}, id="version 2"),
    ],
)
def test_a_group_is_made_in_every_hierarchy_and_removed_with_all_below(tmp_path: Path, kinds: dict[str, str]) -> None:
    machine = Machine(tmp_path, **kinds)
    if unified := machine.roots.get("unified"):
        for group_of_kernel in (unified, unified / f"{cgroups.PREFIX}{os.getpid()}-one"):
            no_controllers(group_of_kernel)
    group = cgroups.make("one", mounts=machine.mounts)
    assert [group.strip("/")] * len(kinds) == machine.groups()
    for root in machine.roots.values():
        (root / group.strip("/") / "kubepods" / "pod").mkdir(parents=True)
        for file in (root / group.strip("/")).glob("cgroup.*"):
            file.unlink()  # which the kernel does with the directory
    cgroups.remove(group, mounts=machine.mounts)
    assert [] == machine.groups()


@pytest.mark.parametrize("kind", ["cgroup", "cgroup2"])
def test_a_limit_of_memory_is_set_where_the_processes_are(tmp_path: Path, kind: str) -> None:
    machine = Machine(tmp_path, cpu="cgroup", memory=kind)
    group = machine.roots["memory"] / "one"
    files = {"memory.limit_in_bytes": ""} if kind == "cgroup" else {"cgroup.subtree_control": "cpu memory\n"}
    counts, text = ("memory.oom_control", "under_oom 0\n") if kind == "cgroup" else ("memory.events", "oom 5\n")
    group.mkdir()
    for name, content in files.items():
        (group / name).write_text(content)
    limited = cgroups.limit_memory("/one", 4096, mounts=machine.mounts)
    assert "4096" == next(file for file in limited.glob("memory.*")).read_text()
    assert (group if kind == "cgroup" else group / "limited") == limited
    (limited / counts).write_text(f"{text}oom_kill 3\noom_group_kill 1\n")
    assert 3 == cgroups.killed_for_memory(limited)


def test_the_error_of_a_machine_that_cannot_limit_memory(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpu="cgroup")
    with pytest.raises(StartFailed, match="no hierarchy of this machine limits memory in /one"):
        cgroups.limit_memory("/one", 4096, mounts=machine.mounts)


def test_a_new_group_of_version_1_has_the_processors_of_the_one_above(tmp_path: Path) -> None:
    (tmp_path / "cpuset.cpus").write_text("0-1\n")
    group = tmp_path / "group"
    group.mkdir()
    (group / "cpuset.cpus").write_text("\n")
    cgroups.inherit(group)
    assert "0-1\n" == (group / "cpuset.cpus").read_text()


def test_a_group_of_version_2_shares_what_a_kubelet_needs_and_nothing_else(tmp_path: Path) -> None:
    no_controllers(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    cgroups.share(tmp_path)
    assert "+cpu +pids" == (tmp_path / "cgroup.subtree_control").read_text()


def test_the_error_of_a_group_that_cannot_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_controllers(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu\n")

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("pathlib.Path.write_text", busy)
    with pytest.raises(StartFailed, match="does not share cpu with the groups below it .Device or resource busy"):
        cgroups.share(tmp_path)


def test_what_a_killed_run_left_is_removed_and_what_a_running_one_uses_stays(tmp_path: Path) -> None:
    machine = Machine(tmp_path, memory="cgroup")
    for maker in (UNUSED, os.getpid()):
        (machine.roots["memory"] / f"{cgroups.PREFIX}{maker}-one" / "kubepods").mkdir(parents=True)
    cgroups.remove_left(mounts=machine.mounts)
    assert [f"{cgroups.PREFIX}{os.getpid()}-one"] == machine.groups()


@pytest.mark.real
def test_the_kernel_lets_processes_into_every_group_and_the_groups_go_after_them() -> None:
    """On the machine's own hierarchies, whichever it has."""
    group = cgroups.make("kernel")
    tops = {root / group.strip("/"): kind for root, kind in cgroups.hierarchies().items()}
    with subprocess.Popen(["sleep", "infinity"]) as process:
        for top, kind in tops.items():
            enter(top, kind, process.pid)
        process.kill()
    cgroups.remove(group)
    assert [] == [top for top in tops if top.exists()]


def enter(group: Path, kind: str, process: int) -> None:
    """As a container runtime does; in version 2 a group that shares has room for processes only below it."""
    if kind == "cgroup2":
        above, group = group.parent, group / "pod"
        group.mkdir()
        assert controllers(above) & set(cgroups.WANTED) <= controllers(group)
    (group / "cgroup.procs").write_text(str(process))
    assert str(process) in (group / "cgroup.procs").read_text().split()


def controllers(group: Path) -> set[str]:
    return set((group / "cgroup.controllers").read_text().split())


def no_controllers(group: Path) -> None:
    """What the kernel shows in a hierarchy of version 2 whose controllers are all elsewhere."""
    group.mkdir(exist_ok=True)
    for file in ("cgroup.controllers", "cgroup.subtree_control"):
        (group / file).write_text("")

"""Checks of the machine that preflight runs on, if it is a node of the cluster: runtime, CNI directories, state."""

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from podpool.cni.conflist import NAME
from podpool.inspect.preflight.objects import Machine
from podpool.inspect.preflight.report import PreflightFinding, Severity, finding, names

CHECK = "node-files"
MOUNTS = Path("/proc/self/mounts")
CONFIG_SUFFIXES = (".conf", ".conflist", ".json")
"""What runtimes read."""
MAX_FILES = 1000
"""Files of the configuration directory that are looked at."""
VOLATILE = frozenset({"tmpfs", "ramfs"})


class NodePaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent, the plugin and the runtime have their files."""

    bin_dir: str
    conf_dir: str
    state: str
    cri_sockets: tuple[str, ...]
    boot_id: Path
    mounts: Path = MOUNTS


def check_node_files(nodes: Sequence[Machine], paths: NodePaths) -> Iterator[PreflightFinding]:
    """Check this machine; a single finding if it is none of the Nodes."""
    own = _boot_id(paths.boot_id)
    here = [each.metadata.name for each in nodes if own and each.status.node_info.boot_id == own]
    if not here:
        message = "not checked: this machine is none of the Nodes"
        yield finding(CHECK, Severity.INFO, "this machine", message, "run preflight on a node to check its files")
        return
    found = [*_name(here), *_runtime(paths), *_directories(paths), *_configuration(paths), *_state(paths)]
    ok = finding(CHECK, Severity.OK, f"node/{here[0]}", "runtime, CNI directories and state directory can be used")
    yield from found or [ok]


def _boot_id(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _name(here: Sequence[str]) -> Iterator[PreflightFinding]:
    host = socket.gethostname()
    if host not in here:
        message = f"the host name is {host!r}, and the Node's name {names(here)}"
        yield finding(CHECK, Severity.WARNING, f"node/{here[0]}", message, f"start the agent with --node {here[0]}")


def _runtime(paths: NodePaths) -> Iterator[PreflightFinding]:
    if not any(Path(each).is_socket() for each in paths.cri_sockets):
        message = f"no CRI socket at {' or '.join(paths.cri_sockets)}: lost DELs are found by Pods only"
        yield finding(CHECK, Severity.WARNING, "runtime", message, "name it with --cri-socket of the agent")


def _directories(paths: NodePaths) -> Iterator[PreflightFinding]:
    for path in (paths.bin_dir, paths.conf_dir):
        if not Path(path).is_dir():
            remedy = "install the container runtime, or name its directory with --bin-dir and --conf-dir"
            yield finding(CHECK, Severity.WARNING, path, "does not exist", remedy)
        elif not os.access(path, os.W_OK | os.X_OK):
            remedy = "run preflight as the user of the agent, or mount the directory read-write"
            yield finding(CHECK, Severity.ERROR, path, "cannot be written", remedy)


def _configuration(paths: NodePaths) -> Iterator[PreflightFinding]:
    """Check that runtimes would use podpool's configuration, which is the first by name."""
    try:
        with os.scandir(paths.conf_dir) as entries:
            listed = [each.name for each, _ in zip(entries, range(MAX_FILES), strict=False)]
    except OSError:
        return
    before = sorted(each for each in listed if each < NAME and each.endswith(CONFIG_SUFFIXES))
    if before:
        message = f"the runtime uses {before[0]} before {NAME}"
        remedy = "with Multus that is intended, if it delegates to podpool; otherwise remove the other plugin"
        yield finding(CHECK, Severity.WARNING, paths.conf_dir, message, remedy)


def _state(paths: NodePaths) -> Iterator[PreflightFinding]:
    type_ = _filesystem(Path(paths.state), paths.mounts)
    if type_ in VOLATILE:
        message = f"is on {type_}, which a reboot empties: the agent's journal would be lost"
        yield finding(CHECK, Severity.ERROR, paths.state, message, "name one on a disk with --state of the agent")


def _filesystem(path: Path, mounts: Path) -> str:
    """Return the type of the file system that a path is on; empty if that is unknown."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
        place = path.resolve()
    except OSError:
        return ""
    points = [(Path(words[1]), words[2]) for words in lines if len(words) > 2]
    above = [(len(point.parts), type_) for point, type_ in points if place.is_relative_to(point)]
    return max(above, key=lambda each: each[0], default=(0, ""))[1]

"""Runs the commands of a documentation page as written, in own namespaces, on default ports."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from parts import relay
from parts.api import ApiError
from parts.daemon import Daemon
from parts.debian import command
from parts.recipes import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces

ROOT = Path(__file__).resolve().parent.parent
BEGIN = """trap 'kill $(jobs -p) && wait || true' EXIT; set -eux -o pipefail
for place in /var/lib /opt; do mount -t tmpfs tmpfs $place; done
mkdir -p /opt/cni/bin /opt/etc /opt/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/opt/etc,workdir=/opt/work /etc
"""
"""The machine's own files in these directories are not changed."""
AGENTS_FOLLOW = "confirmation_interval=2s,fence=8s,clock_error=1s,node_gc_delay=10s"
"""Settings of a page that starts agents after the controller, which waits 10 s instead of 30 for their inventories."""

_LEFT = (
    ("/api/v1", "pods"),
    ("/api/v1", "nodes"),
    ("/apis/acn.azure.com/v1alpha", "nodenetworkconfigs"),
    ("/apis/acn.azure.com/v1alpha1", "clustersubnets"),
    ("/apis/acn.azure.com/v1alpha1", "clustersubnetstates"),
    ("/apis/k8s.cni.cncf.io/v1", "network-attachment-definitions"),
    ("/apis/podpool.io/v1alpha1", "nodeslices"),
    *(
        ("/apis/whereabouts.cni.cncf.io/v1alpha1", each)
        for each in ("nodeslicepools", "ippools", "overlappingrangeipreservations")
    ),
)


def commands_of(page: str) -> str:
    """Return all commands of a page, in order; the page is a path in the repository."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE))


def run_commands(
    commands: str, *, namespaces: Namespaces, home: Path, plane: ControlPlane | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run commands in one shell that stops at the first failure; their output is also in page.log."""
    path = [str(Path(sys.executable).parent), str(program("kubectl").parent), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    cache = os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")
    reached = {"KUBECONFIG": str(plane.kubeconfig)} if plane else {}
    log, script = home / "page.log", f"cd {shlex.quote(str(home))}\n{BEGIN}{commands}"
    # own PID namespace: when the shell is killed, its children end too
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", command("bash"), "-c", script]
    with log.open("w") as output:
        done = subprocess.run(
            namespaces.inside(argv),
            check=False,
            env={"PATH": ":".join(path), "HOME": str(home), "XDG_CACHE_HOME": str(cache), **reached, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return subprocess.CompletedProcess(done.args, done.returncode, log.read_text())


def clear(plane: ControlPlane) -> None:
    """Delete everything that uses or lists addresses."""
    _clear_inventory(plane)
    for group, plural in _LEFT:
        try:
            items = plane.admin.get(f"{group}/{plural}")["items"]
        except ApiError:  # the kind is not defined yet
            continue
        for left in items:
            meta = left["metadata"]
            within = f"{group}/namespaces/{meta['namespace']}" if "namespace" in meta else group
            place = f"{within}/{plural}/{meta['name']}"
            if meta.get("finalizers"):
                plane.admin.patch(place, {"metadata": {"finalizers": None}})
            plane.admin.delete(f"{place}?gracePeriodSeconds=0")


def _clear_inventory(plane: ControlPlane) -> None:
    """Delete the controller's slice inventory request, which nodes of a former test have not answered."""
    with suppress(ApiError):
        plane.admin.delete("/api/v1/namespaces/kube-system/configmaps/podpool-slice-inventory")


def register(plane: ControlPlane, node: str, *, boot_id: str) -> None:
    """Register a Node as a kubelet does, with a boot ID."""
    others = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"]
    others += ["machineID", "operatingSystem", "osImage", "systemUUID"]
    info = {"bootID": boot_id, **dict.fromkeys(others, "none")}
    plane.admin.post("/api/v1/nodes", {"metadata": {"name": node}})
    plane.admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": info}})


@contextmanager
def within_reach(plane: ControlPlane, namespaces: Namespaces, home: Path) -> Iterator[None]:
    """Make the API server reachable from the namespaces, under the address in its kubeconfig, without any Node."""
    clear(plane)
    log = home / "relay.log"
    argv = [sys.executable, relay.__file__, str(namespaces.holder.pid), str(plane.port)]
    carrying = Daemon(argv, log=log, ready=lambda: relay.READY in log.read_text())
    try:
        carrying.start()
        yield
    finally:
        carrying.kill()
        clear(plane)

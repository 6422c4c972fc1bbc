"""The commands of docs/agent.md work as they are written, on a real API server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parts import relay
from parts.daemon import Daemon
from parts.pages import clear
from parts.recipes import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "agent.md"
BEGIN = """trap 'kill $(jobs -p)' EXIT; set -eux -o pipefail
for directory in /var/lib /opt; do mount -t tmpfs tmpfs $directory; done
mkdir -p /opt/cni/bin /opt/etc /opt/work; cp {plugins}/* /opt/cni/bin
mount -t overlay overlay -o lowerdir=/etc,upperdir=/opt/etc,workdir=/opt/work /etc
"""


@pytest.fixture
def reachable(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> Iterator[ControlPlane]:
    """The API server, reachable from the namespaces with the same kubeconfig."""
    words = [sys.executable, relay.__file__, str(namespaces.holder.pid), str(control_plane.port)]
    log = tmp_path / "relay.log"
    relaying = Daemon(words, log=log, ready=lambda: relay.READY in log.read_text())
    try:
        relaying.start()
        yield control_plane
    finally:
        relaying.kill()


def test_the_commands_of_the_page_work(reachable: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    """In their own network and file systems: default ports and paths."""
    clear(reachable)
    commands = f"cd {tmp_path}\n" + BEGIN.format(plugins=program("ptp").parent)
    commands += "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))
    bins = f"{Path(sys.executable).parent}:{program('kubectl').parent}"
    done = subprocess.run(
        namespaces.inside(["bash", "-c", commands]),
        check=False,
        cwd=tmp_path,
        env={
            "PATH": f"{bins}:/usr/sbin:/usr/bin:/sbin:/bin",
            "KUBECONFIG": str(reachable.kubeconfig),
            "HOME": str(tmp_path),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert 0 == done.returncode, done.stdout
    addresses = re.findall(r"^eth0\S* +UP +(10\.50\.0\.\d+)/24", done.stdout, re.MULTILINE)
    assert 2 == len(set(addresses))
    assert f"{addresses[0]} is assigned to sandbox-one eth0" in done.stdout
    assert re.search(r'^cx_ipam_pod_allocated_ips\{.*subnet="pods".*\} 1\.0$', done.stdout, re.MULTILINE)
    assert re.search(r"^sandbox-one-eth0-[0-9a-f]{16}$", done.stdout, re.MULTILINE)
    assert re.search(r"15 grants, 0 assigned", done.stdout)
    assert "/opt/cni/bin/podpool\n/etc/cni/one/10-podpool.conflist\n" in done.stdout

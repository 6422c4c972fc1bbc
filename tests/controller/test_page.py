"""The page for the controller's users is true: its commands are run as they are written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from parts.api import ApiError
from parts.control_plane import ControlPlane
from parts.daemon import Daemon
from parts.namespaces import Namespaces
from parts.recipes import program
from parts.relay import READY

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "controller.md"
BEGIN = "trap 'kill $(jobs -p)' EXIT; set -eux -o pipefail; mount -t tmpfs tmpfs /var/lib\n"


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
def test_the_commands_of_the_page_work(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    """In a network of their own, with usual ports and usual places, from where the API server can be reached."""
    clear(control_plane)
    control_plane.admin.post("/api/v1/nodes", {"metadata": {"name": "one"}})
    log = tmp_path / "relay.log"
    relay = Daemon(
        [sys.executable, "-m", "parts.relay", str(namespaces.holder.pid), str(control_plane.port)],
        log=log,
        ready=lambda: READY in log.read_text(),
        env={"PYTHONPATH": str(ROOT)},
    )
    relay.start()
    try:
        told = run(namespaces, control_plane, tmp_path)
    finally:
        relay.stop()
        clear(control_plane)
    assert 0 == told.returncode, told.stdout
    assert re.search(r"^one +0 ", told.stdout, re.MULTILINE)
    assert re.search(r"^clustersubnet\S*/pods", told.stdout, re.MULTILINE)
    assert 'podpool_controller_subnet_batch{subnet="pods"} 16.0' in told.stdout
    assert re.search(r"10\.50\.0\.\d+ .* one .* now", told.stdout)
    assert "forbidden" not in told.stdout.lower()


def clear(control_plane: ControlPlane) -> None:
    """Leave no Node and no NNC of other tests, and none for them."""
    for kind in ("/api/v1/nodes", "/apis/acn.azure.com/v1alpha/namespaces/kube-system/nodenetworkconfigs"):
        try:
            items = control_plane.admin.get(kind)["items"]
        except ApiError:  # our kinds are not defined yet
            continue
        for left in items:
            place = f"{kind}/{left['metadata']['name']}"
            if left["metadata"].get("finalizers"):
                control_plane.admin.patch(place, {"metadata": {"finalizers": None}})
            control_plane.admin.delete(place)


def run(namespaces: Namespaces, control_plane: ControlPlane, home: Path) -> "subprocess.CompletedProcess[str]":
    commands = BEGIN + "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))
    path = [Path(sys.executable).parent, program("kubectl").parent, "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return subprocess.run(
        namespaces.inside(["bash", "-c", commands]),
        check=False,
        cwd=home,
        env={
            "PATH": ":".join(map(str, path)),
            "KUBECONFIG": str(control_plane.kubeconfig),
            "HOME": str(home),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

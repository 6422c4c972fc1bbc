"""The real Whereabouts: its plugin as a runtime calls it, and its slice controller."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

from parts.daemon import Daemon
from parts.recipes import program

if TYPE_CHECKING:
    from pathlib import Path

    from parts.control_plane import ControlPlane

NAMESPACE = "kube-system"
POOLS = f"/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{NAMESPACE}/ippools"
RESERVATIONS = f"/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{NAMESPACE}/overlappingrangeipreservations"


class Whereabouts:
    """The files that its plugin reads, and its configuration, which podpool's plugin accepts too."""

    def __init__(self, plane: ControlPlane, home: Path, *, namespace: str = NAMESPACE, **flat: object) -> None:
        self._plane = plane
        self._home = home
        self._flat = home / "whereabouts.conf"
        self._flat.write_text(json.dumps(flat))
        self._kubeconfig = home / "whereabouts.kubeconfig"
        kubeconfig = json.loads(plane.kubeconfig.read_text())
        kubeconfig["contexts"][0]["context"]["namespace"] = namespace  # required by the plugin
        self._kubeconfig.write_text(json.dumps(kubeconfig))

    def config(self, range_: str, **keys: object) -> bytes:
        """Return the configuration of a network with one range."""
        ipam = {
            "type": "whereabouts",
            "range": range_,
            "kubernetes": {"kubeconfig": str(self._kubeconfig)},
            "configuration_path": str(self._flat),
            "log_level": "error",
            **keys,
        }
        return json.dumps({"cniVersion": "1.0.0", "name": "shared", "type": "macvlan", "ipam": ipam}).encode()

    def start(self, command: str, pod: str, config: bytes, *, node: str = "") -> subprocess.Popen[bytes]:
        """Start its plugin without waiting for it."""
        return spawned(program("whereabouts"), command, pod, config, {"NODENAME": node or "none"})

    def slice_controller(self, *, log: Path) -> Daemon:
        """Return its slice controller, not started."""
        argv: list[str | Path] = [program("nodeslicecontroller"), "-kubeconfig", self._plane.kubeconfig]
        return Daemon(argv, log=log, env=os.environ | {"WHEREABOUTS_NAMESPACE": NAMESPACE}, ready=lambda: True)

    def entries(self, pool: str) -> dict[str, dict[str, str]]:
        """Return the allocations of an IPPool."""
        return dict(self._plane.admin.get(f"{POOLS}/{pool}")["spec"]["allocations"])

    def reservations(self) -> dict[str, str]:
        """Return the Pod of each reservation, by the name of the reservation."""
        items = self._plane.admin.get(RESERVATIONS)["items"]
        return {each["metadata"]["name"]: each["spec"]["podref"] for each in items}


def spawned(
    plugin: Path, command: str, pod: str, config: bytes, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a plugin as a runtime does; the sandbox ID is the Pod's name."""
    variables = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": f"sandbox-{pod}",
        "CNI_NETNS": f"/run/netns/{pod}",
        "CNI_IFNAME": "net1",
        "CNI_PATH": "/",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}",
        "PATH": os.environ["PATH"],
    }
    process = subprocess.Popen(
        [plugin],
        env={**variables, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    if process.stdin:
        process.stdin.write(config)
        process.stdin.close()
    return process


def answered(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the output of a plugin, with its exit code as `exit`."""
    output = process.stdout.read() if process.stdout else b""
    code = process.wait()
    if process.stdout:
        process.stdout.close()
    return {**(json.loads(output) if output.strip() else {}), "exit": code}

"""podpool nodes and the real Whereabouts on shared ranges, as processes on a real API server."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from parts.installation import Installation, podpool
from parts.whereabouts import POOLS, RESERVATIONS, Whereabouts, answered, spawned
from podpool.cni.build import build
from tests.controller.controller_env import NODE_INFO

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from parts.api import Api
    from parts.control_plane import ControlPlane


class SharedRangeInstallation:
    """Agents without ledger and controller: shared ranges need neither."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self.plane = plane
        self.whereabouts = Whereabouts(plane, home)
        self._home = home
        self._shim = build(platform.machine())
        self._installation = Installation(plane, home, subnet="none.none", cidr="", gateway="", settings="")

    def begin(self, nodes: Iterable[str]) -> None:
        """Install CRDs and RBAC, and start an agent for each node."""
        podpool("controller", "install-crds", "--kubeconfig", str(self.plane.kubeconfig))
        self.plane.kubectl("apply", "-f", "-", manifest=podpool("rbac", "--shared-ranges"))
        for node in nodes:
            self.plane.accounts.token("podpool-agent", namespace="kube-system", node=node)
            options = (
                "--socket",
                str(self.socket_path(node)),
                "--deferred-deletes",
                str(self._home / f"{node}.deletes"),
            )
            self._installation.start_agent(node, "--boot-id", f"boot-of-{node}", *options)

    def end(self) -> None:
        """Stop the agents, and delete all pools."""
        self._installation.stop()
        for path in (POOLS, RESERVATIONS):
            for each in self.plane.admin.get(path)["items"]:
                self.plane.admin.delete(f"{path}/{each['metadata']['name']}")

    def socket_path(self, node: str) -> Path:
        """Return the path of the agent's socket."""
        return self._home / f"{node}.sock"

    def start(self, command: str, pod: str, config: bytes, *, node: str) -> subprocess.Popen[bytes]:
        """Start podpool's plugin on a node, or Whereabouts' plugin without a node, and do not wait for it."""
        if not node:
            return self.whereabouts.start(command, pod, config)
        environment = {
            "PODPOOL_SOCKET": str(self.socket_path(node)),
            "PODPOOL_DEFERRED_DELETES": str(self._home / f"{node}.deletes"),
            "PODPOOL_WAIT_MS": "60000",
        }
        return spawned(self._shim, command, pod, config, environment)


def report_boot(admin: Api, node: str) -> None:
    """Report the boot ID on a Node as the kubelet does."""
    info = dict.fromkeys(NODE_INFO, "none") | {"bootID": f"boot-of-{node}"}
    admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": info}})


def outcomes(processes: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, str]:
    """Return the address that each Pod got, or the output of its plugin."""
    results = {pod: answered(process) for pod, process in processes.items()}
    return {
        pod: each["ips"][0]["address"].partition("/")[0] if "ips" in each else str(each)
        for pod, each in results.items()
    }

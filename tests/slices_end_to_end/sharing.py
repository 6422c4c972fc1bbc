"""Nodes of ours whose agents share ranges with the real Whereabouts, all as processes on a real API server."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from parts.installation import Installation, podpool
from parts.whereabouts import POOLS, RESERVATIONS, Whereabouts, answered, spawned
from podpool.cni.build import build
from tests.controller.sites import NODE_INFO

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from parts.api import Api
    from parts.control_plane import ControlPlane


class Sharing:
    """Agents without ledger and controller: these ranges need neither."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self.plane = plane
        self.theirs = Whereabouts(plane, home)
        self._home = home
        self._shim = build(platform.machine())
        self._installation = Installation(plane, home, subnet="none.none", cidr="", gateway="", settings="")

    def begin(self, nodes: Iterable[str]) -> None:
        """Define the kinds and rights, and start an agent for each node."""
        podpool("controller", "install-crds", "--kubeconfig", str(self.plane.kubeconfig))
        self.plane.kubectl("apply", "-f", "-", manifest=podpool("access", "--shared-ranges"))
        for node in nodes:
            self.plane.accounts.token("podpool-agent", namespace="kube-system", node=node)
            words = ("--socket", str(self.door(node)), "--deletes", str(self._home / f"{node}.deletes"))
            self._installation.start_agent(node, "--boot-id", f"boot-of-{node}", *words)

    def end(self) -> None:
        """Stop the agents, and leave no pool behind."""
        self._installation.stop()
        for path in (POOLS, RESERVATIONS):
            for each in self.plane.admin.get(path)["items"]:
                self.plane.admin.delete(f"{path}/{each['metadata']['name']}")

    def door(self, node: str) -> Path:
        """The agent's socket."""
        return self._home / f"{node}.sock"

    def start(self, command: str, pod: str, config: bytes, *, node: str) -> subprocess.Popen[bytes]:
        """Start our plugin on a node, or where no node is named theirs, and do not wait for it."""
        if not node:
            return self.theirs.start(command, pod, config)
        environment = {
            "PODPOOL_SOCKET": str(self.door(node)),
            "PODPOOL_DELETES": str(self._home / f"{node}.deletes"),
            "PODPOOL_WAIT_MS": "60000",
        }
        return spawned(self._shim, command, pod, config, environment)


def report_boot(admin: Api, node: str) -> None:
    """Say what a kubelet says of its machine."""
    told = dict.fromkeys(NODE_INFO, "none") | {"bootID": f"boot-of-{node}"}
    admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": told}})


def outcomes(processes: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, str]:
    """The address that each Pod got, or what its plugin said instead."""
    said = {pod: answered(process) for pod, process in processes.items()}
    return {
        pod: each["ips"][0]["address"].partition("/")[0] if "ips" in each else str(each) for pod, each in said.items()
    }

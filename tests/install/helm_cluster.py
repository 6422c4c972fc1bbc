"""podpool installed by Helm on a real cluster: its image in containerd, its components in Pods, nothing on the side."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parts import podpool_image
from parts.cluster import Cluster, runs
from parts.node_config import BRIDGE
from parts.polling import until
from parts.recipes import program
from tests.chart.rendering import CHART_DIR, helm

if TYPE_CHECKING:
    from parts.node import Node

PODPOOL = Path(sys.executable).parent / "podpool"
NAMES = ("first", "second")
SUBNET, CIDR, GATEWAY = "vnet.pods", "10.63.0.0/22", "10.63.0.1"
PLUGINS, CONFIGS = "/run/cni/bin", "/run/cni/net.d"
"""On the nodes: their own memory disk."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
TIMEOUT = 180.0
INTERVAL = 0.5


class HelmCluster:
    """Two nodes with the reference plugins and the image; podpool is not installed yet."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cluster = Cluster(home, service_accounts=True, boot_id=BOOT_ID)

    def start(self) -> None:
        """Start the nodes, which are not Ready: they have no network."""
        self.cluster.start(NAMES)
        for node in self.cluster.nodes.values():
            node.run("mount", "--make-rshared", "/")
            for inside, outside in ((PLUGINS, node.plugins), (CONFIGS, node.configs)):
                node.run("mkdir", "-p", inside)
                node.run("mount", "--bind", outside, inside)
            for name in ("bridge", "loopback"):
                shutil.copy(program(name), node.plugins)
            node.ctr("images", "import", str(podpool_image.archive()))

    def stop(self) -> None:
        """Stop everything."""
        self.cluster.stop()

    # Helm

    def values(self) -> dict[str, Any]:
        """Return the values of an installation on this cluster."""
        plane = self.cluster.plane
        return {
            "image": {"pullPolicy": "Never"},
            "kubernetes": {"host": "127.0.0.1", "port": plane.port},
            "network": {"profile": "bridge", "bridge": BRIDGE},
            "cni": {"binDir": PLUGINS, "confDir": CONFIGS},
            "agent": {"criSocket": "/run/containerd/containerd.sock"},
            "controller": {"subnet": SUBNET},
            "settings": {"cooldown": "1s", "shrink_hold": "1s"},
            "ledger": {
                "host": self.ledger_node.address,
                "nodeSelector": {"kubernetes.io/hostname": self.ledger_node.name},
                "sqlite": {"storage": "hostPath"},
            },
        }

    def helm(self, *argv: str | Path, values: dict[str, Any] | None = None) -> str:
        """Run Helm as admin of the cluster."""
        connection: list[str | Path] = ["--kubeconfig", self.cluster.plane.kubeconfig, "--namespace", "kube-system"]
        given = ["--values", "-"] if values else []
        return helm(*argv, *connection, *given, home=self.home, stdin=json.dumps(values) if values else "")

    def install(self) -> None:
        """Install the chart, and create the subnet."""
        self.helm("install", "podpool", CHART_DIR, values=self.values())
        self.until_running("ledger", 1)
        self.ledger("subnet", "create", SUBNET, CIDR, "--gateway", GATEWAY)

    def until_running(self, component: str, count: int) -> None:
        """Wait until so many Pods of a component are ready."""
        what = f"{count} Pods of {component} are ready"
        until(lambda: self.ready(component) == count, what, timeout=TIMEOUT, interval=INTERVAL)

    def ready(self, component: str) -> int:
        """Return how many Pods of a component are ready."""
        path = f"/api/v1/namespaces/kube-system/pods?labelSelector=app.kubernetes.io/component={component}"
        pods = self.cluster.admin.get(path)["items"]
        return sum(runs(pod) and all(each["ready"] for each in pod["status"]["containerStatuses"]) for pod in pods)

    def until_ready(self) -> None:
        """Wait until all nodes are Ready and all components too."""
        self.until_running("agent", len(NAMES))
        self.until_running("controller", 2)
        until(lambda: all(map(self.cluster.ready, NAMES)), "the nodes are Ready", timeout=TIMEOUT, interval=INTERVAL)

    # State

    @property
    def ledger_node(self) -> Node:
        """Return the node that has the ledger's database."""
        return self.cluster.nodes[NAMES[0]]

    def ledger(self, *argv: str) -> str:
        """Run a command of the ledger where the admin token is allowed, as `kubectl exec` would."""
        admin = self.secret("podpool-ledger-admin")["token"]
        token, ca = self.home / "admin-token", self.home / "ledger-ca.pem"
        token.write_bytes(admin)
        ca.write_bytes(self.secret("podpool-ledger-tls")["ca.crt"])
        connection = [*("--ledger", f"https://{self.ledger_node.address}:7780", "--ledger-token-file", str(token))]
        connection += ["--ledger-ca-file", str(ca), "--ledger-server-name", "podpool-ledger.kube-system.svc"]
        return self.ledger_node.run(PODPOOL, "ledger", *argv, *connection)

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret."""
        data = self.cluster.admin.get(f"/api/v1/namespaces/kube-system/secrets/{name}")["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def running(self) -> dict[str, str]:
        """Return the addresses of the Pods that run, by name."""
        return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in self.cluster.pods() if runs(pod)}

    def files(self, node: Node) -> list[str]:
        """Return podpool's files on a node."""
        places = ["/var/lib/podpool", "/var/lib/podpool-ledger", "/run/podpool", PLUGINS, CONFIGS]
        return node.run("sh", "-c", f"find {' '.join(places)} ! -type d 2>/dev/null || true").split()

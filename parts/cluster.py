"""A real cluster on one machine: control plane with controllers, nodes, and one layer-2 segment.

The control plane is on loopback; each node has its own namespaces and reaches it through a relay. Pods of all nodes
share one segment, because their addresses are not one range per node. A killed run leaves only empty control groups,
which the next one removes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parts import cgroups
from parts.api import ApiError
from parts.control_plane import ControlPlane
from parts.daemon import Daemon, StartFailed
from parts.image import NAME as IMAGE
from parts.loopback import free_port, listens
from parts.namespaces import Namespaces
from parts.node import Node
from parts.node_config import BRIDGE
from parts.polling import until
from parts.recipes import program

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
NODES = "/api/v1/nodes"
GONE_QUIET = "10s"
"""Seconds after which a silent node is unreachable."""


class Cluster:
    """Fixture: `cluster`. `nodes` by name; `plane` as everywhere; `scheduler` and `controllers` are daemons.

    With `service_accounts` Pods get the tokens of their accounts. With a `boot_id` all nodes report this one: a
    container sees only the machine's.
    """

    def __init__(self, home: Path, *, service_accounts: bool = False, boot_id: str = "") -> None:
        if os.geteuid() != 0:
            raise StartFailed("nodes of a cluster can only be made by root: type 'sudo make test'")
        cgroups.remove_left()
        self.home = home
        (home / "plane").mkdir()
        self.plane = ControlPlane(home / "plane", service_accounts=service_accounts)
        self.boot_id = boot_id
        self.admin = self.plane.admin
        self.segment = Namespaces(home)
        self.nodes: dict[str, Node] = {}
        self.controllers = self.control(
            "kube-controller-manager",
            f"--service-account-private-key-file={self.plane.home / 'tokens.key'}",
            f"--root-ca-file={self.plane.ca}",
            f"--flex-volume-plugin-dir={home / 'volume-plugins'}",
            f"--node-monitor-grace-period={GONE_QUIET}",
        )
        self.scheduler = self.control("kube-scheduler")

    def control(self, name: str, *options: str) -> Daemon:
        """Return a daemon of the control plane: scheduler or controller manager."""
        port, config = free_port(), self.plane.kubeconfig
        accounts = [f"--{use}kubeconfig={config}" for use in ("", "authentication-", "authorization-")]
        listen = ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={self.home / name}"]
        return Daemon(
            [program(name), "--leader-elect=false", *accounts, *listen, *options],
            log=self.home / f"{name}.log",
            ready=lambda: listens(port),
        )

    def start(self, names: Iterable[str]) -> None:
        """Start everything, with these nodes."""
        self.plane.start()
        self.controllers.start()
        self.scheduler.start()
        self.segment.start()
        self.segment.run("ip", "link", "add", BRIDGE, "type", "bridge")
        self.segment.run("ip", "link", "set", BRIDGE, "up")
        for name in names:
            self.add(name)

    def stop(self) -> None:
        """Stop everything."""
        for node in self.nodes.values():
            node.die()
        self.segment.stop()
        self.scheduler.kill()
        self.controllers.kill()
        self.plane.stop()

    def add(self, name: str) -> Node:
        """Start a new machine; with the name of an earlier one it is a replacement without its state."""
        number = sum(1 for _ in self.home.glob("node-*"))
        node = Node(
            name,
            self.plane,
            self.segment,
            home=self.home / f"node-{number}-{name}",
            address=f"10.99.0.{10 + number}",
            boot_id=self.boot_id,
        )
        self.nodes[name] = node
        node.start()
        until(lambda: self.boot_of(name) == node.boot_id, f"{name} is registered")
        return node

    # Nodes and Pods as the API server has them

    def node(self, name: str) -> dict[str, Any]:
        """Return a Node; empty if it does not exist."""
        try:
            return self.admin.get(f"{NODES}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return {}

    def uid_of(self, name: str) -> str | None:
        """Return the UID of a Node; None if it does not exist."""
        uid: str | None = self.node(name).get("metadata", {}).get("uid")
        return uid

    def boot_of(self, name: str) -> str:
        """Return the boot ID that a Node reports."""
        return str(self.node(name).get("status", {}).get("nodeInfo", {}).get("bootID", ""))

    def ready(self, name: str) -> bool:
        """Return whether a Node is Ready."""
        conditions = self.node(name).get("status", {}).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def pods(self) -> list[dict[str, Any]]:
        """Return all Pods in the namespace."""
        return list(self.admin.get(PODS)["items"])

    def run_pods(
        self, names: Iterable[str], *, node: str, annotations: Mapping[str, str] | None = None, **spec: object
    ) -> None:
        """Create Pods that are bound to a node."""
        for name in names:
            metadata = {"name": name, "annotations": annotations}
            self.admin.post(PODS, {"metadata": metadata, "spec": pod_spec() | {"nodeName": node} | spec})

    def deploy(self, name: str, replicas: int, *, annotations: Mapping[str, str] | None = None, **spec: object) -> None:
        """Create a Deployment whose Pods are spread over the nodes."""
        self.admin.post(DEPLOYMENTS, spread_pods(name, replicas, annotations=annotations, **spec))

    def deploy_named(
        self, name: str, replicas: int, *, annotations: Mapping[str, str] | None = None, **spec: object
    ) -> None:
        """Create a StatefulSet, whose Pods keep their names; they start in parallel."""
        asked = spread_pods(name, replicas, annotations=annotations, **spec)
        asked["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        self.admin.post(STATEFUL_SETS, asked)

    def scale(self, name: str, replicas: int) -> None:
        """Scale a Deployment."""
        self.admin.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}})

    def force_delete(self, pod: str) -> None:
        """Delete a Pod from the API server at once, whether it has stopped or not."""
        self.admin.delete(f"{PODS}/{pod}?gracePeriodSeconds=0")

    def clear(self) -> None:
        """Delete all workloads; one response for all objects of a kind may take long on a busy machine."""
        admin = replace(self.admin, timeout=120.0)
        for kind in (DEPLOYMENTS, STATEFUL_SETS, PODS):
            admin.call("DELETE", kind)


def spread_pods(
    name: str, replicas: int, *, annotations: Mapping[str, str] | None = None, **spec: object
) -> dict[str, Any]:
    """Return a Deployment or StatefulSet whose Pods are spread evenly over the nodes."""
    labels = {"app": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": pod_spec() | {"topologySpreadConstraints": [spread]} | spec,
    }
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def pod_spec() -> dict[str, Any]:
    """Return the spec of a Pod that only waits, and stops at once."""
    return {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}],
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
    }


def runs(pod: dict[str, Any]) -> bool:
    """Return whether a Pod is running and not being deleted."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]

"""Multus on the nodes of a cluster, as plugin without daemon.

Its configuration precedes the conflist of the node, delegates the first interface to that one, and reads the other
networks of a Pod from the API server. It has only the rights that it needs.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from parts.api import ApiError
from parts.polling import until
from parts.recipes import program
from podpool.api.crds import multus_crd_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from parts.cluster import Cluster
    from parts.node import Node

GROUP = "k8s.cni.cncf.io"
ATTACHMENTS = f"/apis/{GROUP}/v1/namespaces/default/network-attachment-definitions"
WANTED, STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
CONFLIST = "05-multus.conflist"
"""Sorts before every other configuration of a node."""
RULES = (
    {"apiGroups": [GROUP], "resources": ["network-attachment-definitions"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch", "update"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
)


class Multus:
    """Secondary networks of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        plane = cluster.plane
        plane.kubectl("apply", "-f", "-", manifest=multus_crd_manifest())
        until(self.defined, "NetworkAttachmentDefinitions are known")
        token = plane.accounts.token("multus", namespace="kube-system", rules=RULES)
        self.kubeconfig = plane.kubeconfig_for(token, name="multus")

    def defined(self) -> bool:
        """Return whether the API server serves the kind."""
        try:
            self.cluster.admin.get(ATTACHMENTS)
        except ApiError:
            return False
        return True

    def join(self, node: Node) -> None:
        """Configure Multus on a node; the first interface is delegated to the former configuration."""
        for name in ("multus", "macvlan", "host-local"):
            shutil.copy(program(name), node.plugins)
        first = next(each for each in sorted(node.configs.glob("*.conflist")) if each.name != CONFLIST)
        delegate = json.loads(first.read_text())
        plugin = {
            "type": "multus",
            "binDir": str(node.plugins),
            "kubeconfig": str(self.kubeconfig),
            "delegates": [delegate],
        }
        node.configure({"cniVersion": "1.1.0", "name": delegate["name"], "plugins": [plugin]}, file=CONFLIST)

    def leave(self) -> None:
        """Remove Multus; no Pod that it connected may exist."""
        for node in self.cluster.nodes.values():
            (node.configs / CONFLIST).unlink(missing_ok=True)
        self.cluster.admin.call("DELETE", ATTACHMENTS)

    def define(self, name: str, config: Mapping[str, Any]) -> None:
        """Define a network by its CNI configuration."""
        kind = {"apiVersion": f"{GROUP}/v1", "kind": "NetworkAttachmentDefinition"}
        self.cluster.admin.post(ATTACHMENTS, {**kind, "metadata": {"name": name}, "spec": _spec(name, config)})

    def redefine(self, name: str, config: Mapping[str, Any]) -> None:
        """Replace the CNI configuration of a network."""
        self.cluster.admin.patch(f"{ATTACHMENTS}/{name}", {"spec": _spec(name, config)})


def _spec(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {"config": json.dumps({"cniVersion": "1.0.0", "name": name, **config})}


def wanting(networks: Iterable[str]) -> dict[str, str]:
    """Return the annotation of a Pod with these networks."""
    return {WANTED: ",".join(networks)}


def wanted(pod: Mapping[str, Any]) -> list[str]:
    """Return the secondary networks in a Pod's annotation."""
    asked: str = pod["metadata"].get("annotations", {}).get(WANTED, "")
    return asked.split(",") if asked else []


def attached(pod: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the addresses of a Pod's interfaces from Multus' network status."""
    status = json.loads(pod["metadata"].get("annotations", {}).get(STATUS, "[]"))
    return {each["interface"]: each.get("ips", []) for each in status}

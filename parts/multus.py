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
"""Before all others that a node may have."""
RULES = (
    {"apiGroups": [GROUP], "resources": ["network-attachment-definitions"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch", "update"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
)


class Multus:
    """Networks of a cluster beside the first one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        plane = cluster.plane
        plane.kubectl("apply", "-f", "-", manifest=multus_crd_manifest())
        until(self.defined, "NetworkAttachmentDefinitions are known")
        token = plane.accounts.token("multus", namespace="kube-system", rules=RULES)
        self.kubeconfig = plane.kubeconfig_for(token, name="multus")

    def defined(self) -> bool:
        """Whether the API server serves the kind."""
        try:
            self.cluster.admin.get(ATTACHMENTS)
        except ApiError:
            return False
        return True

    def join(self, node: Node) -> None:
        """Have a node's Pods connected by Multus, and their first interface by what the node had before."""
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
        """Leave everything as it was; no Pod may be there that it connected."""
        for node in self.cluster.nodes.values():
            (node.configs / CONFLIST).unlink(missing_ok=True)
        self.cluster.admin.call("DELETE", ATTACHMENTS)

    def define(self, name: str, config: Mapping[str, Any]) -> None:
        """Define a network by its CNI configuration."""
        named = {"cniVersion": "1.0.0", "name": name, **config}
        self.cluster.admin.post(
            ATTACHMENTS,
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "NetworkAttachmentDefinition",
                "metadata": {"name": name},
                "spec": {"config": json.dumps(named)},
            },
        )


def wanting(networks: Iterable[str]) -> dict[str, str]:
    """The annotation of a Pod that wants these networks."""
    return {WANTED: ",".join(networks)}


def wanted(pod: Mapping[str, Any]) -> list[str]:
    """The networks that a Pod wants beside its first."""
    asked: str = pod["metadata"].get("annotations", {}).get(WANTED, "")
    return asked.split(",") if asked else []


def attached(pod: Mapping[str, Any]) -> dict[str, list[str]]:
    """The addresses of a Pod's interfaces, as Multus has told them."""
    told = json.loads(pod["metadata"].get("annotations", {}).get(STATUS, "[]"))
    return {each["interface"]: each.get("ips", []) for each in told}

"""One real API server with both systems: a podpool node, agent and controller, and Whereabouts' plugin.

Whereabouts' node has its slice from a NodeSlicePool that exists beforehand, as its controller would create it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.load_generator import INFO
from parts.api import ApiError
from parts.installation import Installation, podpool
from parts.polling import until
from parts.whereabouts import NAMESPACE, POOLS, RESERVATIONS, Whereabouts
from podpool.api.crds import multus_crd_manifest
from podpool.api.node_slices import NODE_SLICES

if TYPE_CHECKING:
    from pathlib import Path

    from parts.control_plane import ControlPlane

NODE = "bench"
SLICES, SHARED = "10.96.0.0/12", "10.112.0.0/16"
SIZE = "/20"
OUR_NETWORK, THEIR_NETWORK = "ours", "theirs"
SETTINGS = "cooldown=0,cooldown_exhausted=0"
GROUP = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces"
ATTACHMENTS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"


class SliceSite(Installation):
    """Both sides have the same configuration except for the name of the network."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        super().__init__(plane, home, subnet="none.none", cidr="", gateway="", settings=SETTINGS)
        self.whereabouts = Whereabouts(plane, home)
        self.door = home / "agent.sock"

    def begin(self) -> None:
        """Start the controller and one node, and wait until it has its slice."""
        admin = self.plane.admin
        begin_slices(self)
        admin.post("/api/v1/nodes", {"metadata": {"name": NODE}})
        info = dict.fromkeys(INFO, "none") | {"bootID": "boot-of-bench"}
        admin.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"nodeInfo": info}})
        admin.post(ATTACHMENTS, defined(OUR_NETWORK, self.config(OUR_NETWORK, sliced=True)))
        agent = (
            "--boot-id",
            info["bootID"],
            "--socket",
            str(self.door),
            "--deferred-deletes",
            str(self.home / "deletes"),
        )
        self.start_agent(NODE, *agent)
        until(self.has_slice, "the node has its slice", timeout=120)
        pool = slice_pool(THEIR_NETWORK, SLICES, SIZE, {NODE: f"10.96.0.0{SIZE}"})
        admin.post(f"{GROUP}/{NAMESPACE}/nodeslicepools", pool)

    def config(self, network: str, *, sliced: bool) -> bytes:
        """Return the configuration of a network, with slices or with a shared range."""
        more = {"node_slice_size": SIZE} if sliced else {}
        return self.whereabouts.config(SLICES if sliced else SHARED, network_name=network, **more)

    def has_slice(self) -> bool:
        """Return whether the agent has acquired its slice."""
        found = [each for each in self.plane.admin.get(NODE_SLICES.path())["items"] if each["metadata"]["name"] == NODE]
        return any(slice_.get("held") for each in found for slice_ in each.get("status", {}).get("slices", ()))

    def clear(self, network: str) -> None:
        """Delete the allocations of a Whereabouts network: DELs would take as long as the ADDs."""
        admin = self.plane.admin
        for each in admin.get(POOLS)["items"]:
            if each["metadata"]["name"].startswith(f"{network}-"):
                admin.delete(f"{POOLS}/{each['metadata']['name']}")
        for each in admin.get(RESERVATIONS)["items"]:
            if each["metadata"]["name"].startswith(f"{network}-"):
                admin.delete(f"{RESERVATIONS}/{each['metadata']['name']}")

    def write(self, name: str, config: bytes) -> Path:
        """Write a configuration for the program that starts plugins."""
        path = self.home / f"{name}.conf"
        path.write_text(json.dumps(json.loads(config)))
        return path


def begin_slices(site: Installation) -> None:
    """Install CRDs and RBAC, and start a controller without a ledger."""
    plane = site.plane
    podpool("controller", "install-crds", "--kubeconfig", str(plane.kubeconfig))
    plane.kubectl("apply", "-f", "-", manifest=multus_crd_manifest())
    plane.kubectl("apply", "-f", "-", manifest=podpool("rbac", "--shared-ranges"))
    until(lambda: known(plane, ATTACHMENTS), "NetworkAttachmentDefinitions are known")
    listen = ["--listen", f"127.0.0.1:{site.controller_port}", "--settings", site.settings]
    words = ["controller", "run", "--kubeconfig", site.account("podpool-controller"), "--ledger", "none", *listen]
    site.controller = site.start("controller", words, port=site.controller_port)


def defined(name: str, config: bytes) -> dict[str, Any]:
    """Return a NetworkAttachmentDefinition."""
    kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    return {**kind, "metadata": {"name": name}, "spec": {"config": config.decode()}}


def slice_pool(name: str, range_: str, size: str, slices: dict[str, str]) -> dict[str, Any]:
    """Return a NodeSlicePool as Whereabouts' controller writes it."""
    kind = {"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool"}
    listed = [{"nodeName": node, "sliceRange": each} for node, each in slices.items()]
    spec = {"range": range_, "sliceSize": size}
    return {**kind, "metadata": {"name": name}, "spec": spec, "status": {"allocations": listed}}


def known(plane: ControlPlane, path: str) -> bool:
    """Return whether the API server serves a new kind."""
    try:
        plane.admin.get(path)
    except ApiError:
        return False
    return True

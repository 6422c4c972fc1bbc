"""One real API server with both at work: a node of ours with its agent and our controller, and Whereabouts' plugin.

Whereabouts' node has its slice from a NodeSlicePool that is there beforehand, as its controller would have made it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from parts.api import ApiError
from parts.installation import Installation, podpool
from parts.polling import until
from parts.whereabouts import NAMESPACE, POOLS, RESERVATIONS, Whereabouts
from podpool.resources.crds import multus_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from parts.control_plane import ControlPlane

NODE = "bench"
SLICES, SHARED = "10.96.0.0/12", "10.112.0.0/16"
SIZE = "/20"
OUR_NETWORK, THEIR_NETWORK = "ours", "theirs"
NUMBERS = "cooldown=0,cooldown_floor=0"
GROUP = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces"
ATTACHMENTS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"


class SliceSite(Installation):
    """Both sides have the same configuration, but for the network's name: they do not meet."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        super().__init__(plane, home, subnet="none.none", cidr="", gateway="", numbers=NUMBERS)
        self.whereabouts = Whereabouts(plane, home)
        self.door = home / "agent.sock"

    def begin(self) -> None:
        """Bring up the controller and one node, and wait until it has its slice."""
        admin = self.plane.admin
        podpool("controller", "install-crds", "--kubeconfig", str(self.plane.kubeconfig))
        self.plane.kubectl("apply", "-f", "-", manifest=multus_manifest())
        self.plane.kubectl("apply", "-f", "-", manifest=podpool("access", "--shared-ranges"))
        admin.post("/api/v1/nodes", {"metadata": {"name": NODE}})
        fields = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"]
        fields += ["machineID", "operatingSystem", "osImage", "systemUUID"]
        info = {"bootID": "boot-of-bench", **dict.fromkeys(fields, "none")}
        admin.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"nodeInfo": info}})
        config = self.config(OUR_NETWORK, sliced=True).decode()
        kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
        until(lambda: known(self.plane, ATTACHMENTS), "NetworkAttachmentDefinitions are known")
        admin.post(ATTACHMENTS, {**kind, "metadata": {"name": OUR_NETWORK}, "spec": {"config": config}})
        listen = ["--listen", f"127.0.0.1:{self.controller_port}", "--numbers", NUMBERS]
        words = ["controller", "run", "--kubeconfig", self.account("podpool-controller"), "--ledger", "none", *listen]
        self.start("controller", words, port=self.controller_port)
        agent = ("--boot-id", info["bootID"], "--socket", str(self.door), "--deletes", str(self.home / "deletes"))
        self.start_agent(NODE, *agent)
        until(self.has_slice, "the node has its slice", patience=120)
        slices = [{"nodeName": NODE, "sliceRange": f"10.96.0.0{SIZE}"}]
        spec = {"range": SLICES, "sliceSize": SIZE}
        kind = {"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool"}
        pool = {"metadata": {"name": THEIR_NETWORK}, "spec": spec, "status": {"allocations": slices}}
        admin.post(f"{GROUP}/{NAMESPACE}/nodeslicepools", {**kind, **pool})

    def config(self, network: str, *, sliced: bool) -> bytes:
        """The configuration of a network, with slices or with a range that all nodes share."""
        more = {"node_slice_size": SIZE} if sliced else {}
        return self.whereabouts.config(SLICES if sliced else SHARED, network_name=network, **more)

    def has_slice(self) -> bool:
        """Whether the agent has taken it."""
        leases = self.plane.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
        ours = [each for each in leases if each["metadata"]["name"].startswith(f"{OUR_NETWORK}-{NODE}-")]
        return any(each["spec"].get("holderIdentity") for each in ours)

    def clear(self, network: str) -> None:
        """Leave a network of theirs as if nobody had been there: their DELs would take as long as their ADDs."""
        admin = self.plane.admin
        for each in admin.get(POOLS)["items"]:
            if each["metadata"]["name"].startswith(f"{network}-"):
                admin.delete(f"{POOLS}/{each['metadata']['name']}")
        for each in admin.get(RESERVATIONS)["items"]:
            if each["metadata"]["name"].startswith(f"{network}-"):
                admin.delete(f"{RESERVATIONS}/{each['metadata']['name']}")

    def write(self, name: str, config: bytes) -> Path:
        """Put a configuration where the starter of plugins reads it."""
        path = self.home / f"{name}.conf"
        path.write_text(json.dumps(json.loads(config)))
        return path


def known(plane: ControlPlane, path: str) -> bool:
    """Whether the API server serves a kind that was just defined."""
    try:
        plane.admin.get(path)
    except ApiError:
        return False
    return True

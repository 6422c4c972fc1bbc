"""One Pod from end to end: all components as processes, a real API server, the plugin in a real namespace."""

from __future__ import annotations

import json
import platform
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from parts.api import ApiError
from parts.cni import Chain, Pod
from parts.installation import CONFIGS, Installation
from parts.pages import clear
from parts.polling import until
from parts.recipes import program
from podpool.cni.build import build
from podpool.cni.install import install

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]

OUR_ACCOUNTS = "system:serviceaccount:kube-system:podpool-"
# a minute of damping and half of rest would only make the test longer
SETTINGS = "shrink_hold=500ms,cooldown=1s,cooldown_exhausted=1s,shrink_spread_max=100ms"


class Spine(Installation):
    """The processes of one small cluster, and what a scheduler, a kubelet and a runtime would do there."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        super().__init__(plane, home, subnet="vnet.pods", cidr="10.50.0.0/26", gateway="10.50.0.1", settings=SETTINGS)
        self.shim = build(platform.machine())

    def run_agent(self, node: str, *options: str) -> None:
        """Register a Node as its kubelet does, and start its agent."""
        boot = f"boot-of-{node}"
        self.plane.admin.post("/api/v1/nodes", {"metadata": {"name": node}})
        self.plane.admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": node_info(boot)}})
        deletes = str(self.home / node / "deletes")
        paths = ("--socket", str(self.door(node)), "--deferred-deletes", deletes)
        self.start_agent(node, "--boot-id", boot, *paths, *options)

    def door(self, node: str) -> Path:
        return self.home / f"{node}.sock"

    def bind(self, name: str, node: str) -> None:
        """Schedule a Pod."""
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        self.plane.admin.post("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})

    def delete(self, name: str) -> None:
        self.plane.admin.delete(f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")

    def config(self, node: str) -> dict[str, Any]:
        return self.plane.admin.get(f"{CONFIGS}/{node}")

    def grants(self, node: str) -> list[str]:
        """The addresses that a node was given for its Pods."""
        try:
            containers = self.config(node).get("status", {}).get("networkContainers", [])
        except ApiError:  # not made yet
            return []
        return [each["ip"] for container in containers for each in container.get("ipAssignments", [])]

    def plugin(self, command: str, node: str, pod: str) -> dict[str, Any]:
        """Start the plugin itself, as an interface plugin does."""
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"sandbox-{pod}",
            "CNI_NETNS": f"/run/netns/{pod}",
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}",
            "PODPOOL_SOCKET": str(self.door(node)),
        }
        config = b'{"cniVersion": "1.0.0", "name": "net", "ipam": {"type": "podpool"}}'
        done = subprocess.run([self.shim], check=False, env=environment, input=config, stdout=subprocess.PIPE)
        assert 0 == done.returncode, done.stdout
        return dict(json.loads(done.stdout or b"{}"))


@pytest.fixture
def spine(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Spine]:
    """A ledger with a subnet of 61 addresses, a controller, and the agents of two nodes."""
    clear(control_plane)
    made = Spine(control_plane, tmp_path)
    try:
        made.install()
        for node in ("one", "two"):
            made.run_agent(node)
        yield made
    finally:
        made.stop()


def test_one_pod_from_end_to_end(spine: Spine, namespaces: Namespaces) -> None:
    """Bound, connected, pinged; deleted, rested; and after shrinking its address is another node's.

    All with the rights that the printed roles give: nothing that was asked of the API server is refused.
    """
    mark = spine.plane.audit.mark()
    until(lambda: 15 == len(spine.grants("one")), "node one has its first batch")
    assert 15 == spine.config("one")["spec"]["requestedIPCount"]

    spine.bind("first", "one")
    bin_dir = spine.home / "bin"
    install(bin_dir)
    chain = Chain(
        namespaces=namespaces,
        path=[bin_dir, program("ptp").parent],
        conflist={
            "cniVersion": "1.0.0",
            "name": "podpool",
            "plugins": [{"type": "ptp", "ipam": {"type": "podpool"}}],
        },
        env={"PODPOOL_SOCKET": str(spine.door("one"))},
    )
    pod = Pod(
        container="sandbox-first",
        netns=namespaces.add(),
        args={"K8S_POD_NAMESPACE": "default", "K8S_POD_NAME": "first"},
    )
    result = chain.add(pod)
    address = str(result["ips"][0]["address"]).partition("/")[0]
    assert address in spine.grants("one")
    namespaces.run("ping", "-c", "1", "-W", "5", address)

    many = [f"pod-{number}" for number in range(24)]
    for name in many:
        spine.bind(name, "one")
    used = {address} | {str(spine.plugin("ADD", "one", name)["ips"][0]["address"]).partition("/")[0] for name in many}
    assert 25 == len(used)

    chain.delete(pod, result)
    for name in ("first", *many):
        spine.delete(name)
    for name in many:
        spine.plugin("DEL", "one", name)
    for number in range(40):
        spine.bind(f"other-{number}", "two")
    until(lambda: len(spine.grants("two")) >= 40, "node two has what its Pods need")
    assert used & set(spine.grants("two"))
    # what node one named is another's before its own status has been written again
    until(lambda: not set(spine.grants("one")) & set(spine.grants("two")), "each address is shown for one node")
    assert spine.plugin("ADD", "two", "other-0")["ips"]
    ours = [each for each in spine.plane.audit.calls(since=mark) if each.user.startswith(OUR_ACCOUNTS)]
    assert {"podpool-agent", "podpool-controller"} == {each.user.rpartition(":")[2] for each in ours}
    assert [] == [each for each in ours if each.status in (401, 403)]


def node_info(boot: str) -> dict[str, str]:
    """What a kubelet reports; the API server wants all of it."""
    others = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"]
    return {"bootID": boot, **dict.fromkeys([*others, "machineID", "operatingSystem", "osImage", "systemUUID"], "none")}

"""One Pod from end to end: every process its own, on a real API server, with the plugin in a real network namespace."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parts.api import ApiError
from parts.cni import Chain, Pod
from parts.daemon import Daemon
from parts.loopback import answers, free_port
from parts.polling import until
from parts.recipes import program
from podpool.cni.build import build
from podpool.cni.install import install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.api import Api
    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

PODPOOL = Path(sys.executable).parent / "podpool"
CONFIGS = "/apis/acn.azure.com/v1alpha/namespaces/kube-system/nodenetworkconfigs"
OUR_ACCOUNTS = "system:serviceaccount:kube-system:podpool-"
# a minute of damping and half of rest would only make the test longer
NUMBERS = "shrink_hold=500ms,cooldown=1s,cooldown_floor=1s,spread_at_most=100ms"


class Spine:
    """The processes of one small cluster."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self.plane = plane
        self.home = home
        self.shim = build(platform.machine())
        self.running: list[Daemon] = []
        self.ledger_url = f"http://127.0.0.1:{self.serve_ledger()}"

    def podpool(self, *words: str) -> str:
        """Run a command that ends."""
        return subprocess.run([PODPOOL, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    def start(self, name: str, *words: str, port: int, path: str = "/healthz") -> None:
        """Start one that does not."""
        daemon = Daemon([PODPOOL, *words], log=self.home / f"{name}.log", ready=lambda: answers(port, path))
        daemon.start()
        self.running.append(daemon)

    def serve_ledger(self) -> int:
        port = free_port()
        data = str(self.home / "ledger.db")
        self.start(
            "ledger", "ledger", "serve", "--database", f"sqlite://{data}", "--listen", f"127.0.0.1:{port}", port=port
        )
        return port

    def ask_ledger(self, *words: str) -> str:
        """Run a command of a person who manages the ledger."""
        token = str(self.home / "ledger.db.admin-token")
        return self.podpool("ledger", *words, "--ledger", self.ledger_url, "--token-file", token)

    def run_controller(self) -> None:
        port, token = free_port(), self.home / "cluster-token"
        token.write_text(self.ask_ledger("token", "create", "spine"))
        account = self.account("podpool-controller")
        options = ["--kubeconfig", account, "--ledger", self.ledger_url, "--numbers", NUMBERS]
        listen = ["--subnet", "vnet.pods", "--ledger-token-file", str(token), "--listen", f"127.0.0.1:{port}"]
        self.start("controller", "controller", "run", *options, *listen, port=port)

    def run_agent(self, node: str) -> None:
        """Register a Node as its kubelet does, and start its agent."""
        boot = f"boot-of-{node}"
        self.plane.admin.post("/api/v1/nodes", {"metadata": {"name": node}})
        self.plane.admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": node_info(boot)}})
        port, home = free_port(), self.home / node
        self.start(
            node,
            *("agent", "run", "--node", node, "--boot-id", boot),
            *("--kubeconfig", self.account("podpool-agent", node=node)),
            *("--state", str(home), "--socket", str(self.door(node)), "--deletes", str(home / "deletes")),
            *("--listen", f"127.0.0.1:{port}", "--numbers", NUMBERS),
            port=port,
        )

    def account(self, name: str, node: str | None = None) -> str:
        """A kubeconfig with the rights that a component has in a cluster, and no more."""
        token = self.plane.accounts.token(name, namespace="kube-system", node=node)
        until(lambda: allowed(self.plane.api(token)), f"the rights of {name} are in force")
        return str(self.plane.kubeconfig_for(token, name=f"{name}-{node}"))

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
    for left in control_plane.admin.get("/api/v1/nodes")["items"]:  # of other tests: each would want addresses
        control_plane.admin.delete(f"/api/v1/nodes/{left['metadata']['name']}")
    made = Spine(control_plane, tmp_path)
    try:
        made.podpool("controller", "install-crds", "--kubeconfig", str(control_plane.kubeconfig))
        control_plane.kubectl("apply", "-f", "-", manifest=made.podpool("access"))
        subnet = ["vnet.pods", "10.50.0.0/26", "--gateway", "10.50.0.1", "--numbers", NUMBERS]
        made.ask_ledger("subnet", "create", *subnet)
        made.run_controller()
        for node in ("one", "two"):
            made.run_agent(node)
        yield made
    finally:
        for daemon in reversed(made.running):
            daemon.stop()


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


def allowed(api: Api) -> bool:
    """Whether an account may do the first of what it has to."""
    try:
        api.get("/api/v1/pods?limit=1")
        return bool(api.get(CONFIGS))
    except ApiError:
        return False


def node_info(boot: str) -> dict[str, str]:
    """What a kubelet reports; the API server wants all of it."""
    others = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"]
    return {"bootID": boot, **dict.fromkeys([*others, "machineID", "operatingSystem", "osImage", "systemUUID"], "none")}

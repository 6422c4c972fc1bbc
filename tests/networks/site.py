"""A router and two nodes on one layer-2 segment: network namespaces on a bridge, with real agents, plugin and ptp.

The lite API server is on the segment too; the test writes the NodeNetworkConfigs, so it decides which node has an
address. Both families are in one network container.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parts.cni import Chain, Pod
from parts.daemon import Daemon
from parts.polling import until
from parts.recipes import program
from podpool.cni.install import install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parts.namespaces import Namespaces

PODPOOL = Path(sys.executable).parent / "podpool"
ROUTER, NODES = "router", ("one", "two")
API = "http://192.168.7.254:7782"
NNCS = "/apis/acn.azure.com/v1alpha/namespaces/kube-system/nodenetworkconfigs"
PODS_V4, PODS_V6, GATEWAY = "10.50.0.0/24", "fd50::/64", "10.50.0.1"
SET_UP = f"""set -e
ip link add segment type bridge
ip link set segment up
ip addr add 192.168.7.254/24 dev segment
number=1
for name in {ROUTER} {" ".join(NODES)}; do
  ip netns add $name
  ip -n $name link set lo up
  ip link add eth0 netns $name type veth peer name to-$name
  ip link set to-$name master segment up
  ip -n $name addr add 192.168.7.$number/24 dev eth0
  ip -n $name addr add fd07::$number/64 dev eth0 nodad
  ip -n $name link set eth0 up
  number=$((number + 1))
done
for each in ipv4/conf/all ipv6/conf/all; do ip netns exec {ROUTER} sh -c "echo 1 > /proc/sys/net/$each/forwarding"; done
for name in {" ".join(NODES)}; do ip netns exec $name sh -c 'echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter'; done
"""
DAD_TRANSMITS = "/proc/sys/net/ipv6/conf/default/dad_transmits"
ON_LINK = f"""set -e
ip -n {ROUTER} addr add {GATEWAY}/24 dev eth0
ip -n {ROUTER} addr add fd50::1/64 dev eth0 nodad
for name in {" ".join(NODES)}; do
  ip -n $name route add {PODS_V4} dev eth0
  ip -n $name route add {PODS_V6} dev eth0
done
"""
"""The router and the nodes reach Pods by ARP and NDP on the segment; the router has the gateway's address."""


class Inside:
    """One network namespace, for `Chain`: its interface plugin runs on the node."""

    def __init__(self, namespaces: Namespaces, name: str) -> None:
        self._namespaces = namespaces
        self.netns = f"/run/netns/{name}"

    def inside(self, argv: Sequence[str | Path]) -> list[str | Path]:
        return self._namespaces.inside(argv, netns=self.netns)

    def run(self, *argv: str | Path) -> str:
        return self._namespaces.run(*argv, netns=self.netns)


class Node(Inside):
    """A node with its agent."""

    def __init__(self, site: Site, name: str, number: int) -> None:
        super().__init__(site.namespaces, name)
        self.name, self.home, self._site = name, site.home / name, site
        self.number, self.version = number, 0
        self.primary = f"10.50.0.{number}"
        self.agent: Daemon | None = None
        self.bin_dir = site.home / "bin"

    def grant(self, *numbers: int) -> None:
        """Let the node have these addresses of both families, and no others."""
        self._site.request("PATCH", f"{NNCS}/{self.name}/status", self.next_status(*numbers))

    def next_status(self, *numbers: int) -> dict[str, Any]:
        """Return the next status of the NodeNetworkConfig, with these addresses."""
        self.version += 1
        assigned = [{"name": f"grant-{each}", "ip": each} for number in numbers for each in addresses(number)]
        nc = {
            "id": f"nc-{self.name}",
            "primaryIP": self.primary,
            "subnetName": "pods",
            "subnetAddressSpace": PODS_V4,
            "subnetAddressSpaceV6": PODS_V6,
            "defaultGateway": GATEWAY,
            "version": self.version,
            "ipAssignments": assigned,
        }
        return {"status": {"assignedIPCount": len(assigned), "networkContainers": [nc]}}

    def register(self) -> None:
        """Create the Node and its NodeNetworkConfig, without addresses."""
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name},
            "status": {"nodeInfo": {"bootID": f"boot-{self.name}"}},
        }
        uid = self._site.request("POST", "/api/v1/nodes", node)["metadata"]["uid"]
        self._site.request("PATCH", f"/api/v1/nodes/{self.name}/status", node)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": uid, "controller": True}
        meta = {"name": self.name, "namespace": "kube-system", "ownerReferences": [owner]}
        kind = {"apiVersion": "acn.azure.com/v1alpha", "kind": "NodeNetworkConfig"}
        self._site.request("POST", NNCS, {**kind, "metadata": meta, "spec": {"requestedIPCount": 0}})
        self.grant()

    def start_agent(self, *options: str) -> None:
        self.home.mkdir()
        self.agent = Daemon(
            self.inside([PODPOOL, *self.arguments(), *options]),
            log=self.home / "agent.log",
            ready=lambda: self.readyz().endswith("readyz check passed\n"),
        )
        self.agent.start()

    def arguments(self) -> list[str]:
        """Return the command line of the agent."""
        return [
            *("agent", "run", "--node", self.name, "--boot-id", f"boot-{self.name}"),
            *("--kubeconfig", str(self._site.kubeconfig), "--listen", "127.0.0.1:7784", "--mode", "idempotent"),
            *("--state", str(self.home / "state"), "--socket", str(self.home / "agent.sock")),
            *("--deferred-deletes", str(self.home / "deletes"), "--conf-dir", str(self.home / "net.d")),
            *("--bin-dir", str(program("ptp").parent), "--cri-socket", "none", "--settings", "cooldown=0"),
        ]

    def readyz(self) -> str:
        return self.run("sh", "-c", "curl -s http://127.0.0.1:7784/readyz || true")

    def metric(self, name: str) -> float:
        page = self.run("curl", "-s", "http://127.0.0.1:7784/metrics")
        (value,) = re.findall(rf"^{name} (\S+)$", page, re.MULTILINE)
        return float(value)

    def start_pod(self, name: str) -> Pod:
        """Connect a sandbox by the configuration that the agent wrote."""
        pod = Pod(container=name, netns=self._site.namespaces.add())
        # without the second that an interface plugin waits for duplicate address detection
        self._site.namespaces.run("sh", "-c", f"echo 0 > {DAD_TRANSMITS}", netns=pod.netns)
        self.chain().add(pod)
        return pod

    def stop_pod(self, pod: Pod) -> None:
        self.chain().delete(pod)

    def chain(self) -> Chain:
        written = self.home / "net.d" / "10-podpool.conflist"
        until(written.exists, "the agent has written the CNI configuration")
        return Chain(
            namespaces=self,  # type: ignore[arg-type]  # as far as it is used
            path=[self.bin_dir, program("ptp").parent],
            conflist=json.loads(written.read_text()),
            env={
                "PODPOOL_SOCKET": str(self.home / "agent.sock"),
                "PODPOOL_DEFERRED_DELETES": str(self.home / "deletes"),
                "PODPOOL_WAIT_MS": "60000" if self.agent and self.agent.alive else "1",
            },
        )

    def proxied(self) -> set[str]:
        """Return the addresses for which the kernel answers on the uplink."""
        shown = [self.run("ip", f"-{family}", "neigh", "show", "proxy", "dev", "eth0") for family in (4, 6)]
        return {line.split()[0] for line in "".join(shown).splitlines()}


class Site:
    """`start`, then `stop` also if that failed."""

    def __init__(self, namespaces: Namespaces, home: Path) -> None:
        self.namespaces, self.home = namespaces, home
        self.kubeconfig = home / "kubeconfig"
        self.router = Inside(namespaces, ROUTER)
        self.nodes = [Node(self, name, 2 + number) for number, name in enumerate(NODES)]
        self.daemons: list[Daemon] = []

    def start(self, *, set_up: str) -> None:
        """Start the API server, and register both nodes."""
        self.namespaces.run("sh", "-c", set_up)
        install(self.home / "bin")
        listen = ["--listen", API.removeprefix("http://"), "--write-kubeconfig", str(self.kubeconfig)]
        self.daemon("apiserver", [PODPOOL, "apiserver", "serve", *listen], ready=self.kubeconfig.exists)
        self.namespaces.run(PODPOOL, "controller", "install-crds", "--kubeconfig", self.kubeconfig)
        for node in self.nodes:
            node.register()

    def daemon(
        self, name: str, argv: Sequence[str | Path], *, ready: Callable[[], bool], at: Inside | None = None
    ) -> None:
        """Start a process on the segment, or in a namespace of it."""
        inside = at.inside(argv) if at else self.namespaces.inside(argv)
        started = Daemon(inside, log=self.home / f"{name}.log", ready=ready)
        self.daemons.append(started)
        started.start()

    def stop(self) -> None:
        for daemon in [*(each.agent for each in self.nodes if each.agent), *reversed(self.daemons)]:
            daemon.kill()

    def request(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the API server; return its response."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        words = ["curl", "-sS", "--fail-with-body", "-X", method, "-H", f"content-type: {kind}", "-d", json.dumps(body)]
        return dict(json.loads(self.namespaces.run(*words, API + path)))

    def ping(self, where: Inside | Pod, address: str, *, count: int = 1) -> None:
        """Ping an address from a namespace; raises if a packet is lost."""
        argv = ["ping", "-n", "-c", str(count), "-W", "5", address]
        if isinstance(where, Pod):
            self.namespaces.run(*argv, netns=where.netns)
        else:
            where.run(*argv)


def addresses(number: int) -> tuple[str, str]:
    """Return a Pod's addresses of both families."""
    return f"10.50.0.{number}", f"fd50::{number}"
